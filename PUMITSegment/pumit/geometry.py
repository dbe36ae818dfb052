"""Voxel geometry: types, and resampling to grids with perpendicular axes."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError

logger = logging.getLogger(__name__)

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Triple = tuple[float, float, float]
# Voxels, spacing in (D, H, W) order, origin in LPS, and direction, as in `Volume`.
Grid = tuple[Array, Triple, Triple, Floats]

# A 2D image is a volume with one slice and a very large slice spacing (PUMIT: s_z = 1e8).
PLANAR_SLICE_SPACING_MM = 1e8

# Cosine between two axes up to which a grid counts as perpendicular; the same as in `Volume`.
SHEAR_TOLERANCE = 1e-3
# Volume of the unit cell (1 for perpendicular axes) below which axes count as parallel.
DEGENERATE_CELL = 0.1
# Maximum number of voxels of a perpendicular grid, relative to the sheared one.
GROWTH_LIMIT = 4.0
# Tolerance, so that rounding in headers does not add a row of voxels.
ROUNDING_VOXELS = 1e-3


def window_of(mask: npt.NDArray[np.bool_]) -> tuple[slice, ...] | None:
    """Return the bounding box of the true voxels as slices; None if there are none."""
    window: list[slice] = []
    for axis in range(mask.ndim):
        # Later axes only search the remaining window.
        left = mask[tuple(window)]
        hits = np.flatnonzero(left.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
        if not len(hits):
            return None
        window.append(slice(int(hits[0]), int(hits[-1]) + 1))
    return tuple(window)


def slice_axis(shape: Sequence[int]) -> int | None:
    """Return the axis of a single slice, the first of length one; None for a volume."""
    return next((axis for axis, n in enumerate(shape) if n == 1), None)


def bounds_of(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp] | None:
    """Return the first and last voxel of a mask along each axis, (2, 3); None if empty."""
    window = window_of(mask)
    return None if window is None else np.array([[s.start, s.stop - 1] for s in window]).T


def perpendicular_grid(
    array: Array, steps_mm: Floats, origin_lps: Floats, *, is_label: bool = False
) -> Grid:
    """Resample voxels to a grid with perpendicular axes, if necessary.

    A single slice becomes planar: its third axis is the slice's normal, on the side of the file's
    third axis, and its slice spacing is `PLANAR_SLICE_SPACING_MM`. A sheared grid (gantry tilt, or
    an affine from a registration) is linearly interpolated. Its first axis, the plane of its slices
    and their number stay. Voxels outside the scan get its minimum. Labels are not interpolated:
    each voxel takes the nearest one, or background outside.

    Args:
        array: Shape (D, H, W) or (C, D, H, W).
        steps_mm: 3 x 3, columns: from a voxel to the next along W, H and D, LPS mm.
        origin_lps: Centre of voxel (0, 0, 0), LPS mm.

    Returns:
        Voxels, spacing, origin and direction; the same array if the axes are perpendicular.

    Raises:
        VolumeError: If a step is zero or not finite, or axes are (nearly) parallel.
    """
    steps = np.array(steps_mm, dtype=np.float64)
    if array.shape[-3] == 1:
        steps[:, 2] = planar_step(steps)
    lengths = np.linalg.norm(steps, axis=0)
    if not np.isfinite(steps).all() or not np.isfinite(origin_lps).all() or not lengths.all():
        w, h, d = (float(x) for x in lengths)
        raise VolumeError(
            f"Spacing must be three positive numbers in mm, got {(d, h, w)} (slice, row, column); "
            "correct the file's header, or export it again."
        )
    direction = steps / lengths
    cell = abs(float(np.linalg.det(direction)))
    if cell < DEGENERATE_CELL:
        raise VolumeError(
            f"The voxel axes are nearly parallel (unit cell {cell:.3f}, 1 is perpendicular); "
            "the file's orientation is damaged, export it again."
        )
    if _shear(direction) > SHEAR_TOLERANCE:
        origin = np.asarray(origin_lps, dtype=np.float64)
        return _unsheared(array, steps, origin, is_label=is_label)
    return array, _triple(lengths[::-1]), _triple(origin_lps), direction


def is_sheared(steps_mm: Floats) -> bool:
    """Return whether the columns of a finite 3 x 3 matrix are too far from perpendicular."""
    lengths = np.linalg.norm(steps_mm, axis=0)
    return bool(lengths.all()) and _shear(steps_mm / lengths) > SHEAR_TOLERANCE


def _shear(direction: Floats) -> float:
    return float(np.abs(direction.T @ direction - np.eye(3)).max())


def _triple(values: Floats) -> Triple:
    x, y, z = (float(v) for v in values)
    return (x, y, z)


def planar_step(steps: Floats) -> Floats:
    """Return a single slice's third step, along the normal of the first two, (3, 3) columns."""
    normal = np.cross(steps[:, 0], steps[:, 1])
    length = float(np.linalg.norm(normal))
    if not np.isfinite(length) or length == 0.0:
        return np.zeros(3)  # reported as a zero step
    side = -1.0 if float(normal @ steps[:, 2]) < 0 else 1.0
    return np.asarray(side * PLANAR_SLICE_SPACING_MM * normal / length)


def _target_grid(
    shape: tuple[int, int, int], steps: Floats, origin: Floats
) -> tuple[tuple[int, int, int], Triple, Floats, Floats]:
    """Return the smallest perpendicular grid that covers a sheared one, with parallel slices.

    Its shape, spacing, origin and direction.
    """
    across = steps[:, 0] / np.linalg.norm(steps[:, 0])
    normal = np.cross(across, steps[:, 1])
    normal /= np.linalg.norm(normal)
    down = np.cross(normal, across)
    if float(normal @ steps[:, 2]) < 0:
        normal = -normal
    direction = np.column_stack([across, down, normal])
    spacing_whd = np.array(
        [np.linalg.norm(steps[:, 0]), abs(down @ steps[:, 1]), abs(normal @ steps[:, 2])]
    )
    last = np.array(shape[::-1]) - 1
    corners = np.array(list(np.ndindex(2, 2, 2))) * last
    local = corners @ steps.T @ direction / spacing_whd  # (8, 3) in voxels of the target
    low, high = local.min(axis=0), local.max(axis=0)
    size = np.ceil(high - low - ROUNDING_VOXELS) + 1
    growth = float(np.prod(size)) / float(np.prod(shape, dtype=np.float64))
    if not growth <= GROWTH_LIMIT:  # also if NaN
        raise VolumeError(
            f"The voxel axes are so oblique that a perpendicular grid would hold {growth:.1f} "
            "times the voxels; resample the scan to perpendicular axes first."
        )
    w, h, d = (int(n) for n in size)
    first = origin + direction @ (low * spacing_whd)
    return (d, h, w), _triple(spacing_whd[::-1]), first, direction


def _unsheared(array: Array, steps: Floats, origin: Floats, *, is_label: bool) -> Grid:
    from scipy.ndimage import affine_transform

    shape, spacing, first, direction = _target_grid(array.shape[-3:], steps, origin)
    # Index of the target (d, h, w) -> world -> index of the source (d, h, w).
    target_steps = direction * np.asarray(spacing)[::-1]
    to_source = np.linalg.inv(steps)
    matrix = (to_source @ target_steps)[::-1, ::-1]
    offset = (to_source @ (first - origin))[::-1]
    channels = array.reshape((-1, *array.shape[-3:]))
    result = np.empty((len(channels), *shape), dtype=array.dtype)
    for channel, out in zip(channels, result, strict=True):
        exact = np.float64 if channel.dtype.itemsize > 4 else np.float32
        values = affine_transform(
            channel.astype(exact, copy=False),
            matrix,
            offset,
            shape,
            order=0 if is_label else 1,
            # Unlike "constant", this keeps border voxels that rounding moves just outside.
            mode="grid-constant",
            cval=0.0 if is_label else float(channel.min()),
            output=exact,
        )
        out[...] = np.rint(values) if array.dtype.kind in "biu" else values
    logger.warning(
        "The voxel axes are sheared by %.1f degrees; the scan is interpolated onto a perpendicular "
        "grid.",
        np.degrees(np.arcsin(min(_shear(steps / np.linalg.norm(steps, axis=0)), 1.0))),
    )
    return result.reshape(array.shape[:-3] + shape), spacing, _triple(first), direction
