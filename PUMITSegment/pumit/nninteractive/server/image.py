"""Conversion of the nnInteractive protocol's images, voxel ranges and buffer types."""

import numpy as np

from pumit.errors import PromptError, VolumeError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.preprocessing.guessed_spacing import guess_spacing
from pumit.server.http.schemas import SPACING_MM
from pumit.volume import Volume
from pumit.wire.arrays import Array


def range_inside(start: int, stop: int, size: int) -> tuple[int, int]:
    """Clip a range to an axis; it stays at least one voxel long."""
    start, stop = sorted((start, stop))
    start = min(max(start, 0), size - 1)
    return start, max(min(stop, size), start + 1)


def volume_of(array: Array, spacing_given: object) -> Volume:
    """Make a volume from an image; a missing spacing is guessed from the voxels.

    Args:
        array: Shape (C, X, Y, Z).
        spacing_given: `image_properties["spacing"]`, or None.

    Raises:
        VolumeError: If the image or its spacing is invalid.
    """
    spacing = (
        guess_spacing(array)
        if spacing_given is None
        else spacing_of(spacing_given, array.shape[1:])
    )
    if array.shape[1] == 1:
        spacing = (PLANAR_SLICE_SPACING_MM, spacing[1], spacing[2])
    return Volume(array[0] if len(array) == 1 else array, spacing_mm=spacing)


def spacing_of(spacing_given: object, shape: tuple[int, ...]) -> tuple[float, float, float]:
    """Parse the voxel size, mm in array order.

    Args:
        spacing_given: `image_properties["spacing"]`. napari sends a negative value along an axis
            that it shows reversed; the voxels are the same.

    Raises:
        VolumeError: If the value is not a valid spacing.
    """
    try:
        spacing = np.abs(np.asarray(spacing_given, dtype=np.float64)).ravel().tolist()
    except (TypeError, ValueError, OverflowError):
        spacing = []
    if len(spacing) == 2 and 1 in shape:
        spacing.insert(shape.index(1), 1.0)
    least, most = SPACING_MM
    if len(spacing) != 3 or not all(least <= s <= most for s in spacing):
        raise VolumeError(
            f"image_properties.spacing must be three numbers from {least:g} to {most:g}, mm in "
            "array order."
        )
    return (spacing[0], spacing[1], spacing[2])


def buffer_dtype(name: str) -> np.dtype[np.generic]:
    """Parse the type of a target buffer, such as `uint8` or `bool`.

    Raises:
        PromptError: If it is not an integer type or bool.
    """
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype(object)
    if dtype.kind not in "biu":
        raise PromptError("A target buffer must have a bool or integer dtype.")
    return dtype.newbyteorder("=")
