"""Losses of the voxel classes, which need no prompt."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.training.synthesis.scene import UNKNOWN

# Example voxels per field, voxels classified by them, and the scale of the cosine similarities.
EXAMPLES, ASKED, SCALE = 96, 384, 12.0
FEWEST_CELLS = 2.0  # a class counts for Dice with more cells than this in the field


def class_loss(
    logits_of: Callable[[Tensor, Tensor], Tensor],
    truth: Tensor,
    class_sets: Tensor,
    shape: tuple[int, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute cross-entropy plus soft Dice over the classes of each field's own data set.

    The background of one data set may contain named classes of another. The softmax therefore
    runs over the classes of one data set, including its background.

    Args:
        logits_of: Function of field indices (B',) and classes (n,) that returns their logits,
            (B', n, d, h, w).
        truth: Class of each voxel, (B, D, H, W), `UNKNOWN` where not annotated.
        class_sets: Data set of each class, (N,); the first class of each is its background.
        shape: Grid (d, h, w) of the logits.

    Returns:
        Mean loss of the fields that have classes, mean soft Dice of the structures visible in
        each, and the number of fields that have classes.
    """
    # 1. Class at the centre of each cell, and the data set of each field from any of its classes.
    cells = cells_of(truth, shape)  # (B, V)
    known = (cells != UNKNOWN).any(1)
    sets = class_sets[cells.amax(1).clamp_min(0)].where(known, -1).cpu()
    losses, dices = [], []
    for each in sorted(set(sets[sets >= 0].tolist())):
        fields = torch.nonzero(sets == each).flatten().to(truth.device)
        own = torch.nonzero(class_sets == each).flatten()
        # 2. Cross-entropy over the cells with a known class; log-probabilities are (B', n, V).
        index = cells[fields] - own[0]
        is_known = cells[fields] != UNKNOWN
        chances = logits_of(fields, own).flatten(2).float().log_softmax(1)
        cross = -chances.gather(1, index.clamp_min(0)[:, None])[:, 0] * is_known
        cross = cross.sum(1) / is_known.sum(1)
        # 3. Dice of the structures present, (B', n - 1).
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
    """Sample labels (B, D, H, W) at the cell centres of a coarser grid, (B, d h w), int64."""
    coarse = F.interpolate(labels[:, None].float(), shape, mode="nearest-exact")
    return coarse.flatten(1).long()


def region_loss(vectors: Tensor, regions: Tensor) -> Tensor:
    """Compute a loss that separates the class vectors of the regions of a field.

    A click finds a structure by the similarity of its voxels to the clicked one, even if the
    structure has no class. The loss therefore classifies voxels by their similarity to example
    voxels of known region, drawn equally often from small and large regions.

    Args:
        vectors: Class vectors of unit length, (B, E, d, h, w).
        regions: Region of each voxel within its field, (B, D, H, W), `UNKNOWN` where not known.

    Source:
        Goldberger et al., Neighbourhood components analysis, 2004, with scaled cosine similarity;
        Snell et al., Prototypical networks, 2017: few examples of unseen classes.
    """
    # 1. Region at the centre of each cell, (B, N).
    cells = cells_of(regions, tuple(vectors.shape[2:]))
    known = cells != UNKNOWN
    chosen = known.any(1)
    if not bool(chosen.any()):
        return vectors.new_zeros(())
    cells, known, x = cells[chosen], known[chosen], vectors[chosen].flatten(2).float()
    # 2. Examples (B, M) and voxels to classify (B, P), with small regions over-sampled.
    count = torch.zeros(len(cells), int(cells.max()) + 2, device=cells.device)
    count.scatter_add_(1, cells + 1, known.float())
    weight = known / count.gather(1, cells + 1).clamp_min(1)
    examples = weight.multinomial(EXAMPLES, replacement=True)
    asked = weight.sqrt().multinomial(ASKED, replacement=True)
    # 3. Similarity (B, P, M), which should be highest to examples of the same region.
    of_examples, of_asked = (
        x.gather(2, index[:, None].expand(-1, x.shape[1], -1)) for index in (examples, asked)
    )
    likeness = SCALE * torch.einsum("bep,bem->bpm", of_asked, of_examples)
    own = cells.gather(1, asked)[..., None] == cells.gather(1, examples)[:, None]
    has_own = own.any(-1)
    right = likeness.masked_fill(~own, -torch.inf).logsumexp(-1)
    loss = likeness.logsumexp(-1) - torch.where(has_own, right, 0)
    return (loss * has_own).sum() / has_own.sum().clamp_min(1)
