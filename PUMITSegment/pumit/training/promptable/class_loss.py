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
    # 1. The fields of each data set, by any class that they show.
    d, h, w = logits.shape[2:]
    known = (truth != UNKNOWN).flatten(1).any(1)
    sets = class_sets[truth.flatten(1).amax(1).clamp_min(0)].where(known, -1).cpu()
    losses, dices = [], []
    for each in sorted(set(sets[sets >= 0].tolist())):
        fields = torch.nonzero(sets == each).flatten().to(truth.device)
        own = torch.nonzero(class_sets == each).flatten()
        # 2. Share of each class in the cells of the logits' grid, (B', n, d, h, w).
        masks = (truth[fields, None] == own[:, None, None, None]).to(logits.dtype)
        share = F.adaptive_avg_pool3d(masks, (d, h, w)).flatten(2)
        weight = share.sum(1, keepdim=True)  # less than 1 where a cell reaches beyond the scan
        # 3. Cross-entropy over the cells that are known.
        x = logits[fields][:, own].flatten(2)
        cross = -(share * x.log_softmax(1)).sum((1, 2)) / weight.sum((1, 2))
        # 4. Dice of the structures that are there, (B', n - 1).
        p = x.softmax(1) * weight
        overlap = (2 * (p * share).sum(2) + 1) / ((p + share).sum(2) + 1)
        shown = (share.sum(2) > FEWEST_CELLS)[:, 1:]
        count = shown.sum(1)
        dice = (overlap[:, 1:] * shown).sum(1) / count.clamp_min(1)
        losses.append(cross + (1 - dice) * (count > 0))
        dices.append(dice.detach()[count > 0])
    zero = logits.new_zeros(())
    return (
        torch.cat(losses).mean() if losses else zero,
        torch.cat(dices).mean() if any(map(len, dices)) else zero,
        logits.new_tensor(float(sum(map(len, losses)))),
    )
