"""Axes as a network was trained on them: the coarsest first, and running as in the body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pumit.preprocessing.coarsest_axis import depth_first
from pumit.volume import Volume

Orientation = Literal["anatomical", "stored"]


@dataclass(frozen=True)
class NetworkAxes:
    """A permutation of a volume's axes with flips; a view, no copy.

    Attributes:
        order: Volume axes in the network's order (d, h, w).
        flipped: Whether each network axis runs against the volume's.
    """

    order: tuple[int, int, int]
    flipped: tuple[bool, bool, bool]

    @staticmethod
    def of(volume: Volume, orientation: Orientation = "anatomical") -> NetworkAxes:
        """Axes of a volume with the coarsest one as the depth.

        Args:
            orientation: Order of the axes; with "anatomical" the others follow
                in the order superior, posterior,
                left, and all run towards these (a scan is seen alike however it is stored, so
                left and right are never mistaken); nearly isotropic volumes are cut axially.
                With "stored" only the depth axis is moved.
        """
        order = depth_first(volume.spacing_mm, volume.shape)
        if orientation == "stored":
            return NetworkAxes(order, (False, False, False))
        # World direction (L, P, S) of each array axis; direction's columns are W, H, D.
        along = volume.direction.T[::-1]
        rank = (along**2) @ np.array([0.0, 1.0, 2.0])  # near 2 along S, 1 along P, 0 along L
        spacing = np.asarray(volume.spacing_mm)
        is_isotropic = 1 not in volume.shape and spacing.max() <= 1.01 * spacing.min()
        depth = int(np.argmax(rank)) if is_isotropic else order[0]
        rest = sorted((a for a in range(3) if a != depth), key=lambda a: -rank[a])
        chosen = (depth, rest[0], rest[1])
        d, h, w = (bool(along[a][np.argmax(np.abs(along[a]))] < 0) for a in chosen)
        return NetworkAxes(chosen, (d, h, w))

    def apply(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """View of a volume's array (D, H, W) with the network's axes."""
        return array.transpose(self.order)[self._steps]

    def undo(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """View of an array with the network's axes as (D, H, W) of the volume."""
        return array[self._steps].transpose(np.argsort(self.order))

    def bounds(
        self, start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64], shape: tuple[int, ...]
    ) -> tuple[slice, slice, slice]:
        """Return a half-open box of volume indices, on network axes."""
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
