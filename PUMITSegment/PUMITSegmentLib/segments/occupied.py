"""Union of segments on a box of their segmentation's grid."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from pumit.geometry import Array, Floats
from pumit.segmentation import Mask
from PUMITSlicerLib.labelmap_grid import Box, GridMap, imageGrid, sampled

BINARY_LABELMAP = "Binary labelmap"


def occupied(segmentation, segmentIDs: Iterable[str], box: Box, grid: Floats) -> Mask:
    """Return where any of the segments has a voxel.

    Args:
        segmentation: A vtkSegmentation with binary label maps.
        segmentIDs: Segments of it; missing ones are ignored.
        grid: The box's grid, from (i, j, k) to the segmentation's RAS.

    Returns:
        bool, of the shape of `box`.
    """
    layers: dict[object, list[int]] = {}
    for segmentID in segmentIDs:
        segment = segmentation.GetSegment(segmentID)
        image = segment.GetRepresentation(BINARY_LABELMAP) if segment is not None else None
        if image is not None:
            layers.setdefault(image, []).append(segment.GetLabelValue())
    result = np.zeros(box.shape, dtype=bool)
    for image, labels in layers.items():
        # Both under the segmentation's own parent transform.
        reach = GridMap(imageGrid(image), grid, None, None).covering(Box.ofImage(image)).cut(box)
        if not reach.isEmpty:
            values = sampled(image, reach, GridMap(grid, imageGrid(image), None, None))
            result[reach.within(box)] |= _areAmong(values, labels)
    return result


def _areAmong(values: Array, labels: list[int]) -> Mask:
    if len(labels) == 1:
        return values == labels[0]
    if values.dtype != np.uint8:
        return np.isin(values, labels)
    table = np.zeros(256, dtype=bool)
    table[labels] = True
    return table[values]
