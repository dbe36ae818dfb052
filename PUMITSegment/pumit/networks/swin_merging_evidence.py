"""Tell from trained weights in which order Swin UNETR's patches were merged.

Both orders have the same names and shapes. But in the order of before 2025 two pairs of the eight
groups of channels see the very same input (see `swin_merging`): their columns of the reduction get
the same gradients, and what training adds to their initial noise is the same. Where all eight
corners are read these two pairs are as alike as others of their kind: neighbours along h (3 and 6)
and opposite corners (2 and 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from pumit.networks.swin_merging import CORNERS_BEFORE_2025, Merging

SUFFIX = "downsample.reduction.weight"
CORNERS = 8
Pair = tuple[int, int]
PAIRS: tuple[Pair, ...] = tuple(combinations(range(CORNERS), 2))
TWICE = tuple(p for p in PAIRS if CORNERS_BEFORE_2025[p[0]] == CORNERS_BEFORE_2025[p[1]])
# Of today's corners: the other neighbours along h, and the other opposite ones.
LIKE_TWICE: tuple[Pair, ...] = ((0, 2), (1, 4), (5, 7), (0, 7), (1, 6), (3, 4))
# Of the gap between a mean of two cosines and one of six, times the noise of a cosine.
GAP_NOISE = (1 / len(TWICE) + 1 / len(LIKE_TWICE)) ** 0.5
CERTAIN, NONE = 5.0, 3.0  # times that: a gap, and no gap
# Times the noise of a cosine. Of initial noise the smaller of two cosines lies about 2.6 below the
# largest of the other 26, give or take 0.8; and the mean of all is about 0.
BELOW, LEARNED = 6.0, 16.0


@dataclass(frozen=True)
class MergingEvidence:
    """How alike the columns of the mergings are, as mean cosines.

    Attributes:
        twice: The smaller of the two pairs that the old order reads twice.
        others: The largest of all other pairs.
        gap: Excess of the mean of these two over that of the other pairs of their kind.
        alike: The mean of all other pairs: how much was learned that they have in common.
        noise: Standard deviation of a cosine in a network that has learned nothing.
    """

    twice: float
    others: float
    gap: float
    alike: float
    noise: float

    @property
    def verdict(self) -> Merging | None:
        """The order, or None where too little was learned to tell.

        The old one where the two pairs are the most alike of all, by more than chance; the current
        one where another pair clearly is, or where much was learned and the two do not stand out.
        """
        if self.gap > CERTAIN * GAP_NOISE * self.noise and self.twice > self.others:
            return "before_2025"
        stands_out = self.gap > NONE * GAP_NOISE * self.noise
        if self.twice < self.others - BELOW * self.noise:
            return "current"
        return "current" if not stands_out and self.alike > LEARNED * self.noise else None


def merging_evidence(state: Mapping[str, Tensor]) -> MergingEvidence:
    """Compare the columns of every merging; each weighs as much as it has entries.

    Args:
        state: Weights of a volume's network, names ending in `SUFFIX`, shapes (2C, 8C).

    Raises:
        ValueError: If there is none.
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
    """Of all pairs of groups of columns (8, 8), of a weight (2C, 8C)."""
    groups = weight.reshape(len(weight), CORNERS, -1).transpose(0, 1).flatten(1)
    unit = torch.nn.functional.normalize(groups, dim=1)
    return unit @ unit.T


def _mean(cosines: Mapping[Pair, float], pairs: Sequence[Pair]) -> float:
    return sum(cosines[pair] for pair in pairs) / len(pairs)
