"""Negative boxes, which remove their voxels from the segment's mask exactly.

They are not given to the model: how a negative prompt inside a box changes the rest of a mask is
unpredictable, while removing voxels changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PUMITSlicerLib.mrml import VolumeFrame

from PUMITSegmentLib.prompts.geometry import boxCornersWorld
from PUMITSegmentLib.prompts.kinds import BOXES
from PUMITSegmentLib.prompts.tag import PromptTag

Mask = npt.NDArray[np.bool_]
# Tolerance for rounding of voxel centres.
_SLACK = 1e-6


def isExcluding(tag: PromptTag) -> bool:
    """Return whether a prompt is a negative box."""
    return tag.kind in BOXES and not tag.isPositive


@dataclass(frozen=True)
class ExcludedBox:
    """Oriented box on a scan's grid.

    Attributes:
        center: Centre, index (d, h, w).
        edges: (3, 3), its edges as rows, in voxels along (d, h, w).
    """

    center: npt.NDArray[np.float64]
    edges: npt.NDArray[np.float64]

    def holds(self, index: npt.ArrayLike) -> Mask:
        """Return whether indices (N, 3) in (d, h, w) are in the box; bool (N,)."""
        place = (np.reshape(index, (-1, 3)) - self.center) @ np.linalg.inv(self.edges)
        return np.all(np.abs(place) <= 0.5 + _SLACK, axis=1)

    def eraseIn(self, mask: Mask) -> None:
        """Remove the voxels of the box from a mask, (D, H, W), in place."""
        reach = np.abs(self.edges).sum(axis=0) / 2 + _SLACK
        low = np.clip(np.ceil(self.center - reach), 0, mask.shape).astype(int)
        high = np.clip(np.floor(self.center + reach) + 1, 0, mask.shape).astype(int)
        toBox = np.linalg.inv(self.edges)
        d, h, w = (np.arange(a, b) - c for a, b, c in zip(low, high, self.center, strict=True))
        rows = h[:, None, None] * toBox[1] + w[None, :, None] * toBox[2]  # (H, W, 3)
        for slice_, depth in zip(range(low[0], high[0]), d, strict=True):  # saves memory
            isIn = (np.abs(rows + depth * toBox[0]) <= 0.5 + _SLACK).all(axis=2)
            mask[slice_, low[1] : high[1], low[2] : high[2]][isIn] = False


def excludedBox(roiNode, volumeNode) -> ExcludedBox:
    """Return a region of interest as a box on a scan's grid, at least one voxel thick."""
    corners = VolumeFrame(volumeNode).worldToIndex(boxCornersWorld(roiNode, isFlat=False))
    edges = corners[[4, 2, 1]] - corners[0]
    for axis, edge in enumerate(edges):
        length = float(np.linalg.norm(edge))
        if length < 1.0:
            across = np.cross(*np.delete(edges, axis, axis=0)) if length < _SLACK else edge
            edges[axis] = across / np.linalg.norm(across)
    return ExcludedBox(corners.mean(axis=0), edges)


def withoutBoxes(mask: Mask, boxes: Iterable[ExcludedBox]) -> Mask:
    """Return a copy of a mask, (D, H, W), without the boxes; the mask itself if there are none."""
    for i, box in enumerate(boxes):
        if i == 0:
            mask = mask.copy()
        box.eraseIn(mask)
    return mask
