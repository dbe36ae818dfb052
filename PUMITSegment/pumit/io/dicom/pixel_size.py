"""Pixel size of a DICOM image, from whichever attribute states it.

ITK, and so Slicer, reads one attribute for each kind of image, or takes 1 mm. PUMIT reads more of
them, so its positions in mm may differ from Slicer's; voxel indices are the same.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from pydicom.dataset import Dataset

from pumit.errors import VolumeError
from pumit.geometry import Floats
from pumit.io.dicom.files import first_value
from pumit.system.wording import times

logger = logging.getLogger(__name__)

Size = tuple[float, float]  # distance between rows, between columns; mm

# Codes of an ultrasound region (PS3.3 C.8.5.5): two-dimensional, tissue, centimetres.
_IN_2D, _TISSUE, _CM = 1, 1, 3
# Sizes that differ by a smaller part are the same, rounded differently.
_SAME_SIZE = 0.01
# Where ITK 5.4 reads the pixel size of SOP classes if not from PixelSpacing; without their root.
_ROOT = "1.2.840.10008.5.1.4.1.1."
_PROJECTIONS = ("1", "1.1", "1.1.1", "1.2", "1.2.1", "1.3", "1.3.1", "12.1", "12.2", "12.3")
_FRAMES = ("7.1", "7.2", "7.3", "7.4", "2.1", "4.1", "12.1.1", "13.1.1", "13.1.3")
_VISIBLE_LIGHT = ("77.1.1", "77.1.2.1", "77.1.4.1", "77.1.5.1", "77.1.5.2", "77.1.5.4", "77.1.6")
_BY_ITK: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_PROJECTIONS, ("ImagerPixelSpacing",)),
    **dict.fromkeys((*_FRAMES, *_VISIBLE_LIGHT), ()),
    "7": ("PixelSpacing", "NominalScannedPixelSpacing"),
    "481.1": ("ImagePlanePixelSpacing",),
}


def pixel_size(header: Dataset) -> Size | None:
    """Return the pixel size in mm; None if it is not stated.

    The first of these: PixelSpacing; the ultrasound region; ImagePlanePixelSpacing of a
    radiotherapy image, at the isocentre if its distances are stated; the size on the detector or
    on a scanned film.

    Raises:
        VolumeError: If a stated size is not two positive numbers.
    """
    size = _stated(header, "PixelSpacing") or _of_regions(header) or _at_isocentre(header)
    return (
        size
        or _stated(header, "ImagerPixelSpacing")
        or _stated(header, "NominalScannedPixelSpacing")
    )


def pixel_size_by_itk(header: Dataset) -> Size:
    """Return the pixel size in mm that ITK 5.4, and so Slicer, takes without functional groups."""
    uid = str(first_value(header, "SOPClassUID") or "")
    by_itk = (1.0, 1.0)
    for keyword in reversed(_BY_ITK.get(uid.removeprefix(_ROOT), ("PixelSpacing",))):
        with suppress(VolumeError):  # ITK takes 1 mm for what is no size
            by_itk = _stated(header, keyword) or by_itk
    return by_itk


def warn_if_slicer_differs(header: Dataset) -> None:
    """Log a warning if ITK and Slicer take another pixel size than `pixel_size`."""
    size, by_itk = pixel_size(header), pixel_size_by_itk(header)
    if size is not None and not np.allclose(size, by_itk, rtol=_SAME_SIZE, atol=0):
        logger.warning(
            "The DICOM image states pixels of %s mm, but Slicer takes %s mm for this kind of "
            "image: positions in mm may differ from Slicer's; pixels correspond.",
            *(times(float(f"{v:.4g}") for v in each) for each in (size, by_itk)),
        )


def numbers(value: Any, count: int, keyword: str) -> Floats | None:
    """Return the numbers of an attribute; None if it is absent.

    Raises:
        VolumeError: If they are not `count` finite numbers.
    """
    if value is None:
        return None
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    items = list(value) if is_sequence else [value]
    try:
        found = np.array([float(v) for v in items])
    except (TypeError, ValueError):
        found = np.array([])
    if found.shape != (count,) or not np.isfinite(found).all():
        raise VolumeError(f"DICOM {keyword} must be {count} numbers; export the series again.")
    return found


def _stated(header: Dataset, keyword: str) -> Size | None:
    values = numbers(first_value(header, keyword), 2, keyword)
    if values is None:
        return None
    if (values <= 0).any():
        raise VolumeError(
            f"DICOM {keyword} must be positive, got {values.tolist()} mm; "
            "correct the header, or export the series again."
        )
    return (float(values[0]), float(values[1]))


def _of_regions(header: Dataset) -> Size | None:
    """Return the size in the largest 2D region of tissue; None if such regions disagree."""
    regions = [
        region
        for region in first_value(header, "SequenceOfUltrasoundRegions") or []
        if first_value(region, "RegionSpatialFormat") == _IN_2D
        and first_value(region, "RegionDataType") == _TISSUE
    ]
    sizes = [_in_cm(region) for region in sorted(regions, key=_area, reverse=True)]
    if not sizes or sizes[0] is None:
        return None
    others = [size for size in sizes[1:] if size is not None]
    agree = all(np.allclose(size, sizes[0], rtol=_SAME_SIZE, atol=0) for size in others)
    return sizes[0] if agree else None


def _area(region: Dataset) -> float:
    try:
        left, top, right, bottom = (
            float(region[f"RegionLocation{side}"].value)
            for side in ("MinX0", "MinY0", "MaxX1", "MaxY1")
        )
    except (KeyError, TypeError, ValueError):
        return 0.0
    return max(right - left, 0.0) * max(bottom - top, 0.0)


def _in_cm(region: Dataset) -> Size | None:
    """Return a region's pixel size in mm; None if it is not stated in cm."""
    units = [first_value(region, f"PhysicalUnits{axis}Direction") for axis in "YX"]
    try:
        # Negative where the axis points up.
        down, right = (10 * abs(float(region[f"PhysicalDelta{axis}"].value)) for axis in "YX")
    except (KeyError, TypeError, ValueError):
        return None
    is_size = min(down, right) > 0 and bool(np.isfinite([down, right]).all())
    return (down, right) if is_size and units == [_CM, _CM] else None


def _at_isocentre(header: Dataset) -> Size | None:
    """Return the size in the isocentre's plane, or in the image's if distances are missing."""
    size = _stated(header, "ImagePlanePixelSpacing")
    if size is None:
        return None
    distances = [first_value(header, k) for k in ("RadiationMachineSAD", "RTImageSID")]
    try:
        to_axis, to_image = (float(d) for d in distances)
    except (TypeError, ValueError):
        return size
    if not (np.isfinite([to_axis, to_image]).all() and to_axis > 0 and to_image > 0):
        return size
    return (size[0] * to_axis / to_image, size[1] * to_axis / to_image)
