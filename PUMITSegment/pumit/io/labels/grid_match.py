"""Placement of one voxel grid on another whose voxels coincide with its own."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.system.wording import times
from pumit.volume import Volume

Shape = tuple[int, int, int]

OFF_GRID_VOXELS = 0.5  # largest accepted distance of a corner from a voxel of the other grid
ROUNDING_VOXELS = 0.1  # smaller distances are not reported
# Relative spacing difference and angle explained by rounding in headers; more is reported.
SAME_SPACING = 1e-3
SAME_ANGLE_DEGREES = 0.1


@dataclass(frozen=True)
class Placement:
    """Position of one grid, the part, on the grid of an image.

    Attributes:
        order: Axis of the part along each axis of the image.
        flipped: Whether the part runs in the opposite direction of each image axis.
        start: Image index of the part's first voxel.
        shape: Shape of the part along the image's axes.
        error_voxels: Largest distance of a corner from its voxel's centre, voxels.
    """

    order: Shape
    flipped: tuple[bool, bool, bool]
    start: Shape
    shape: Shape
    error_voxels: float = 0.0

    @property
    def doubt(self) -> str:
        """Warning about an offset that rounding in headers does not explain; else empty."""
        if self.error_voxels <= ROUNDING_VOXELS:
            return ""
        return (
            f"is {self.error_voxels:.2f} voxels off the image's grid; each voxel goes to the "
            "nearest one"
        )

    def along_image(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a view of the part's array, (..., D, H, W), along the image's axes."""
        first = array.ndim - 3
        moved = array.transpose((*range(first), *(first + a for a in self.order)))
        steps: Any = (..., *(slice(None, None, -1 if flip else 1) for flip in self.flipped))
        return moved[steps]


def place(part: Volume, image: Volume, what: str) -> Placement:
    """Find the placement of a part on an image's grid.

    The part may have other axis orders or directions, and may be smaller or larger than the image,
    but its voxels must coincide with the image's.

    Raises:
        VolumeError: If voxels do not coincide; the message says how the grids differ.
    """
    ends = np.vstack([np.zeros(3), np.diag(np.maximum(np.array(part.shape) - 1, 0))])
    found = image.world_to_index(part.index_to_world(ends))
    steps = found[1:] - found[0]  # along the whole length of each axis of the part
    axes = _paired_axes(steps, part.shape)
    exact = np.zeros((3, 3))
    flips = [False, False, False]
    for axis, target in enumerate(axes):
        sign = -1.0 if steps[axis, target] < 0 else 1.0
        exact[axis, target] = sign * (part.shape[axis] - 1)
        flips[target] = bool(sign < 0 and part.shape[axis] > 1)
    first = np.rint(found[0])
    corners = np.array(np.meshgrid(*[[0.0, 1.0]] * 3, indexing="ij")).reshape(3, -1).T
    error = (found[0] + corners @ steps) - (first + corners @ exact)
    if image.is_planar:  # the position along the normal is meaningless
        error[:, 0], first[0] = 0.0, 0.0
    if not np.abs(error).max() <= OFF_GRID_VOXELS:
        raise VolumeError(f"{what} {grid_difference(part, image)}.")
    low = np.minimum(first, first + exact.sum(axis=0)).astype(int)
    order = tuple(axes.index(target) for target in range(3))
    return Placement(
        _shape(order),
        (flips[0], flips[1], flips[2]),
        _shape(low),
        _shape(part.shape[a] for a in order),
        float(np.abs(error).max()),
    )


def _paired_axes(steps: npt.NDArray[np.float64], shape: Shape) -> list[int]:
    """Return the image axis of each axis of the part; axes of one voxel get the remaining ones."""
    axes = [-1, -1, -1]
    for axis in sorted(range(3), key=lambda a: shape[a] == 1):
        free = [t for t in range(3) if t not in axes]
        if shape[axis] == 1 and axis in free:
            axes[axis] = axis
        else:
            axes[axis] = max(free, key=lambda t: abs(steps[axis, t]))
    return axes


def _shape(values: Any) -> Shape:
    d, h, w = (int(v) for v in values)
    return (d, h, w)


def same_grid(part: Volume, image: Volume, what: str) -> Placement:
    """Place a grid that must cover the image exactly, in any order of axes.

    Raises:
        VolumeError: If it does not; the message says how the grids differ.
    """
    found = place(part, image, what)
    is_shifted = any(found.start) or found.shape != image.shape
    if is_shifted:
        raise VolumeError(f"{what} {grid_difference(part, image)}.")
    return found


def grid_difference(part: Volume, image: Volume) -> str:
    """Describe how a grid differs from an image's, as the predicate of an error message."""
    words = []
    # Compare a planar part with one slice of the image.
    first = 1 if part.is_planar else 0
    if part.shape[first:] != image.shape[first:]:
        words.append(f"{times(part.shape[first:])} voxels instead of {times(image.shape[first:])}")
    ratio = np.asarray(part.spacing_mm) / np.asarray(image.spacing_mm)
    if np.abs(ratio - 1)[first:].max() > SAME_SPACING:
        here, there = (times(v.spacing_mm[first:], ".4g") for v in (part, image))
        words.append(f"spacing {here} mm instead of {there} mm")
    turn = part.direction.T @ image.direction
    angles = np.degrees(np.arccos(np.clip(np.diag(turn), -1.0, 1.0)))
    if angles.max() > SAME_ANGLE_DEGREES:
        words.append(f"axes turned by up to {angles.max():.1f} degrees")
    offset = np.asarray(part.origin_lps) - np.asarray(image.origin_lps)
    if image.is_planar or part.is_planar:
        normal = image.direction[:, 2]
        offset = offset - (offset @ normal) * normal
    length = float(np.linalg.norm(offset))
    if length > 0.01 * min(image.spacing_mm):
        words.append(f"its first voxel {length:.3g} mm away")
    corner = image.world_to_index(part.index_to_world(np.asarray(part.shape) - 1.0))
    far = np.abs(corner - (np.asarray(image.shape) - 1))
    near = np.abs(image.world_to_index(part.index_to_world(np.zeros(3))))
    first = 1 if image.is_planar or part.is_planar else 0
    voxels = float(np.maximum(far, near)[first:].max())
    difference = ", ".join(words) or "rounded differently"
    far_off = f" by {voxels:.1f} voxels" if voxels >= ROUNDING_VOXELS else ""
    return f"is off the image's grid{far_off} ({difference}); resample it onto the image"


def overlap_of(placement: Placement, shape: Shape) -> tuple[Any, Any]:
    """Return the index of the shared voxels in the image, and in the part.

    The latter is along the image's axes; both start with an ellipsis.
    """
    into, out = [], []
    for start, size, limit in zip(placement.start, placement.shape, shape, strict=True):
        low, high = max(start, 0), min(start + size, limit)
        high = max(low, high)
        into.append(slice(low, high))
        out.append(slice(low - start, high - start))
    return (..., *into), (..., *out)


def put(
    array: npt.NDArray[Any], placement: Placement, shape: Shape
) -> tuple[npt.NDArray[Any], int]:
    """Copy the voxels of a part, (..., D, H, W), to an image's grid.

    Returns:
        (..., D, H, W) with 0 outside the part, a view if it covers the image exactly; and the
        number of the part's nonzero voxels outside the image.
    """
    moved = placement.along_image(array)
    if placement.shape == shape and not any(placement.start):
        return moved, 0
    into, out = overlap_of(placement, shape)
    inside = moved[out]
    result = np.zeros((*moved.shape[:-3], *shape), dtype=array.dtype)
    result[into] = inside
    is_cut = inside.shape != moved.shape
    return result, int(np.count_nonzero(moved) - np.count_nonzero(inside)) if is_cut else 0
