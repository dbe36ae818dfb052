"""Loss of the classes of voxels, before anything is clicked."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.training.synthesis.scene import UNKNOWN

FEWEST_CELLS = 2.0  # of a class in a field, at the resolution of the logits, to count for Dice


def class_loss(logits: Tensor, truth: Tensor, class_sets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy plus soft Dice of classes, each field among those of its own data set.

    What one data set calls background another may have a name for; so a softmax runs over the
    classes of one data set, its background among them.

    Args:
        logits: Logits of all classes, (B, N, d, h, w).
        truth: Class of each voxel, (B, D, H, W), `UNKNOWN` where nobody knows.
        class_sets: Data set of each class, (N,); the first class of each is its background.

    Returns:
        Mean loss of the fields that have classes, the mean soft Dice of the structures that each
        shows, and how many such fields there are.
    """
    losses, dices = [], []
    for each, labels in zip(logits, truth, strict=True):
        known = labels != UNKNOWN
        if not bool(known.any()):
            continue
        own = torch.nonzero(class_sets == class_sets[labels[known][0]]).flatten()
        # 1. Share of each class in the cells of the logits' grid, (n, V).
        masks = torch.stack([labels == c for c in own]).float()
        share = F.adaptive_avg_pool3d(masks, each.shape[1:]).flatten(1)
        weight = share.sum(0)  # less than 1 where a cell reaches beyond the scan
        # 2. Cross-entropy over the cells that are known.
        x = each[own].flatten(1)
        cross = -(share * x.log_softmax(0)).sum() / weight.sum()
        # 3. Dice of the structures that are there.
        p = x.softmax(0) * weight
        overlap = (2 * (p * share).sum(1) + 1) / ((p + share).sum(1) + 1)
        shown = overlap[1:][share[1:].sum(1) > FEWEST_CELLS]
        losses.append(cross + ((1 - shown).mean() if len(shown) else 0.0))
        if len(shown):
            dices.append(shown.detach().mean())
    zero = logits.new_zeros(())
    return (
        torch.stack(losses).mean() if losses else zero,
        torch.stack(dices).mean() if dices else zero,
        logits.new_tensor(float(len(losses))),
    )
