"""An image as its files state it, before its axes are made perpendicular."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pumit.errors import VolumeError
from pumit.geometry import Array, Floats

logger = logging.getLogger(__name__)

# A scan of which more than this part is NaN or infinite is refused.
MAX_NONFINITE_PART = 0.5


@dataclass(frozen=True, eq=False)
class PlacedFrame:
    """Where a frame's pixels are.

    Attributes:
        position_lps: Centre of the first pixel, LPS mm.
        axes_lps: 3 x 2, columns: unit vectors of growing column and row index; LPS.
    """

    position_lps: Floats
    axes_lps: Floats
    pixel_spacing_mm: tuple[float, float]


@dataclass(frozen=True)
class DicomSource:
    """The DICOM files a volume was read from, so that a DICOM-SEG can reference them.

    Attributes:
        files: One file per slice, ordered as the volume's slices, from index 0 on. May lie in a
            temporary folder that lives as long as this object (`keep_alive`).
        keep_alive: Whatever must not be deleted while the files are needed.
        frames: Frames of a multi-frame file in its order, where its header states but one
            position for all of them; empty otherwise.
        instances: SOPInstanceUIDs of the files.
        frame: Number of the frame, from 1 on, that the image is, where a file has several images
            without a place; None otherwise.
    """

    files: tuple[Path, ...]
    series_instance_uid: str
    keep_alive: Any = field(default=None, repr=False, compare=False)
    frames: tuple[PlacedFrame, ...] = field(default=(), repr=False, compare=False)
    instances: tuple[str, ...] = field(default=(), repr=False, compare=False)
    frame: int | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class FileImage:
    """What a reader takes from files; `Volume.from_steps` makes a volume of it.

    Attributes:
        array: Intensities as stored, shape (D, H, W) or (C, D, H, W).
        steps_mm: 3 x 3, columns: from a voxel to the next along W, H and D, LPS mm. They need not
            be perpendicular; that of a single slice along D counts only by its side.
        origin_lps: Centre of voxel (0, 0, 0), LPS mm, shape (3,).
        source: The DICOM series it came from, or None.
    """

    array: Array
    steps_mm: Floats
    origin_lps: Floats
    source: DicomSource | None = None


def finite_voxels(array: Array) -> Array:
    """Return the same array where all voxels are finite, else one with the others replaced.

    Scans that were registered or masked have NaN outside their field; such voxels get the smallest
    finite value, and a warning says so.

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
