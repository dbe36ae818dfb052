"""Region of interest on a volume's grid, possibly rotated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError
from pumit.volume import Volume

_TOLERANCE = 1e-6  # voxels


@dataclass(frozen=True, eq=False)
class Region:
    """Voxels inside a box, which may be rotated.

    Attributes:
        start: First voxel of the bounding window (d, h, w).
        stop: One beyond its last voxel.
        inside: bool, in the window: voxels whose centres are in the region.
    """

    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    inside: npt.NDArray[np.bool_]

    @property
    def window(self) -> tuple[slice, ...]:
        """The bounding window as slices of the volume."""
        return tuple(slice(a, b) for a, b in zip(self.start, self.stop, strict=True))

    @staticmethod
    def between(corners_lps: Sequence[Sequence[float]], volume: Volume) -> Region:
        """Create a region from eight corners in any order, LPS mm; planar images ignore depth.

        Raises:
            PromptError: If these are not eight corners of a box, or it contains no voxel.
        """
        corners = np.asarray(corners_lps, dtype=np.float64)
        if corners.shape != (8, 3) or not np.isfinite(corners).all():
            raise PromptError(f"A region needs 8 finite corners, got shape {corners.shape}.")
        from scipy.spatial import ConvexHull, QhullError  # slow to import

        # 1. Faces of the box in voxel indices; in-plane only for a planar image.
        index = volume.world_to_index(corners)
        axes = [1, 2] if volume.is_planar else [0, 1, 2]
        try:
            faces = ConvexHull(index[:, axes]).equations  # outside where n x + c > 0
        except QhullError:
            raise PromptError("The region is flat; give it some size in every direction.") from None
        # 2. Bounding window on the grid.
        shape = np.asarray(volume.shape)
        start, stop = np.zeros(3, dtype=np.int64), shape.astype(np.int64)
        start[axes] = np.clip(np.ceil(index.min(0) - _TOLERANCE), 0, shape)[axes]
        stop[axes] = np.clip(np.floor(index.max(0) + _TOLERANCE) + 1, 0, shape)[axes]
        if ((index.max(0) < -0.5) | (index.min(0) > shape - 0.5))[axes].any():
            raise PromptError("The region is outside of the volume; move it over the image.")
        # 3. Voxels of the window that are behind every face.
        inside = np.ones(np.maximum(stop - start, 0), dtype=bool)
        for *normal, constant in np.unique(faces.round(9), axis=0):
            height = np.full((1, 1, 1), constant)
            for axis, part in zip(axes, normal, strict=True):
                along = np.arange(start[axis], stop[axis]) * part
                height = height + along.reshape([-1 if a == axis else 1 for a in range(3)])
            inside &= height <= _TOLERANCE
        if not inside.any():
            raise PromptError("The region contains no voxel; make it larger.")
        return Region(start, stop, inside)
