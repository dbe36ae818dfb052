"""Axis order and orientation of a network's input: coarsest axis first, anatomical directions.

Needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pumit.volume import Volume

Orientation = Literal["anatomical", "stored"]


def depth_first(
    spacing: Sequence[float], shape: Sequence[int] | None = None
) -> tuple[int, int, int]:
    """Return the axis order with the coarsest axis first and the others in order.

    Args:
        shape: Voxels along each axis; an axis with a single voxel is the depth in any case.
    """
    if shape is not None and 1 in shape:
        axis = list(shape).index(1)
    else:
        axis = int(np.argmax(spacing))
        if spacing[axis] <= 1.01 * min(spacing):
            axis = 0
    rest = [a for a in range(3) if a != axis]
    return (axis, rest[0], rest[1])


@dataclass(frozen=True)
class NetworkAxes:
    """Permutation and flips of a volume's axes; views, no copies.

    Attributes:
        order: Volume axes in the network's order (d, h, w).
    """

    order: tuple[int, int, int]
    flipped: tuple[bool, bool, bool]

    @staticmethod
    def of(volume: Volume, orientation: Orientation = "anatomical") -> NetworkAxes:
        """Determine the axes of a volume, with the coarsest one as the depth.

        Args:
            orientation: With "anatomical", the other axes follow in the order superior, posterior,
                left, and all axes run towards these. So the input does not depend on how a scan is
                stored. Nearly isotropic volumes have axial slices. With "stored", only the depth
                axis is moved.
        """
        order = depth_first(volume.spacing_mm, volume.shape)
        if orientation == "stored":
            return NetworkAxes(order, (False, False, False))
        spacing = np.asarray(volume.spacing_mm)
        is_isotropic = 1 not in volume.shape and spacing.max() <= 1.01 * spacing.min()
        return NetworkAxes.upright(volume.direction, None if is_isotropic else order[0])

    @staticmethod
    def upright(direction: npt.NDArray[np.float64], depth: int | None) -> NetworkAxes:
        """Return axes that run towards superior, posterior and left, in this order after the depth.

        Args:
            direction: As in `Volume`, 3 x 3.
            depth: Volume axis that comes first; None for the one closest to superior.
        """
        # World direction (L, P, S) of each array axis; direction's columns are W, H, D.
        along = direction.T[::-1]
        rank = (along**2) @ np.array([0.0, 1.0, 2.0])  # near 2 along S, 1 along P, 0 along L
        first = int(np.argmax(rank)) if depth is None else depth
        rest = sorted((a for a in range(3) if a != first), key=lambda a: -rank[a])
        chosen = (first, rest[0], rest[1])
        d, h, w = (bool(along[a][np.argmax(np.abs(along[a]))] < 0) for a in chosen)
        return NetworkAxes(chosen, (d, h, w))

    def apply(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a view of a volume's array (D, H, W) with the network's axes."""
        return array.transpose(self.order)[self._steps]

    def undo(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a view of an array on the network's axes with the volume's axes (D, H, W)."""
        return array[self._steps].transpose(np.argsort(self.order))

    def bounds(
        self, start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64], shape: tuple[int, ...]
    ) -> tuple[slice, slice, slice]:
        """Convert a half-open box of volume indices to slices on the network's axes."""
        d, h, w = (
            slice(shape[a] - int(stop[a]), shape[a] - int(start[a]))
            if is_flipped
            else slice(int(start[a]), int(stop[a]))
            for a, is_flipped in zip(self.order, self.flipped, strict=True)
        )
        return (d, h, w)

    @property
    def _steps(self) -> tuple[slice, ...]:
        return tuple(slice(None, None, -1 if is_flipped else 1) for is_flipped in self.flipped)
