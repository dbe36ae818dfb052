"""Tell from trained weights in which order Swin UNETR's patches were merged.

Both orders have the same names and shapes. But in the order of before 2025 two pairs of the eight
groups of channels see the very same input (see `swin_merging`): their columns of the reduction get
the same gradients, and what training adds to their initial noise is the same. Where all eight
corners are read, no pair is as alike as that, and of these two pairs one lies at opposite corners.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from pumit.networks.swin_merging import CORNERS_BEFORE_2025, Merging

SUFFIX = "downsample.reduction.weight"
CORNERS = 8
TWICE = tuple(
    pair
    for pair in combinations(range(CORNERS), 2)
    if CORNERS_BEFORE_2025[pair[0]] == CORNERS_BEFORE_2025[pair[1]]
)
# In standard deviations of the cosines of initial noise. There the smaller of two cosines lies
# about 2.6 below the largest of the other 26, give or take 0.8.
ABOVE, BELOW = 2.0, 6.0
VISIBLE = 8.0  # what would be seen if it were so
UNIFORM, NORMAL = 1.8, 3.0  # kurtosis


@dataclass(frozen=True)
class MergingEvidence:
    """How alike the columns of the mergings are.

    Attributes:
        twice: The smaller of the mean cosines of the two pairs that the old order reads twice.
        others: The largest mean cosine of any other pair.
        learned: Share of the weights' variance that is learned, not initial noise: what `twice`
            is to be expected as in the old order.
        noise: Standard deviation of these cosines in a network that has learned nothing.
    """

    twice: float
    others: float
    learned: float
    noise: float

    @property
    def verdict(self) -> Merging | None:
        """The order, or None where too little was learned to tell.

        It is the current one where other pairs are more alike, or where the two are not, although
        enough was learned to make them so.
        """
        excess = self.twice - self.others
        if excess > ABOVE * self.noise:
            return "before_2025"
        would_show = self.learned - self.others > VISIBLE * self.noise
        if excess < -BELOW * self.noise or (excess < 0 and would_show):
            return "current"
        return None


def merging_evidence(state: Mapping[str, Tensor]) -> MergingEvidence:
    """Compare the columns of every merging; each weighs as much as it has entries.

    What was learned is told by the kurtosis: initial weights are uniform, and their sum with
    changes that are about normal is the nearer to a normal distribution the larger these are.
    Weight decay, which shrinks the noise, does not change its shape.

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
    kurtosis = float(share @ torch.stack([_kurtosis(w) for w in weights]))
    pairs = {pair: float(cosines[pair]) for pair in combinations(range(CORNERS), 2)}
    return MergingEvidence(
        twice=min(pairs[pair] for pair in TWICE),
        others=max(cosine for pair, cosine in pairs.items() if pair not in TWICE),
        learned=_learned(kurtosis),
        noise=float(entries.sum()) ** -0.5,
    )


def _cosines(weight: Tensor) -> Tensor:
    """Of all pairs of groups of columns (8, 8), of a weight (2C, 8C)."""
    groups = weight.reshape(len(weight), CORNERS, -1).transpose(0, 1).flatten(1)
    unit = torch.nn.functional.normalize(groups, dim=1)
    return unit @ unit.T


def _kurtosis(weight: Tensor) -> Tensor:
    centred = weight - weight.mean()
    return centred.pow(4).mean() / centred.square().mean().square().clamp_min(1e-30)


def _learned(kurtosis: float) -> float:
    """Share f of a normal part: kurtosis = UNIFORM (1 - f)^2 + 6 f (1 - f) + NORMAL f^2."""
    left = (NORMAL - min(max(kurtosis, UNIFORM), NORMAL)) / (NORMAL - UNIFORM)
    return 1.0 - math.sqrt(left)
