"""Patch merging of Swin UNETR, with the corner orders of MONAI now and before 2025.

MONAI before 2025 read the corners 010 and 001 twice, and 110 and 011 never. The bug was kept for a
time for compatibility with trained weights. Weights trained with one order give wrong results in
the other, although every name and shape is the same.
"""

from __future__ import annotations

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
