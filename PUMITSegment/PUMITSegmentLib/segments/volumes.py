"""Sizes of segments, recounted only where voxels changed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pumit.system.wording import SMALL, area_text, volume_text
from PUMITSlicerLib.labelmap_grid import Box, imageGrid
from PUMITSlicerLib.mrml import orientedImageArray

from PUMITSegmentLib.segments.occupied import BINARY_LABELMAP

_MM3_PER_ML, _MM2_PER_CM2 = 1000.0, 100.0
# Default of Slicer's readers for files without a pixel size.
_NO_PIXEL_SIZE = (1.0, 1.0)


@dataclass(frozen=True)
class Extent:
    """Size of a segment.

    Attributes:
        voxel_ml: Volume of a voxel, mL.
        digest: Short text that identifies the voxels; empty without any.
    """

    voxels: int
    voxel_ml: float
    digest: str = ""

    @property
    def ml(self) -> float:
        """Volume, mL."""
        return self.voxels * self.voxel_ml


class SegmentVolumes:
    """Volumes of segments, counted from their voxels."""

    def __init__(self) -> None:
        self._cache: dict[tuple[int, int], str] = {}

    def of(self, segmentationNode) -> dict[str, Extent]:
        """Return the extents by segment ID; changed segments are counted."""
        return self._extents(segmentationNode, isCounting=True)

    def known(self, segmentationNode) -> dict[str, Extent]:
        """Return the extents by segment ID, without segments that changed since the count."""
        return self._extents(segmentationNode, isCounting=False)

    def _extents(self, segmentationNode, *, isCounting: bool) -> dict[str, Extent]:
        if segmentationNode is None:
            return {}
        segmentation = segmentationNode.GetSegmentation()
        extents, cache = {}, {}
        for segmentID in segmentation.GetSegmentIDs():
            segment = segmentation.GetSegment(segmentID)
            image = segment.GetRepresentation(BINARY_LABELMAP)
            if image is None:
                extents[segmentID] = Extent(0, 0.0)
                continue
            scalars = image.GetPointData().GetScalars()
            changed = scalars.GetMTime() if scalars is not None else 0
            # VTK modification times are unique across objects.
            key = (max(changed, image.GetMTime()), segment.GetLabelValue())
            digest = self._cache.get(key)
            if digest is None and not isCounting:
                continue
            cache[key] = digest = digestOf(segment) if digest is None else digest
            voxel_ml = abs(np.linalg.det(imageGrid(image)[:3, :3])) / _MM3_PER_ML
            voxels = int(digest.partition("-")[0] or 0)
            extents[segmentID] = Extent(voxels, float(voxel_ml), digest)
        self._cache = cache
        return extents


def digestOf(segment) -> str:
    """Return count, extent and checksum of a segment's voxels on its own grid; "" without any.

    Other voxels of the image, which segments may share, are ignored.
    """
    image = segment.GetRepresentation(BINARY_LABELMAP)
    if image is None or min(image.GetDimensions()) <= 0:
        return ""
    if image.GetPointData().GetScalars() is None:
        return ""
    whole = Box.ofImage(image)
    voxels = orientedImageArray(image) == segment.GetLabelValue()
    box = Box.around(voxels, whole.start)
    if box.isEmpty:
        return ""
    voxels = voxels[box.within(whole)]
    pattern = zlib.crc32(np.packbits(voxels).data)
    places = ",".join(str(place) for place in (*box.start, *box.stop))
    return f"{np.count_nonzero(voxels)}-{places}-{pattern:08x}"


def sizeInWords(extent: Extent, volumeNode) -> str:
    """Format the size of a segment: "3.4 mL", or "12.6 cm²" for a 2D image.

    Args:
        volumeNode: Its scan, or None. The result is "" for an image of one slice without a
            pixel size, such as a photograph, which cannot be measured.
    """
    if volumeNode is None or volumeNode.GetImageData() is None:
        return volumeInWords(extent.ml)
    if volumeNode.GetImageData().GetDimensions()[2] > 1:
        return volumeInWords(extent.ml)
    *pixel_mm, slice_mm = volumeNode.GetSpacing()
    if tuple(pixel_mm) == _NO_PIXEL_SIZE:
        return ""
    return _inWords(extent.ml * _MM3_PER_ML / slice_mm / _MM2_PER_CM2, "cm²", area_text)


def volumeInWords(volume_ml: float) -> str:
    """Format a volume, such as "3.4 mL"."""
    return _inWords(volume_ml, "mL", volume_text)


def _inWords(size: float, unit: str, inSmallerUnit: Callable[[float], str]) -> str:
    if size == 0:
        return f"0 {unit}"
    if size < SMALL:  # a specimen, a retina, or a micrograph
        return inSmallerUnit(size)
    if size < 0.1:
        return f"{size:.3f} {unit}"
    return f"{size:.1f} {unit}" if size < 100 else f"{size:,.0f} {unit}"
