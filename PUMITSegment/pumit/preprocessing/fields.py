"""Fields: patches of a volume, resampled to any position, size and spacing, and their channels."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
PLANAR_DEGREE = 5  # degree of anisotropy from which a field is one slice
BINS = 128  # of the histogram that is equalised
CLIP = 4.0  # clip limit of histogram bins, times their mean, so that air does not dominate
# Above this, the difference of two values may overflow float32.
HALF_OF_SINGLE = float(np.finfo(np.float32).max) / 2


def interpolate(x: Floats, axis: int, at: npt.NDArray[np.floating[Any]]) -> Floats:
    """Interpolate x linearly along one axis at fractional indices, with replicated edges."""
    n = x.shape[axis]
    position = np.clip(at, 0, n - 1).astype(np.float32)
    lower = np.minimum(np.floor(position), max(n - 2, 0)).astype(np.intp)
    out = x.take(lower, axis)
    if n == 1:
        return out
    weight = (position - lower).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    upper = x.take(lower + 1, axis)
    upper -= out
    upper *= weight
    out += upper
    return out


def resampled(x: Floats, places: Sequence[npt.NDArray[np.floating[Any]]]) -> Floats:
    """Interpolate x (d, h, w) linearly at fractional indices along each axis.

    The axis that grows most is processed last, to save work.
    """
    growth = [len(at) / n for at, n in zip(places, x.shape, strict=True)]
    for axis in sorted(range(x.ndim), key=lambda a: (growth[a], -a)):
        x = interpolate(x, axis, places[axis])
    return x


@dataclass(frozen=True)
class Field:
    """A box of a volume, resampled to a grid.

    Attributes:
        centre_index: Centre of the box, continuous (d, h, w) voxel index of the volume.
        step: Volume voxels per field voxel along (d, h, w).
        shape: Field voxels (d, h, w).
        slice_ratio: Slice spacing over in-plane spacing, mm over mm.
        da0: Degree of anisotropy.
    """

    centre_index: tuple[float, float, float]
    step: tuple[float, float, float]
    shape: tuple[int, int, int]
    slice_ratio: float
    da0: int

    def to_field(self, index: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Map volume indices (..., 3) to field indices (..., 3)."""
        offset = np.asarray(index, dtype=np.float64) - np.asarray(self.centre_index)
        return offset / np.asarray(self.step) + (np.asarray(self.shape) - 1) / 2

    def to_volume(self, index: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Map field indices (..., 3) to volume indices (..., 3)."""
        offset = np.asarray(index, dtype=np.float64) - (np.asarray(self.shape) - 1) / 2
        return offset * np.asarray(self.step) + np.asarray(self.centre_index)

    def covers(self, index: npt.ArrayLike) -> bool:
        """Return whether the field contains all volume indices (..., 3)."""
        at = self.to_field(index)
        return bool(((at > -0.5) & (at < np.asarray(self.shape) - 0.5)).all())

    def places(self, axis: int) -> npt.NDArray[np.float64]:
        """Return the volume indices of the field's voxels along one axis, (n,)."""
        offset = np.arange(self.shape[axis]) - (self.shape[axis] - 1) / 2
        return np.asarray(offset * self.step[axis] + self.centre_index[axis])

    def along(
        self, axis: int, index: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Map volume indices along one axis, (n,), to field indices; also return which it has."""
        at = (index - self.centre_index[axis]) / self.step[axis] + (self.shape[axis] - 1) / 2
        return at, (at > -0.5) & (at < self.shape[axis] - 0.5)

    def bounds(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the outer faces, lower and upper (d, h, w), continuous volume indices."""
        half = np.asarray(self.shape) * np.asarray(self.step) / 2
        centre = np.asarray(self.centre_index)
        return centre - half, centre + half

    @property
    def prompt_ratio(self) -> float:
        """Depth scale of prompt coordinates; 0 for a single slice."""
        return 0.0 if self.da0 >= PLANAR_DEGREE else self.slice_ratio


def field_shape(da0: int, size: int) -> tuple[int, int, int]:
    """Return a field's shape: max(size >> da0, 1) slices of size x size, one slice in 2D."""
    return (1 if da0 >= PLANAR_DEGREE else max(size >> da0, 1), size, size)


def grids(shape: tuple[int, int, int], da0: int) -> list[tuple[int, int, int]]:
    """Return the grids of a field at full, 1/2, 1/4 and 1/8 in-plane resolution."""
    out = [shape]
    for level in range(3):
        d, h, w = out[-1]
        out.append((d if level < da0 else d // 2, h // 2, w // 2))
    return out


class Pyramid:
    """Image pyramid: a volume at full resolution and at increasingly coarse averages.

    Coarse fields are sampled from a coarse level, without aliasing and at a cost independent of the
    volume's size. Each level halves the finest axes, so voxels become isotropic.

    Args:
        array: Intensities, shape (D, H, W); kept by reference.
        spacing_mm: Voxel size (d, h, w), depth first, mm.
    """

    def __init__(
        self, array: npt.NDArray[np.generic], spacing_mm: tuple[float, float, float]
    ) -> None:
        self.array = array
        self.spacing_mm = spacing_mm

    @cached_property
    def levels(self) -> list[tuple[Floats | None, tuple[int, int, int]]]:
        """(Voxels, volume voxels per level voxel); voxels are None if averaged on demand."""
        levels: list[tuple[Floats | None, tuple[int, int, int]]] = [(None, (1, 1, 1))]
        source, waiting = self.array, []
        for pool, factor in _coarser(self.array.shape, self.spacing_mm):
            waiting.append(pool)
            voxels = None
            if not _is_sampled(factor):
                source = voxels = _blockwise_averaged(source, waiting)
                waiting = []
            levels.append((voxels, factor))
        return levels

    def _level_for(
        self, step: npt.NDArray[np.float64]
    ) -> tuple[Floats | None, tuple[int, int, int]]:
        chosen = self.levels[0]
        for level in self.levels[1:]:
            if all(f <= 1.01 * s for f, s in zip(level[1], step, strict=True)):
                chosen = level
        return chosen

    def sample(
        self, field: Field, rotation: npt.NDArray[np.float64] | None = None
    ) -> tuple[Floats, Floats]:
        """Resample a field.

        Args:
            rotation: 3 x 3 rotation of (d, h, w) offsets in mm about the centre, for augmentation.

        Returns:
            Intensities and an inside mask, each (d, h, w) float32.
        """
        # 1. Choose the coarsest level whose voxels are no larger than the field's.
        voxels, factor = self._level_for(np.asarray(field.step))
        # 2. Sub-slices per slice: thick slices are averages of thin ones.
        thick = int(np.clip(round(field.step[0] / factor[0]), 1, 4))
        shape = (field.shape[0] * thick, *field.shape[1:])
        # 3. Interpolate: axis by axis on an aligned grid, point by point on a rotated one.
        if rotation is None:
            axes = [
                offset * step + centre
                for offset, step, centre in zip(
                    _offsets(field.shape, shape), field.step, field.centre_index, strict=True
                )
            ]
            low, high = (
                np.array(ends) for ends in zip(*((a[0], a[-1]) for a in axes), strict=True)
            )
            region, offset = self._region(voxels, factor, low, high)
            image = region
            valid = []
            for axis, at in enumerate(axes):
                local = (at + 0.5) / factor[axis] - 0.5 - offset[axis]
                image = interpolate(image, axis, local)
                valid.append((at > -0.5) & (at < self.array.shape[axis] - 0.5))
            inside = box_of(valid).astype(np.float32)
        else:
            from scipy import ndimage  # slow to import, and interactive use never rotates

            matrix, centre = self._turn(field, rotation), np.asarray(field.centre_index)
            offsets = _offsets(field.shape, shape)
            first = np.array([o[0] for o in offsets])
            reach = np.abs(matrix) @ np.abs(first)
            region, offset = self._region(voxels, factor, centre - reach, centre + reach)
            image = ndimage.affine_transform(
                region,
                matrix * (np.asarray(field.shape) / shape) / np.asarray(factor)[:, None],
                (matrix @ first + centre + 0.5) / factor - 0.5 - np.asarray(offset),
                output_shape=shape,
                order=1,
                mode="nearest",
            )
            axes = _turned(offsets, matrix, centre)
            within = [
                (a > -0.5) & (a < n - 0.5) for a, n in zip(axes, self.array.shape, strict=True)
            ]
            inside = np.logical_and.reduce(within).astype(np.float32)
        # 4. Average the sub-slices inside the volume.
        if thick > 1:
            weight, slabs = (x.reshape(field.shape[0], thick, *shape[1:]) for x in (inside, image))
            total = weight.sum(1)
            of_inside = (slabs * weight).sum(1) / np.maximum(total, 1)
            image = np.where(total > 0, of_inside, slabs.mean(1))
            inside = (total >= thick / 2).astype(np.float32)
        return image, inside

    def sample_nearest(
        self, field: Field, rotation: npt.NDArray[np.float64] | None = None
    ) -> npt.NDArray[np.generic]:
        """Sample a field by nearest neighbour, for label maps, (d, h, w); 0 outside."""
        turn = np.eye(3) if rotation is None else rotation
        matrix, offsets = self._turn(field, turn), _offsets(field.shape, field.shape)
        axes = _turned(offsets, matrix, np.asarray(field.centre_index))
        d, h, w = (a.round().astype(np.intp) for a in axes)
        inside = np.logical_and.reduce(
            [(i >= 0) & (i < n) for i, n in zip((d, h, w), self.array.shape, strict=True)]
        )
        values = self.array[
            tuple(i.clip(0, n - 1) for i, n in zip((d, h, w), self.array.shape, strict=True))
        ]
        return np.where(inside, values, np.zeros_like(values))

    def _turn(self, field: Field, rotation: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the matrix (3, 3) from offsets in field voxels to offsets in volume voxels."""
        spacing = np.diag(np.asarray(self.spacing_mm, dtype=np.float64))
        return np.asarray(np.linalg.inv(spacing) @ rotation @ spacing @ np.diag(field.step))

    def _region(
        self,
        level: Floats | None,
        factor: tuple[int, int, int],
        low: npt.NDArray[np.float64],
        high: npt.NDArray[np.float64],
    ) -> tuple[Floats, tuple[int, int, int]]:
        """Return the crop of a level that covers volume indices low .. high, and its offset."""
        starts, stops = [], []
        for axis in range(3):
            n = self.array.shape[axis] // factor[axis] if level is None else level.shape[axis]
            start = int(np.floor((low[axis] + 0.5) / factor[axis])) - 2
            stop = int(np.ceil((high[axis] + 0.5) / factor[axis])) + 2
            starts.append(min(max(start, 0), n - 1))
            stops.append(max(min(stop, n), starts[-1] + 1))
        if level is None:
            window = (slice(a * f, b * f) for a, b, f in zip(starts, stops, factor, strict=True))
            crop = _blockwise_averaged(self.array[tuple(window)], [factor])
        else:
            crop = level[tuple(slice(a, b) for a, b in zip(starts, stops, strict=True))]
        return crop, (starts[0], starts[1], starts[2])


def box_of(axes: Sequence[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    """Combine bool arrays along three axes by `and` to a bool array (d, h, w)."""
    d, h, w = axes
    return np.asarray(d[:, None, None] & h[:, None] & w)


def _is_sampled(factor: tuple[int, int, int]) -> bool:
    """Return whether a level is averaged on demand; stored, it is half as large as int16 voxels."""
    return factor == (1, 2, 2)


def _blockwise_averaged(source: npt.NDArray[np.generic], pools: Sequence[Sequence[int]]) -> Floats:
    """Apply several poolings, float32, block by block along depth to bound memory."""
    shape, depth = np.array(source.shape), 1
    for pool in pools:
        shape, depth = shape // pool, depth * pool[0]
    out = np.empty(shape, dtype=np.float32)
    block = max(8 // depth, 1)
    for start in range(0, len(out), block):
        chunk = np.ascontiguousarray(source[start * depth : (start + block) * depth], np.float32)
        for pool in pools:
            chunk = averaged(chunk, pool)
        out[start : start + block] = chunk
    return out


def averaged(array: Floats, pool: Sequence[int]) -> Floats:
    """Average (D, H, W) over blocks of one or two voxels per axis; a remainder is dropped."""
    try:
        with np.errstate(over="raise"):
            return _averaged(array, pool)
    except FloatingPointError:  # the sum overflows float32, the mean does not
        scale = np.float32(1 / max(math.prod(pool), 1))
        return _averaged(array * scale, pool) / scale


def _averaged(array: Floats, pool: Sequence[int]) -> Floats:
    out, scale = array, 1.0
    for axis in (2, 1, 0):  # the last axis first, which is contiguous
        if pool[axis] == 2:
            n = out.shape[axis] // 2 * 2
            rows: list[slice] = [slice(None)] * axis
            out = out[(*rows, slice(0, n, 2))] + out[(*rows, slice(1, n, 2))]
            scale /= 2
    return out * np.float32(scale) if scale < 1 else out


def level_bytes(shape: tuple[int, ...], spacing_mm: tuple[float, float, float]) -> int:
    """Return the memory of the coarser levels of a volume, bytes.

    Args:
        spacing_mm: Voxel size (d, h, w), depth first, mm.
    """
    total, size = 0, shape
    for pool, factor in _coarser(shape, spacing_mm):
        size = tuple(n // p for n, p in zip(size, pool, strict=True))
        total += 0 if _is_sampled(factor) else 4 * math.prod(size)
    return total


def _coarser(
    shape: tuple[int, ...], spacing_mm: tuple[float, float, float]
) -> Iterator[tuple[list[int], tuple[int, int, int]]]:
    """Yield each coarser level's pooling of the previous level, and of the volume."""
    factor = (1, 1, 1)
    while True:
        spacing = [s * f for s, f in zip(spacing_mm, factor, strict=True)]
        size = [n // f for n, f in zip(shape, factor, strict=True)]
        # A short axis is no longer pooled.
        long = [s for s, n in zip(spacing[1:], size[1:], strict=True) if n >= 16]
        if not long:
            return
        pool = [
            2 if s < 1.5 * min(long) and n >= 16 else 1 for s, n in zip(spacing, size, strict=True)
        ]
        d, h, w = (f * p for f, p in zip(factor, pool, strict=True))
        factor = (d, h, w)
        yield pool, factor


def _offsets(field: Sequence[int], shape: Sequence[int]) -> list[npt.NDArray[np.float64]]:
    """Return offsets of `shape` points from a field's centre, in field voxels, per axis."""
    return [((np.arange(n) + 0.5) / n - 0.5) * m for n, m in zip(shape, field, strict=True)]


def _turned(
    offsets: Sequence[npt.NDArray[np.float64]],
    matrix: npt.NDArray[np.float64],
    centre: npt.NDArray[np.float64],
) -> list[npt.NDArray[np.float64]]:
    """Return the volume indices of a rotated field's sample points.

    Args:
        matrix: From these offsets to offsets in the volume, (3, 3).
        centre: Centre of the field, volume index (3,).

    Returns:
        Three arrays (d, h, w).
    """
    d, h, w = offsets
    return [
        (d[:, None, None] * row[0] + (h[:, None] * row[1] + (w * row[2] + at)))
        for row, at in zip(matrix, centre, strict=True)
    ]


def equalizing_steps(values: Floats) -> Floats:
    """Compute the mapping of contrast-limited histogram equalisation at the bin borders.

    Args:
        values: Intensities in [0, 1], any shape.

    Returns:
        Shape (BINS + 1,), rising from 0 to 1.
    """
    bins = np.minimum(values.reshape(-1) * np.float32(BINS), BINS - 1).astype(np.uint8)
    counts = np.bincount(bins, minlength=BINS).astype(np.float32)
    counts = np.minimum(counts, CLIP * counts.mean())
    steps = np.concatenate((np.zeros(1, np.float32), counts.cumsum(dtype=np.float32)))
    return np.asarray(steps / max(float(steps[-1]), 1e-12))


def equalized(linear: Floats, steps: Floats) -> Floats:
    """Equalise intensities in [0, 1] with the output of `equalizing_steps`, linear within a bin."""
    position = linear * np.float32(BINS)
    lower = np.minimum(position, BINS - 1).astype(np.intp)
    position -= lower
    return np.asarray(steps[lower] + np.diff(steps)[lower] * position)


def field_channels(image: Floats, inside: Floats) -> Floats:
    """Compute a field's input channels: linear intensity, equalised intensity, inside mask.

    Scaling and equalisation (contrast-limited, of the histogram) use only the field itself, so a
    small field on soft tissue in CT gets its own contrast.

    Args:
        image: Intensities, shape (D, H, W), any range.
        inside: 1 inside the volume, 0 outside, shape (D, H, W).

    Returns:
        Shape (3, D, H, W), each in [0, 1]; 0 outside the volume.
    """
    is_inside = inside > 0.5
    values = image[is_inside]
    channels = np.zeros((3, *image.shape), dtype=np.float32)
    if values.size == 0:
        return channels
    ends = [round(q * (values.size - 1)) for q in (0.005, 0.995)]
    low, high = (float(v) for v in np.partition(values, ends)[ends])
    if not high > low:
        low, high = float(values.min()), float(values.max())
    if high - low > HALF_OF_SINGLE:
        values, low, high = values * np.float32(0.25), low / 4, high / 4
    with np.errstate(over="ignore"):  # overflow is clipped below
        linear = (values - np.float32(low)) / np.float32(max(high - low, 1e-12))
    linear = linear.clip(0, 1)
    channels[0][is_inside] = linear
    channels[1][is_inside] = equalized(linear, equalizing_steps(linear))
    channels[2] = is_inside
    return channels
