"""The fields of a prompt: of several sizes around a click, of one around a box."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pumit.preprocessing.fields import PLANAR_DEGREE, Field, field_shape

Floats = npt.NDArray[np.float64]
PLANAR_LEVELS = 3
SIZE_STEP = 32  # in-plane voxels between sizes of fields: an engine compiles for each
# Where a field of a coarse scan's own voxels is wider than this, an organ is small in it.
WIDE_MM = 100.0


@dataclass(frozen=True)
class FieldPlanner:
    """Plan fields on a volume.

    Attributes:
        shape: Volume grid (d, h, w), depth axis first.
        size: In-plane voxels of an isotropic field.
        growth: Ratio of one field size to the next.
        max_levels: Most field sizes for a first click.
        largest: Most in-plane voxels of a field. One of few slices is larger than an isotropic one,
            as far as it has no more voxels, and so costs no more.
    """

    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    size: int
    growth: float = 2.0
    max_levels: int = 5
    largest: int = 0

    @property
    def finest_mm(self) -> float:
        """In-plane spacing of the finest field: the volume's own."""
        return math.sqrt(self.spacing_mm[1] * self.spacing_mm[2])

    @property
    def coarsest_mm(self) -> float:
        """In-plane spacing at which one field covers the whole volume."""
        extents = [n * s for n, s in zip(self.shape, self.spacing_mm, strict=True)]
        whole = self._covering(max(extents[1], extents[2]))
        if self.shape[0] > 1:
            # An elongated volume needs no field that covers its whole length.
            whole = max(whole, min(extents[0] / self.size, 2 * whole))
        return max(whole, self.finest_mm)

    @property
    def largest_mm(self) -> float:
        """In-plane spacing beyond which no field has to go: it holds the longest axis."""
        extents = [n * s for n, s in zip(self.shape, self.spacing_mm, strict=True)]
        return max(
            1.4 * max(extents if self.shape[0] > 1 else extents[1:]) / self.size, self.finest_mm
        )

    def field(
        self, centre_index: npt.ArrayLike, in_plane_mm: float, width_mm: float = math.inf
    ) -> Field:
        """Return a field around an index, moved into the volume as far as it fits there.

        Slices are never finer than the volume's own.

        Args:
            centre_index: Volume index (d, h, w).
            width_mm: In-plane extent that is enough.
        """
        in_plane_mm = min(max(in_plane_mm, self.finest_mm * 0.5), self.largest_mm)
        planar = self.shape[0] == 1
        slice_mm, da0 = self._slices(in_plane_mm)
        grid = self._grid(in_plane_mm, self._most(lambda _: in_plane_mm, width_mm))
        ratio = slice_mm / in_plane_mm
        steps = (
            slice_mm / self.spacing_mm[0],
            in_plane_mm / self.spacing_mm[1],
            in_plane_mm / self.spacing_mm[2],
        )
        centre = np.asarray(centre_index, dtype=np.float64).copy()
        for axis in range(3):
            half = grid[axis] * steps[axis] / 2
            low, high = half - 0.5, self.shape[axis] - 0.5 - half
            middle = (self.shape[axis] - 1) / 2
            inside = min(max(centre[axis], low), high) if low < high else middle
            centre[axis] = _aligned(inside, steps[axis], grid[axis])
        if grid[0] == 1 and not planar:
            centre[0] = round(float(np.asarray(centre_index)[0]))
        return Field((centre[0], centre[1], centre[2]), steps, grid, ratio, da0)

    def _slices(self, in_plane_mm: float) -> tuple[float, int]:
        """Slice spacing, mm, and degree of anisotropy of a field of an in-plane spacing."""
        if self.shape[0] == 1:
            return self.spacing_mm[0], PLANAR_DEGREE
        slice_mm = max(self.spacing_mm[0], in_plane_mm)
        degree = math.floor(math.log2(max(slice_mm / in_plane_mm, 1.0)) + 1e-6)
        return slice_mm, min(PLANAR_DEGREE, degree)

    def _grid(self, in_plane_mm: float, size: int) -> tuple[int, int, int]:
        """Voxels (d, h, w) of a field with `size` voxels in-plane."""
        slice_mm, da0 = self._slices(in_plane_mm)
        depth, height, width = field_shape(da0, size)
        # A thin stack needs no field beyond itself; what remains must bear three halvings.
        unit = max(8 >> da0, 1)
        slices = math.ceil(self.shape[0] * self.spacing_mm[0] / slice_mm / unit - 1e-6) * unit
        return min(depth, max(slices, unit)), height, width

    def _most(self, in_plane_mm: Callable[[int], float], width_mm: float = math.inf) -> int:
        """Most in-plane voxels with no more voxels in all than an isotropic field.

        Args:
            in_plane_mm: In-plane spacing of a field with this many voxels.
            width_mm: In-plane extent that is enough.
        """
        for size in range(self.largest, self.size, -SIZE_STEP):
            spacing = in_plane_mm(size)
            is_needed = (size - SIZE_STEP) * spacing < width_mm
            if is_needed and math.prod(self._grid(spacing, size)) <= self.size**3:
                return size
        return self.size

    def _covering(self, extent_mm: float) -> float:
        """In-plane spacing of a field that is so wide, mm."""
        return extent_mm / self._most(lambda size: max(extent_mm / size, self.finest_mm))

    def around_click(self, index: npt.ArrayLike) -> list[Field]:
        """Fields of growing size around a click, the finest first.

        A coarse scan is sampled between its voxels, too, as large as the training's organs are.
        """
        spacings = [self.finest_mm]
        while spacings[-1] * self.growth < self.coarsest_mm * 0.8:
            spacings.append(spacings[-1] * self.growth)
        if self.coarsest_mm > 1.1 * spacings[-1]:
            spacings.append(self.coarsest_mm)
        if self.shape[0] > 1 and self.finest_mm * self.size > WIDE_MM:
            spacings.insert(0, self.finest_mm / 2)
        # A small field on a fine 2D image shows texture only: every answer looks good in it.
        levels = min(self.max_levels, PLANAR_LEVELS) if self.shape[0] == 1 else self.max_levels
        return [self.field(index, s) for s in spacings[-levels:]]

    def windows_over(
        self, start: npt.ArrayLike, stop: npt.ArrayLike, in_plane_mm: float
    ) -> list[Field]:
        """Overlapping fields of one spacing over a box of volume indices, on a fixed lattice."""
        low, high = np.asarray(start, dtype=np.float64), np.asarray(stop, dtype=np.float64)
        probe = self.field((low + high) / 2, in_plane_mm)
        stride = np.asarray(probe.shape) * np.asarray(probe.step) * 0.625
        axes = []
        for axis in range(3):
            if probe.shape[axis] == 1 and self.shape[0] > 1:
                axes.append(np.arange(low[axis], high[axis]))
                continue
            # A lattice of the volume, not of the box: the same windows serve the next click.
            first = math.floor(low[axis] / stride[axis])
            last = math.ceil(high[axis] / stride[axis])
            axes.append(np.arange(first, last + 1) * stride[axis])
        places = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
        return list(dict.fromkeys(self.field(p, in_plane_mm) for p in places))

    def around_box(
        self,
        lower: npt.ArrayLike,
        upper: npt.ArrayLike,
        margin: float = 1.4,
        *,
        ends_count: bool = True,
    ) -> Field:
        """Return the field that holds a box with some surroundings; bounds are volume indices.

        Args:
            lower: First voxel (d, h, w).
            upper: Last voxel.
            margin: Size of the field over that of the box, in-plane; up to 1.15 along depth.
            ends_count: Whether nothing needs to be shown beyond the ends of the scan.
        """
        low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        extent_mm = (high - low + 1) * np.asarray(self.spacing_mm)
        width = float(extent_mm[1:].max()) * margin
        in_plane = max(self._covering(width), self.finest_mm)
        centre = (low + high) / 2
        is_flat = self.shape[0] == 1 or high[0] - low[0] < 1
        half = (high[0] - low[0] + 1) * min(margin, 1.15) / 2
        first, last = centre[0] - half, centre[0] + half
        if ends_count:  # a coarser field would show only air there
            first, last = max(first, -0.5), min(last, self.shape[0] - 0.5)
        for _ in range(12):
            field = self.field(centre, in_plane, width)
            if is_flat and field.shape[0] == 1:
                return field
            below, above = field.bounds()
            if above[0] - below[0] >= last - first - 1e-6:
                return field
            if in_plane >= self.largest_mm:
                return field
            in_plane *= 1.25
        return self.field(centre, in_plane, width)


def _aligned(centre: float, step: float, count: int) -> float:
    """Return the nearest centre whose field has the volume's own voxels, if they are as large.

    Eight planes over seven slices lie between them otherwise, and each is a mean of two.

    Args:
        centre: Volume index.
        step: Volume voxels per field voxel.
    """
    if abs(step - 1) > 1e-6:
        return centre
    to_first = (count - 1) / 2
    return round(centre - to_first) + to_first


def face_contact(mask: npt.NDArray[np.bool_], field: Field, shape: tuple[int, int, int]) -> float:
    """How much of a mask is cut off by the field's faces, 0 (not at all) to 1.

    Faces beyond the volume's border do not count: nothing is missing there.
    """
    low, high = field.bounds()
    area = 0.0
    for axis in range(3):
        if mask.shape[axis] == 1:
            continue
        if low[axis] > 0:
            area += float(mask.take(0, axis=axis).sum())
        if high[axis] < shape[axis] - 1:
            area += float(mask.take(-1, axis=axis).sum())
    volume = float(mask.sum())
    exponent = 2 / 3 if mask.shape[0] > 1 else 1 / 2
    return min(1.0, area / max(volume**exponent, 1.0))
