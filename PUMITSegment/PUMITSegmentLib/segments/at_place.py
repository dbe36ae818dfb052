"""Segments at a position, and the position of a segment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import slicer
from PUMITSlicerLib.labelmap_grid import imageGrid
from PUMITSlicerLib.mrml import orientedImageArray, transformBetween

from PUMITSegmentLib.segments.editable_area import visibleSegmentIDs
from PUMITSegmentLib.segments.occupied import BINARY_LABELMAP

Point = Sequence[float]


def segmentsAt(segmentationNode, ras: Point) -> list[str]:
    """Return the visible segments at a position, world RAS mm, smallest first.

    Where segments overlap, the smallest is the likely target, such as a tumour in its organ.
    """
    toSegmentation = transformBetween(None, segmentationNode.GetParentTransformNode())
    local = toSegmentation.TransformPoint(ras)
    found = []
    for segmentID in visibleSegmentIDs(segmentationNode):
        segment = segmentationNode.GetSegmentation().GetSegment(segmentID)
        image = segment.GetRepresentation(BINARY_LABELMAP)
        if image is None or image.GetPointData().GetScalars() is None:
            continue
        ijk = np.linalg.inv(imageGrid(image)) @ [*local, 1.0]
        extent = np.reshape(image.GetExtent(), (3, 2))
        i, j, k = index = np.rint(ijk[:3]).astype(int) - extent[:, 0]
        if ((index < 0) | (index > extent[:, 1] - extent[:, 0])).any():
            continue
        array = orientedImageArray(image)
        if array[k, j, i] == segment.GetLabelValue():
            found.append((int(np.count_nonzero(array == segment.GetLabelValue())), segmentID))
    return [segmentID for _size, segmentID in sorted(found)]


def showSegment(segmentationNode, segmentID: str) -> bool:
    """Centre all slice views on a segment; return False if it is empty."""
    middle = segmentationNode.GetSegmentCenterRAS(segmentID)
    if middle is None or not np.isfinite(middle).all():
        return False
    for sliceNode in slicer.util.getNodesByClass("vtkMRMLSliceNode"):
        sliceNode.JumpSliceByCentering(*middle)
    return True
