"""Union of segments on a box of their segmentation's grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from pumit.geometry import Array, Floats
from pumit.segmentation import Mask
from PUMITSlicerLib.labelmap_grid import Box, GridMap, imageGrid, sampled

BINARY_LABELMAP = "Binary labelmap"


def occupied(segmentation, segmentIDs: Iterable[str], box: Box, grid: Floats) -> Mask:
    """Return where any of the segments has a voxel.

    Args:
        segmentIDs: Segments of it; missing ones are ignored.
        grid: The box's grid, from (i, j, k) to the segmentation's RAS.

    Returns:
        bool, of the shape of `box`.
    """
    result = np.zeros(box.shape, dtype=bool)
    for labels, part, values in _layers(segmentation, segmentIDs, box, grid):
        result[part] |= _areAmong(values, list(labels))
    return result


def occupants(
    segmentation, segmentIDs: Iterable[str], box: Box, grid: Floats, voxels: Mask
) -> set[str]:
    """Return those of the segments that have any of these voxels, (D, H, W) of `box`."""
    found: set[str] = set()
    for labels, part, values in _layers(segmentation, segmentIDs, box, grid):
        found |= {labels[value] for value in np.unique(values[voxels[part]]) if value in labels}
    return found


def _layers(
    segmentation, segmentIDs: Iterable[str], box: Box, grid: Floats
) -> Iterator[tuple[dict[int, str], tuple[slice, ...], Array]]:
    """Yield for each label map the segments by label, its part of the box, and its values there."""
    layers: dict[object, dict[int, str]] = {}
    for segmentID in segmentIDs:
        segment = segmentation.GetSegment(segmentID)
        image = segment.GetRepresentation(BINARY_LABELMAP) if segment is not None else None
        if image is not None:
            layers.setdefault(image, {})[segment.GetLabelValue()] = segmentID
    for image, labels in layers.items():
        # Both under the segmentation's own parent transform.
        reach = GridMap(imageGrid(image), grid, None, None).covering(Box.ofImage(image)).cut(box)
        if not reach.isEmpty:
            values = sampled(image, reach, GridMap(grid, imageGrid(image), None, None))
            yield labels, reach.within(box), values


def _areAmong(values: Array, labels: list[int]) -> Mask:
    if len(labels) == 1:
        return values == labels[0]
    if values.dtype != np.uint8:
        return np.isin(values, labels)
    table = np.zeros(256, dtype=bool)
    table[labels] = True
    return table[values]
