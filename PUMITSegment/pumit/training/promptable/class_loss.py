"""Loss of the classes of voxels, before anything is clicked."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.training.synthesis.scene import UNKNOWN

# Examples of the regions of a field, voxels that are classified by them, and the scale of cosines.
EXAMPLES, ASKED, SCALE = 96, 384, 12.0
FEWEST_CELLS = 2.0  # of a class in a field, at the resolution of the logits, to count for Dice


def class_loss(
    logits_of: Callable[[Tensor, Tensor], Tensor],
    truth: Tensor,
    class_sets: Tensor,
    shape: tuple[int, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy plus soft Dice of classes, each field among those of its own data set.

    What one data set calls background another may have a name for; so a softmax runs over the
    classes of one data set, its background among them.

    Args:
        logits_of: Logits of some fields (B',) and classes (n,), as (B', n, d, h, w).
        truth: Class of each voxel, (B, D, H, W), `UNKNOWN` where no one knows.
        class_sets: Data set of each class, (N,); the first class of each is its background.
        shape: Grid (d, h, w) of the logits.

    Returns:
        Mean loss of the fields that have classes, the mean soft Dice of the structures that each
        shows, and how many such fields there are.
    """
    # 1. The class at the middle of each cell, and the data set of each field by any class it shows.
    cells = cells_of(truth, shape)  # (B, V)
    known = (cells != UNKNOWN).any(1)
    sets = class_sets[cells.amax(1).clamp_min(0)].where(known, -1).cpu()
    losses, dices = [], []
    for each in sorted(set(sets[sets >= 0].tolist())):
        fields = torch.nonzero(sets == each).flatten().to(truth.device)
        own = torch.nonzero(class_sets == each).flatten()
        # 2. Cross-entropy over the cells that are known, (B', n, V).
        index = cells[fields] - own[0]
        is_known = cells[fields] != UNKNOWN
        chances = logits_of(fields, own).flatten(2).float().log_softmax(1)
        cross = -chances.gather(1, index.clamp_min(0)[:, None])[:, 0] * is_known
        cross = cross.sum(1) / is_known.sum(1)
        # 3. Dice of the structures that are there, (B', n - 1).
        p = chances[:, 1:].exp() * is_known[:, None]
        place = torch.arange(1, len(own), device=truth.device)[:, None]
        share = ((index[:, None] == place) & is_known[:, None]).float()
        overlap = (2 * (p * share).sum(2) + 1) / ((p + share).sum(2) + 1)
        shown = share.sum(2) > FEWEST_CELLS
        count = shown.sum(1)
        dice = (overlap * shown).sum(1) / count.clamp_min(1)
        losses.append(cross + (1 - dice) * (count > 0))
        dices.append(dice.detach()[count > 0])
    zero = torch.zeros((), device=truth.device)
    return (
        torch.cat(losses).mean() if losses else zero,
        torch.cat(dices).mean() if any(map(len, dices)) else zero,
        zero + sum(map(len, losses)),
    )


def cells_of(labels: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Labels (B, D, H, W) at the middle of each cell of a coarser grid, (B, d h w) long."""
    coarse = F.interpolate(labels[:, None].float(), shape, mode="nearest-exact")
    return coarse.flatten(1).long()


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
    cells = cells_of(regions, tuple(vectors.shape[2:]))
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
