"""How large segments are, counted again only where voxels changed."""

from __future__ import annotations

import numpy as np
from PUMITSlicerLib.labelmap_grid import imageGrid
from PUMITSlicerLib.mrml import orientedImageArray

from PUMITSegmentLib.segments.occupied import BINARY_LABELMAP

_MM3_PER_ML = 1000.0


class SegmentVolumes:
    """Volumes of segments in mL, from their voxels."""

    def __init__(self) -> None:
        self._cache: dict[tuple[int, int, int], float] = {}

    def of(self, segmentationNode) -> dict[str, float]:
        """Volumes by segment ID, mL; a segment without voxels of its own kind has 0."""
        if segmentationNode is None:
            return {}
        segmentation = segmentationNode.GetSegmentation()
        volumes, cache = {}, {}
        for segmentID in segmentation.GetSegmentIDs():
            segment = segmentation.GetSegment(segmentID)
            image = segment.GetRepresentation(BINARY_LABELMAP)
            if image is None:
                volumes[segmentID] = 0.0
                continue
            scalars = image.GetPointData().GetScalars()
            label = segment.GetLabelValue()
            changed = scalars.GetMTime() if scalars is not None else 0
            key = (hash(image), max(changed, image.GetMTime()), label)
            volume_ml = self._cache.get(key)
            cache[key] = _volume(image, label) if volume_ml is None else volume_ml
            volumes[segmentID] = cache[key]
        self._cache = cache
        return volumes


def volumeInWords(volume_ml: float) -> str:
    """A volume as one writes it down, such as "3.4 mL"."""
    if volume_ml == 0:
        return "0 mL"
    if volume_ml < 0.1:
        return f"{volume_ml:.3f} mL"
    return f"{volume_ml:.1f} mL" if volume_ml < 100 else f"{volume_ml:,.0f} mL"


def _volume(image, label: int) -> float:
    if min(image.GetDimensions()) <= 0 or image.GetPointData().GetScalars() is None:
        return 0.0
    count = np.count_nonzero(orientedImageArray(image) == label)
    return float(count * abs(np.linalg.det(imageGrid(image)[:3, :3])) / _MM3_PER_ML)
