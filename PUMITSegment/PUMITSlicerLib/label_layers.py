"""Copies of segments as Slicer stores them, and their masks on a volume's grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import slicer
from pumit.geometry import Array
from pumit.segmentation import Mask

from PUMITSlicerLib.labelmap_grid import Box, GridMap, imageGrid, sampled
from PUMITSlicerLib.mrml import ijkToRas, orientedImageArray

BINARY_LABELMAP = "Binary labelmap"


@dataclass(frozen=True, eq=False)
class LabelLayer:
    """Label map of a segmentation; several segments that do not overlap may share it.

    Attributes:
        image: Copy that is in no scene, so any thread may use it; without any parent transform.
        box: Box on the volume's grid that covers it; empty without a volume.
        gridMap: Map from the volume's grid to the image's; None without a volume.
        bent: Labels on `box`, if a non-linear transform is between the two.
    """

    image: object
    box: Box
    gridMap: GridMap | None = None
    bent: Array | None = None

    def labelsOnVolume(self) -> Array:
        """Return the labels on `box` of the volume's grid, nearest neighbour; needs no scene."""
        if self.bent is not None or self.gridMap is None:
            return np.zeros((0, 0, 0), np.uint8) if self.bent is None else self.bent
        return sampled(self.image, self.box, self.gridMap)


@dataclass(frozen=True, eq=False)
class CopiedSegment:
    """Segment, copied out of the scene.

    Attributes:
        segment: A vtkSegment that is in no scene: name, colour and all tags, without voxels.
        layer: Label map that contains it.
        label: Label in that label map.
    """

    segmentID: str
    segment: Any
    layer: LabelLayer
    label: int


def copySegments(segmentationNode, segmentIDs: list[str], volumeNode) -> tuple[CopiedSegment, ...]:
    """Copy segments; those that share a label map also share a layer; main thread only.

    Args:
        volumeNode: Volume whose grid is the target, with its parent transforms; or None.
    """
    segmentation = segmentationNode.GetSegmentation()
    if not segmentation.ContainsRepresentation(BINARY_LABELMAP):
        segmentation.CreateRepresentation(BINARY_LABELMAP)
    layers: dict[object, LabelLayer] = {}
    found = []
    for segmentID in segmentIDs:
        segment = segmentation.GetSegment(segmentID)
        image = segment.GetRepresentation(BINARY_LABELMAP)
        if image not in layers:
            layers[image] = _copied(segmentationNode, image, volumeNode)
        copy = slicer.vtkSegment()
        copy.DeepCopyMetadata(segment)
        found.append(CopiedSegment(segmentID, copy, layers[image], segment.GetLabelValue()))
    return tuple(found)


def _copied(segmentationNode, image, volumeNode) -> LabelLayer:
    nowhere = Box((0, 0, 0), (0, 0, 0))
    copy = slicer.vtkOrientedImageData()
    if image is None or Box.ofImage(image).isEmpty:
        return LabelLayer(copy, nowhere)
    copy.DeepCopy(image)
    if volumeNode is None:
        return LabelLayer(copy, nowhere)
    grids = (ijkToRas(volumeNode), imageGrid(image))
    parents = (volumeNode.GetParentTransformNode(), segmentationNode.GetParentTransformNode())
    reach = GridMap(*grids[::-1], *parents[::-1]).covering(Box.ofImage(image))
    box = reach.cut(Box.ofImage(volumeNode.GetImageData()))
    gridMap = GridMap(*grids, *parents)
    # A non-linear transform belongs to the scene, so it is used on this thread.
    bent = sampled(copy, box, gridMap) if gridMap.matrix is None else None
    return LabelLayer(copy, box, gridMap, bent)


def maskOnVolume(labels: Array, box: Box, label: int, shape: tuple[int, int, int]) -> Mask:
    """Return one segment of `LabelLayer.labelsOnVolume` as a mask."""
    mask = np.zeros(shape, dtype=bool)
    if not box.isEmpty:
        mask[box.within(Box((0, 0, 0), shape))] = labels == label
    return mask


def isEmptySegment(segmentationNode, segmentID: str) -> bool:
    """Return whether a segment has no voxel; stops at the first slice that has one."""
    segment = segmentationNode.GetSegmentation().GetSegment(segmentID)
    if segment is None:  # it is being removed
        return True
    image = segment.GetRepresentation(BINARY_LABELMAP)
    if image is None:
        # Only a surface so far, or nothing at all.
        bounds = [0.0] * 6
        segment.GetBounds(bounds)
        return bounds[0] > bounds[1]
    label = segment.GetLabelValue()
    return not any((part == label).any() for part in orientedImageArray(image))
