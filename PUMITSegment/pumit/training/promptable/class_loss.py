"""Loss of the classes of voxels, before anything is clicked."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.training.synthesis.scene import UNKNOWN

# Examples of the regions of a field, voxels that are classified by them, and the scale of cosines.
EXAMPLES, ASKED, SCALE = 96, 384, 12.0
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


def region_loss(vectors: Tensor, regions: Tensor) -> Tensor:
    """Loss of class vectors that do not tell the regions of a field from one another.

    A click finds a structure by the likeness of its voxels to the clicked one, also a structure
    that no class names. So voxels are classified by their likeness to a few others, of which it is
    known in which region they are: as many from a small region as from a large one.

    Args:
        vectors: Class vectors of length 1, (B, E, d, h, w).
        regions: Region of each voxel in its own field, (B, D, H, W), `UNKNOWN` where nothing tells.

    Source:
        Goldberger et al., Neighbourhood components analysis, 2004, with cosines times a fixed
        scale; Snell et al., Prototypical networks, 2017: few examples of classes never met.
    """
    # 1. The region at the middle of each cell, (B, N).
    cells = F.interpolate(regions[:, None].float(), vectors.shape[2:], mode="nearest-exact")
    cells = cells.flatten(1).long()
    known = cells != UNKNOWN
    chosen = known.any(1)
    if not bool(chosen.any()):
        return vectors.new_zeros(())
    cells, known, x = cells[chosen], known[chosen], vectors[chosen].flatten(2).float()
    # 2. Examples and voxels to classify, drawn so that small regions count, (B, M) and (B, P).
    count = torch.zeros(len(cells), int(cells.max()) + 2, device=cells.device)
    count.scatter_add_(1, cells + 1, known.float())
    weight = known / count.gather(1, cells + 1).clamp_min(1)
    examples = weight.multinomial(EXAMPLES, replacement=True)
    asked = weight.sqrt().multinomial(ASKED, replacement=True)
    # 3. Likeness (B, P, M); that to examples of the own region shall be the greater.
    of_examples, of_asked = (
        x.gather(2, index[:, None].expand(-1, x.shape[1], -1)) for index in (examples, asked)
    )
    likeness = SCALE * torch.einsum("bep,bem->bpm", of_asked, of_examples)
    own = cells.gather(1, asked)[..., None] == cells.gather(1, examples)[:, None]
    has_own = own.any(-1)
    right = likeness.masked_fill(~own, -torch.inf).logsumexp(-1)
    loss = likeness.logsumexp(-1) - torch.where(has_own, right, 0)
    return (loss * has_own).sum() / has_own.sum().clamp_min(1)
