"""Boxes outside: their voxels are in no mask of the segment, for certain.

A model has no say in it. What an "outside" in the middle of a box does to the rest of a mask cannot
be foreseen; to take the voxels out changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PUMITSlicerLib.mrml import VolumeFrame

from PUMITSegmentLib.prompts.geometry import boxCornersWorld, isFinished
from PUMITSegmentLib.prompts.kinds import BOXES
from PUMITSegmentLib.prompts.tag import PromptTag, promptNodesOf, tagOf

Mask = npt.NDArray[np.bool_]
# The same centre of a voxel may be computed a little off.
_SLACK = 1e-6


def isExcluding(tag: PromptTag) -> bool:
    """Whether a prompt is a box outside."""
    return tag.kind in BOXES and not tag.isPositive


@dataclass(frozen=True)
class ExcludedBox:
    """An oriented box on a scan's grid.

    Attributes:
        center: Centre, index (d, h, w).
        edges: (3, 3), its edges as rows, in voxels along (d, h, w).
    """

    center: npt.NDArray[np.float64]
    edges: npt.NDArray[np.float64]

    def holds(self, index: npt.ArrayLike) -> Mask:
        """Whether places, indices (N, 3) in (d, h, w), lie in the box; bool (N,)."""
        place = (np.reshape(index, (-1, 3)) - self.center) @ np.linalg.inv(self.edges)
        return np.all(np.abs(place) <= 0.5 + _SLACK, axis=1)

    def eraseIn(self, mask: Mask) -> None:
        """Take the voxels of the box out of a mask, (D, H, W)."""
        reach = np.abs(self.edges).sum(axis=0) / 2 + _SLACK
        low = np.clip(np.ceil(self.center - reach), 0, mask.shape).astype(int)
        high = np.clip(np.floor(self.center + reach) + 1, 0, mask.shape).astype(int)
        toBox = np.linalg.inv(self.edges)
        d, h, w = (np.arange(a, b) - c for a, b, c in zip(low, high, self.center, strict=True))
        rows = h[:, None, None] * toBox[1] + w[None, :, None] * toBox[2]  # (H, W, 3)
        for slice_, depth in zip(range(low[0], high[0]), d, strict=True):  # little memory
            isIn = (np.abs(rows + depth * toBox[0]) <= 0.5 + _SLACK).all(axis=2)
            mask[slice_, low[1] : high[1], low[2] : high[2]][isIn] = False


def excludedBox(roiNode, volumeNode) -> ExcludedBox:
    """Return a region of interest on a scan's grid, at least one voxel thick."""
    corners = VolumeFrame(volumeNode).worldToIndex(boxCornersWorld(roiNode, isFlat=False))
    edges = corners[[4, 2, 1]] - corners[0]
    for axis, edge in enumerate(edges):
        length = float(np.linalg.norm(edge))
        if length < 1.0:
            across = np.cross(*np.delete(edges, axis, axis=0)) if length < _SLACK else edge
            edges[axis] = across / np.linalg.norm(across)
    return ExcludedBox(corners.mean(axis=0), edges)


def excludedBoxes(segmentationNode, segmentID: str, volumeNode) -> list[ExcludedBox]:
    """All boxes outside of a segment, on a scan's grid."""
    tagged = [(n, tagOf(n, segmentationNode)) for n in promptNodesOf(segmentationNode, segmentID)]
    return [
        excludedBox(node, volumeNode)
        for node, tag in tagged
        if isExcluding(tag) and isFinished(node, tag)
    ]


def withoutBoxes(mask: Mask, boxes: Iterable[ExcludedBox]) -> Mask:
    """Return a mask, (D, H, W), without the voxels of boxes; the same one where there is no box."""
    for i, box in enumerate(boxes):
        if i == 0:
            mask = mask.copy()
        box.eraseIn(mask)
    return mask
