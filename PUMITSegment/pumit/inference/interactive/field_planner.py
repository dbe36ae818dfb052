"""Field placement: several field sizes around a click, one around a box."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pumit.preprocessing.fields import PLANAR_DEGREE, Field, field_shape

Floats = npt.NDArray[np.float64]
PLANAR_LEVELS = 3
SIZE_STEP = 32  # in-plane voxels between field sizes; coarse, as an engine compiles for each
# In a field at native resolution wider than this, organs are small: sample such scans finer.
WIDE_MM = 100.0


@dataclass(frozen=True)
class FieldPlanner:
    """Planner of fields on a volume.

    Attributes:
        shape: Volume grid (d, h, w), depth axis first.
        size: In-plane voxels of an isotropic field.
        growth: Ratio of consecutive field sizes.
        max_levels: Maximum number of field sizes for a first click.
        largest: Maximum in-plane voxels of a field. A field with few slices may be larger than an
            isotropic one, as long as it has no more voxels in total and so costs no more.
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
            # An elongated volume needs no field over its whole length.
            whole = max(whole, min(extents[0] / self.size, 2 * whole))
        return max(whole, self.finest_mm)

    @property
    def largest_mm(self) -> float:
        """Largest useful in-plane spacing: the field covers the volume's longest axis."""
        extents = [n * s for n, s in zip(self.shape, self.spacing_mm, strict=True)]
        longest = max(extents if self.shape[0] > 1 else extents[1:])
        return max(1.4 * longest / self.size, self.finest_mm)

    def field(
        self, centre_index: npt.ArrayLike, in_plane_mm: float, width_mm: float = math.inf
    ) -> Field:
        """Return a field around a volume index, shifted to stay inside the volume where it fits.

        Its slice spacing is never finer than the volume's.

        Args:
            width_mm: Sufficient in-plane extent.
        """
        in_plane_mm = min(max(in_plane_mm, self.finest_mm * 0.5), self.largest_mm)
        slice_mm, da0 = self._slices(in_plane_mm)
        grid = self._grid(in_plane_mm, self._most(lambda _: in_plane_mm, width_mm))
        ratio = slice_mm / in_plane_mm
        sizes = (slice_mm, in_plane_mm, in_plane_mm)
        d, h, w = (a / b for a, b in zip(sizes, self.spacing_mm, strict=True))
        steps = (d, h, w)
        centre = np.asarray(centre_index, dtype=np.float64).copy()
        for axis in range(3):
            half = grid[axis] * steps[axis] / 2
            low, high = half - 0.5, self.shape[axis] - 0.5 - half
            middle = (self.shape[axis] - 1) / 2
            inside = min(max(centre[axis], low), high) if low < high else middle
            centre[axis] = _aligned(inside, steps[axis], grid[axis])
        if grid[0] == 1 and self.shape[0] > 1:
            centre[0] = round(float(np.asarray(centre_index)[0]))
        return Field((centre[0], centre[1], centre[2]), steps, grid, ratio, da0)

    def _slices(self, in_plane_mm: float) -> tuple[float, int]:
        """Return slice spacing, mm, and degree of anisotropy for an in-plane spacing."""
        if self.shape[0] == 1:
            return self.spacing_mm[0], PLANAR_DEGREE
        slice_mm = max(self.spacing_mm[0], in_plane_mm)
        degree = math.floor(math.log2(max(slice_mm / in_plane_mm, 1.0)) + 1e-6)
        return slice_mm, min(PLANAR_DEGREE, degree)

    def _grid(self, in_plane_mm: float, size: int) -> tuple[int, int, int]:
        """Return the shape (d, h, w) of a field with `size` voxels in-plane."""
        slice_mm, da0 = self._slices(in_plane_mm)
        depth, height, width = field_shape(da0, size)
        # A thin stack needs no deeper field, but the depth must allow three halvings.
        unit = max(8 >> da0, 1)
        slices = math.ceil(self.shape[0] * self.spacing_mm[0] / slice_mm / unit - 1e-6) * unit
        return min(depth, max(slices, unit)), height, width

    def _most(self, in_plane_mm: Callable[[int], float], width_mm: float = math.inf) -> int:
        """Return the largest in-plane size with no more voxels in total than an isotropic field."""
        for size in range(self.largest, self.size, -SIZE_STEP):
            spacing = in_plane_mm(size)
            is_needed = (size - SIZE_STEP) * spacing < width_mm
            if is_needed and math.prod(self._grid(spacing, size)) <= self.size**3:
                return size
        return self.size

    def _covering(self, extent_mm: float) -> float:
        return extent_mm / self._most(lambda size: max(extent_mm / size, self.finest_mm))

    def around_click(self, index: npt.ArrayLike) -> list[Field]:
        """Return fields of growing size around a click, the finest first.

        Coarse scans are also oversampled, so that organs appear as large as in training.
        """
        spacings = [self.finest_mm]
        while spacings[-1] * self.growth < self.coarsest_mm * 0.8:
            spacings.append(spacings[-1] * self.growth)
        if self.coarsest_mm > 1.1 * spacings[-1]:
            spacings.append(self.coarsest_mm)
        if self.shape[0] > 1 and self.finest_mm * self.size > WIDE_MM:
            spacings.insert(0, self.finest_mm / 2)
        # A small field on a fine 2D image shows only texture, where every answer looks good.
        levels = min(self.max_levels, PLANAR_LEVELS) if self.shape[0] == 1 else self.max_levels
        return [self.field(index, s) for s in spacings[-levels:]]

    def windows_over(
        self, start: npt.ArrayLike, stop: npt.ArrayLike, in_plane_mm: float
    ) -> list[Field]:
        """Return overlapping fields of one spacing over a box of volume indices."""
        low, high = np.asarray(start, dtype=np.float64), np.asarray(stop, dtype=np.float64)
        probe = self.field((low + high) / 2, in_plane_mm)
        # At least a voxel: a damaged header may state axes of any length in-plane.
        stride = np.maximum(np.asarray(probe.shape) * np.asarray(probe.step) * 0.625, 1.0)
        axes = []
        for axis in range(3):
            if probe.shape[axis] == 1 and self.shape[0] > 1:
                axes.append(np.arange(low[axis], high[axis]))
                continue
            # The lattice is fixed to the volume, so that the next click can reuse the windows.
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
        """Return a field that contains a box, from its first to its last voxel, with some margin.

        Args:
            margin: In-plane size of the field relative to the box; at most 1.15 along depth.
            ends_count: Whether to leave out the margin beyond the scan's first and last slice.
        """
        low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        extent_mm = (high - low + 1) * np.asarray(self.spacing_mm)
        width = float(extent_mm[1:].max()) * margin
        in_plane = max(self._covering(width), self.finest_mm)
        centre = (low + high) / 2
        is_flat = self.shape[0] == 1 or high[0] - low[0] < 1
        half = (high[0] - low[0] + 1) * min(margin, 1.15) / 2
        first, last = centre[0] - half, centre[0] + half
        if ends_count:  # there is no image beyond them
            first, last = max(first, -0.5), min(last, self.shape[0] - 0.5)
        for _ in range(12):
            field = self.field(centre, in_plane, width)
            below, above = field.bounds()
            is_deep = above[0] - below[0] >= last - first - 1e-6
            if is_deep or (is_flat and field.shape[0] == 1) or in_plane >= self.largest_mm:
                return field
            in_plane *= 1.25
        return self.field(centre, in_plane, width)


def _aligned(centre: float, step: float, count: int) -> float:
    """Snap a field's centre so that its voxels coincide with the volume's, if equally large.

    Otherwise eight planes over seven slices would fall between them, each a mean of two.
    """
    if abs(step - 1) > 1e-6:
        return centre
    to_first = (count - 1) / 2
    return round(centre - to_first) + to_first


def face_contact(mask: npt.NDArray[np.bool_], field: Field, shape: tuple[int, int, int]) -> float:
    """Return how much a field's faces cut off a mask, 0 (not at all) to 1.

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
