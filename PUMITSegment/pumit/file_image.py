"""Images as stored in files, before resampling to perpendicular axes."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pumit.errors import VolumeError
from pumit.geometry import Array, Floats

logger = logging.getLogger(__name__)

# Scans with a larger share of NaN or infinite voxels are rejected.
MAX_NONFINITE_PART = 0.5


@dataclass(frozen=True)
class DicomSource:
    """The DICOM files a volume was read from, so that a DICOM-SEG can reference them.

    Attributes:
        files: One file per slice, in the order of the volume's slices. May be in a temporary folder
            that exists as long as this object (`keep_alive`).
        keep_alive: Object that keeps the files from being deleted.
        frame: Number of the image's frame, from 1, in a file of several separate images, such as a
            colour cine; None otherwise.
        frame_numbers: Ascending numbers, from 1, of the frames that were read from a multi-frame
            file with positions; empty otherwise, or if unknown.
        intensity_unit: Unit of the intensities as DICOM states it: HU, Bq/ml, SUV (g/ml) or others;
            empty if it states none.
    """

    files: tuple[Path, ...]
    series_instance_uid: str
    keep_alive: Any = field(default=None, repr=False, compare=False)
    instances: tuple[str, ...] = field(default=(), repr=False, compare=False)
    frame: int | None = field(default=None, repr=False, compare=False)
    frame_numbers: tuple[int, ...] = field(default=(), repr=False, compare=False)
    intensity_unit: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class FileImage:
    """Image data from a file reader; input of `Volume.from_steps`.

    Attributes:
        array: Intensities as stored, shape (D, H, W) or (C, D, H, W).
        steps_mm: 3 x 3, columns: from a voxel to the next along W, H and D, LPS mm, not necessarily
            perpendicular. For a single slice, only the side of the step along D is used.
        origin_lps: Centre of voxel (0, 0, 0), LPS mm, shape (3,).
        has_spacing: Whether the file states a pixel size; else it is taken as 1 mm.
        has_position: Whether the format states a position and orientation, and the file does.
        slice_axis: Slice axis of the acquisition in the array (D, H, W), as a NIfTI header may
            state it; else None.
    """

    array: Array
    steps_mm: Floats
    origin_lps: Floats
    source: DicomSource | None = None
    has_spacing: bool = True
    has_position: bool = True
    slice_axis: int | None = None


def finite_voxels(array: Array) -> Array:
    """Replace NaN and infinite voxels by the smallest finite value, with a warning.

    Registered or masked scans often have NaN outside their field of view. An array without such
    voxels is returned unchanged.

    Raises:
        VolumeError: If more than `MAX_NONFINITE_PART` of the voxels are not finite.
    """
    if array.dtype.kind != "f":
        return array
    is_finite = np.isfinite(array)
    count = int(is_finite.sum())
    if count == array.size:
        return array
    part = 1 - count / array.size
    if part > MAX_NONFINITE_PART:
        raise VolumeError(
            f"{part:.0%} of the voxels are NaN or infinite; at most {MAX_NONFINITE_PART:.0%} is "
            "allowed: export the scan again."
        )
    smallest = array[is_finite].min()
    logger.warning(
        "%d voxels are NaN or infinite; they are set to the smallest finite value, %g.",
        array.size - count,
        smallest,
    )
    return np.where(is_finite, array, smallest)
