"""Patch merging of Swin UNETR, with the corner orders of MONAI now and before 2025.

MONAI before 2025 read the corners 010 and 001 twice, and 110 and 011 never. The bug was kept for a
time for compatibility with trained weights. Weights trained with one order give wrong results in
the other, although every name and shape is the same.

Trained weights show their order: before 2025, two pairs of the eight channel groups had identical
inputs. Their columns of the reduction get the same gradients, so training adds the same to their
initial noise. In the current order, these two pairs are only as similar as others of their kind:
neighbours along h (3 and 6) and opposite corners (2 and 5).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.networks.monai import PatchMerging, PatchMergingV2

Merging = Literal["current", "before_2025"]
MERGINGS: tuple[Merging, ...] = get_args(Merging)

Corner = tuple[int, int, int]
# Offsets (d, h, w) of the eight groups of channels, in order.
CORNERS_BEFORE_2025: tuple[Corner, ...] = (
    (0, 0, 0),
    (1, 0, 0),
    (0, 1, 0),
    (0, 0, 1),
    (1, 0, 1),
    (0, 1, 0),  # again
    (0, 0, 1),  # again
    (1, 1, 1),
)
SUFFIX = "downsample.reduction.weight"
CORNERS = 8
Pair = tuple[int, int]
PAIRS: tuple[Pair, ...] = tuple(combinations(range(CORNERS), 2))
TWICE = tuple(p for p in PAIRS if CORNERS_BEFORE_2025[p[0]] == CORNERS_BEFORE_2025[p[1]])
# In the current order: the other neighbours along h, and the other opposite corners.
LIKE_TWICE: tuple[Pair, ...] = ((0, 2), (1, 4), (5, 7), (0, 7), (1, 6), (3, 4))
# Standard deviation of the gap between means of two and of six cosines, in units of a cosine's.
GAP_NOISE = (1 / len(TWICE) + 1 / len(LIKE_TWICE)) ** 0.5
CERTAIN, NONE = 5.0, 3.0  # in units of that: certainly a gap, and no gap
# In units of a cosine's noise. For untrained weights, the smaller of two cosines is 2.6 +- 0.8
# below the largest of the other 26, and the mean of all is about 0.
BELOW, LEARNED = 6.0, 16.0


class PatchMergingBefore2025(PatchMergingV2):
    """Patch merging that reads the corners 010 and 001 twice, and 110 and 011 never.

    2D images were not affected and are merged as today.

    Source:
        MONAI before its pull request 8285 (2025). Issues 4757 and 7324 report the bug; pull request
        5106 kept it for existing weights.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map a grid (B, d, h, w, C), or (B, h, w, C), to one of half the size and 2C channels."""
        if x.ndim == 4:
            image: Tensor = super().forward(x)
            return image
        _, d, h, w, _ = x.shape
        x = F.pad(x, (0, 0, 0, w % 2, 0, h % 2, 0, d % 2))
        corners = [x[:, i::2, j::2, k::2] for i, j, k in CORNERS_BEFORE_2025]
        merged: Tensor = self.reduction(self.norm(torch.cat(corners, dim=-1)))
        return merged


def merging_layer(merging: str) -> type[PatchMergingV2]:
    """Return the merging layer of an order.

    Raises:
        ValueError: If the order is unknown.
    """
    if merging not in MERGINGS:
        raise ValueError(f"merging must be {' or '.join(MERGINGS)}, got {merging!r}")
    return PatchMerging if merging == "current" else PatchMergingBefore2025


@dataclass(frozen=True)
class MergingEvidence:
    """Similarity of the merging layers' columns, as mean cosines.

    Attributes:
        twice: The smaller cosine of the two pairs that the old order reads twice.
        gap: Mean of these two pairs minus the mean of the other pairs of their kind.
        alike: Mean of all other pairs: what training added to all of them in common.
        noise: Standard deviation of a cosine in an untrained network.
    """

    twice: float
    others: float
    gap: float
    alike: float
    noise: float

    @property
    def verdict(self) -> Merging | None:
        """The detected order; None if the network was trained too little to tell.

        The old order if the two pairs are significantly the most similar of all. The current order
        if another pair clearly is, or if much was learned and the two pairs do not stand out.
        """
        if self.gap > CERTAIN * GAP_NOISE * self.noise and self.twice > self.others:
            return "before_2025"
        stands_out = self.gap > NONE * GAP_NOISE * self.noise
        if self.twice < self.others - BELOW * self.noise:
            return "current"
        return "current" if not stands_out and self.alike > LEARNED * self.noise else None


def merging_evidence(state: Mapping[str, Tensor]) -> MergingEvidence:
    """Compare the columns of all merging layers, weighted by their number of entries.

    Args:
        state: Weights of a 3D network; those used have names ending in `SUFFIX` and shape (2C, 8C).

    Raises:
        ValueError: If there are no such weights.
    """
    weights = [v.double() for k, v in state.items() if k.endswith(SUFFIX)]
    if not weights or any(w.ndim != 2 or w.shape[1] % CORNERS for w in weights):
        raise ValueError("there are no mergings of eight corners among these weights")
    entries = torch.tensor([w.numel() / CORNERS for w in weights], dtype=torch.float64)
    share = entries / entries.sum()
    cosines = torch.einsum("m,mij->ij", share, torch.stack([_cosines(w) for w in weights]))
    found = {pair: float(cosines[pair]) for pair in PAIRS}
    others = [pair for pair in PAIRS if pair not in TWICE]
    return MergingEvidence(
        twice=min(found[pair] for pair in TWICE),
        others=max(found[pair] for pair in others),
        gap=_mean(found, TWICE) - _mean(found, LIKE_TWICE),
        alike=_mean(found, others),
        noise=float(entries.sum()) ** -0.5,
    )


def _cosines(weight: Tensor) -> Tensor:
    """Return the cosines of all pairs of column groups, (8, 8), of a weight (2C, 8C)."""
    groups = weight.reshape(len(weight), CORNERS, -1).transpose(0, 1).flatten(1)
    unit = torch.nn.functional.normalize(groups, dim=1)
    return unit @ unit.T


def _mean(cosines: Mapping[Pair, float], pairs: Sequence[Pair]) -> float:
    return sum(cosines[pair] for pair in pairs) / len(pairs)
