"""Volumes: voxels with spacing, origin and direction, in LPS millimetres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError, VolumeError
from pumit.file_image import DicomSource
from pumit.geometry import (
    PLANAR_SLICE_SPACING_MM,
    Array,
    Floats,
    Triple,
    perpendicular_grid,
)
from pumit.io.read import read_image

# Coordinate system of points: LPS or RAS mm; array indices (d, h, w); or the same indices in the
# order of viewers, (i, j, k): column, row, slice.
Frame = Literal["LPS", "RAS", "voxel", "IJK"]
_AXES = {"LPS": "LPS", "RAS": "RAS", "voxel": "dhw", "IJK": "ijk"}


@dataclass(frozen=True, eq=False, repr=False)
class Volume:
    """An image with its geometry.

    Attributes:
        array: Intensities as stored in the file (HU stays HU). Shape (D, H, W), or (C, D, H, W)
            for colour and multi-channel images.
        spacing_mm: Voxel size in array order (D, H, W), mm, positive. A 2D image has
            `PLANAR_SLICE_SPACING_MM` as its first entry and D = 1.
        origin_lps: Centre of voxel (0, 0, 0), LPS mm.
        direction: 3 x 3, orthonormal; as in ITK its columns are the W, H and D axes in LPS.
            Left-handed directions are kept.
        source: The DICOM series the volume came from, or None.
        thickness_mm: Slice spacing in the file of a 2D image, for files written on its grid; None
            if the file has none.
        path: The file or folder that it was read from, which no result may replace; or None.

    Raises:
        VolumeError: If shape, spacing or direction is invalid.
    """

    array: Array
    spacing_mm: Triple = (1.0, 1.0, 1.0)
    origin_lps: Triple = (0.0, 0.0, 0.0)
    direction: Floats = field(default_factory=lambda: np.eye(3))
    source: DicomSource | None = None
    thickness_mm: float | None = None
    path: Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        array = np.asarray(self.array)
        if array.ndim not in (3, 4) or 0 in array.shape:
            raise VolumeError(
                "A volume needs shape (D, H, W) or (C, D, H, W) without empty axes, "
                f"got {array.shape}."
            )
        if array.dtype.kind not in "biuf":
            raise VolumeError(f"A volume needs real numbers, got {array.dtype}; convert it first.")
        spacing = tuple(float(s) for s in self.spacing_mm)
        if len(spacing) != 3 or not all(np.isfinite(s) and s > 0 for s in spacing):
            raise VolumeError(
                f"Spacing must be three positive numbers in mm, got {spacing}; "
                "check the file header."
            )
        origin = tuple(float(o) for o in self.origin_lps)
        if len(origin) != 3 or not np.isfinite(origin).all():
            raise VolumeError(f"Origin must be three finite numbers, got {origin}.")
        direction = np.asarray(self.direction, dtype=np.float64)
        if direction.shape != (3, 3) or not np.allclose(
            direction.T @ direction, np.eye(3), atol=1e-3
        ):
            raise VolumeError(
                "Direction must be a 3 x 3 matrix of perpendicular unit axes; "
                "a sheared grid must be resampled first (Volume.read does that)."
            )
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "spacing_mm", spacing)
        object.__setattr__(self, "origin_lps", origin)
        object.__setattr__(self, "direction", direction)

    @staticmethod
    def read(path: str | Path, *, series: str | None = None) -> Volume:
        """Read NIfTI, NRRD, MHA, a DICOM folder or zip, PNG or JPEG.

        Args:
            series: SeriesInstanceUID, required if a DICOM folder or zip has several series.

        Raises:
            VolumeError: If the file cannot be read or used, with the reason.
            AmbiguousSeriesError: If there are several series and none was chosen.
        """
        image = read_image(Path(path), series=series)
        volume = Volume.from_steps(image.array, image.steps_mm, image.origin_lps, image.source)
        return replace(volume, path=Path(path).absolute())

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that it was read from, as far as known."""
        source = self.source.files if self.source else ()
        return source if self.path is None else (*source, self.path)

    @staticmethod
    def from_steps(
        array: Array,
        steps_mm: Floats,
        origin_lps: Floats,
        source: DicomSource | None = None,
        *,
        is_label: bool = False,
    ) -> Volume:
        """Create a volume from voxels and steps as stored in files; see `FileImage`.

        A single slice becomes planar; a sheared grid is resampled to a perpendicular one, see
        `perpendicular_grid`.

        Args:
            is_label: Whether voxels are labels, which are not interpolated.

        Raises:
            VolumeError: If a step is zero or not finite, or axes are (nearly) parallel.
        """
        step = float(np.linalg.norm(np.asarray(steps_mm, dtype=np.float64)[:, 2]))
        is_stated = array.shape[-3] == 1 and 0 < step < PLANAR_SLICE_SPACING_MM
        grid = perpendicular_grid(array, steps_mm, origin_lps, is_label=is_label)
        return Volume(*grid, source, step if is_stated else None)

    @staticmethod
    def of(image: Volume | str | Path | Array, spacing_mm: Sequence[float] | None = None) -> Volume:
        """Convert a volume, a path as accepted by `read`, or an array to a volume.

        Args:
            image: The scan. An array has shape (D, H, W), or (H, W) for a 2D image.
            spacing_mm: Voxel size of an array in array order, mm; optional for a 2D image.

        Raises:
            VolumeError: If it cannot be read or used, or a 3D array is given without spacing.
        """
        if isinstance(image, Volume):
            return image
        if isinstance(image, (str, Path)):
            return Volume.read(image)
        array = np.asarray(image)
        if array.ndim == 2:
            in_plane = (1.0, 1.0) if spacing_mm is None else tuple(spacing_mm)[-2:]
            return Volume(array[None], (PLANAR_SLICE_SPACING_MM, *in_plane))  # type: ignore[arg-type]
        if spacing_mm is None:
            raise VolumeError("An array has no voxel spacing: give spacing_mm=(D, H, W), in mm.")
        return Volume(array, tuple(spacing_mm))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        size, step = (" x ".join(f"{v:.4g}" for v in t) for t in (self.shape, self.spacing_mm))
        channels = f"{self.channels} channels of " if self.channels > 1 else ""
        source = ", DICOM" if self.source is not None else ""
        return (
            f"<Volume: {channels}{size} voxels, {step} mm (D x H x W), {self.array.dtype}{source}>"
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Grid size (D, H, W)."""
        d, h, w = self.array.shape[-3:]
        return (d, h, w)

    @property
    def channels(self) -> int:
        """Number of channels; 1 for a scalar image."""
        return 1 if self.array.ndim == 3 else int(self.array.shape[0])

    @property
    def is_planar(self) -> bool:
        """Whether this is a single slice, i.e. a 2D image."""
        return self.shape[0] == 1

    def index_to_world(self, index: npt.ArrayLike) -> Floats:
        """Map continuous (d, h, w) indices, shape (..., 3), to LPS mm, shape (..., 3)."""
        steps = np.asarray(index, dtype=np.float64) * np.asarray(self.spacing_mm)
        return np.asarray(steps[..., ::-1] @ self.direction.T + np.asarray(self.origin_lps))

    def world_to_index(self, points_lps: npt.ArrayLike) -> Floats:
        """Map LPS mm, shape (..., 3), to continuous (d, h, w) indices, shape (..., 3)."""
        offset = np.asarray(points_lps, dtype=np.float64) - np.asarray(self.origin_lps)
        # The inverse, not the transpose: a direction from a file is orthonormal only to 1e-3.
        steps = (offset @ np.linalg.inv(self.direction).T)[..., ::-1]
        return np.asarray(steps / np.asarray(self.spacing_mm))

    def contains(self, point_lps: Sequence[float]) -> bool:
        """Return whether a world point is inside the grid, voxel borders included.

        For a planar image, the position along its normal is ignored.
        """
        index = self.world_to_index(point_lps)
        size = np.asarray(self.shape)
        inside = (index >= -0.5 - 1e-6) & (index <= size - 0.5 + 1e-6)
        return bool(inside[1:].all() if self.is_planar else inside.all())

    def to_lps(self, points: npt.ArrayLike, frame: Frame = "LPS") -> Floats:
        """Map points, shape (..., 3), from a frame to LPS mm.

        Raises:
            PromptError: If the frame is unknown, or points are not three numbers each.
        """
        if frame not in _AXES:
            raise PromptError(f"There is no frame {frame!r}; choose LPS, RAS, voxel or IJK.")
        try:
            given = np.asarray(points, dtype=np.float64)
        except (TypeError, ValueError):
            given = np.zeros(0)
        if given.shape[-1:] != (3,):
            raise PromptError(f"A point needs three numbers, got {points!r}.")
        if frame in ("voxel", "IJK"):
            return self.index_to_world(given if frame == "voxel" else given[..., ::-1])
        return given * (1.0 if frame == "LPS" else (-1.0, -1.0, 1.0))

    def require_inside(self, point_lps: Sequence[float], frame: Frame = "LPS") -> None:
        """Check that a point is inside the grid.

        Args:
            frame: Frame in which the message gives the coordinates.

        Raises:
            PromptError: If it is outside; the message gives the volume's bounds.
        """
        if self.contains(point_lps):
            return
        corners = list(product(*((0, n - 1) for n in self.shape)))
        both: list[Floats] = [np.asarray(corners), self.world_to_index(point_lps)]
        if frame == "IJK":
            both = [part[..., ::-1] for part in both]
        elif frame != "voxel":
            both = [self.index_to_world(corners), np.asarray(point_lps)]
            both = [part * (1.0 if frame == "LPS" else (-1.0, -1.0, 1.0)) for part in both]
        given = ", ".join(f"{v + 0.0:.6g}" for v in both[1])
        spans = zip(_AXES[frame], both[0].min(0) + 0.0, both[0].max(0) + 0.0, strict=True)
        where = ", ".join(f"{axis} {low:.4g} to {high:.4g}" for axis, low, high in spans)
        unit = " mm" if frame in ("LPS", "RAS") else ""
        raise PromptError(
            f"The point {given}{unit} ({', '.join(_AXES[frame])}) is outside of the volume, "
            f"which spans {where}; click inside the image."
        )
