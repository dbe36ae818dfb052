"""Fields: what a network sees of a volume, at any place, size and spacing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.preprocessing.coarsest_axis import depth_first as depth_first

PLANAR_DEGREE = 5  # from here on a field is one slice


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

    def bounds(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Outer faces of the box, lower and upper (d, h, w), continuous volume indices."""
        half = np.asarray(self.shape) * np.asarray(self.step) / 2
        centre = np.asarray(self.centre_index)
        return centre - half, centre + half

    @property
    def prompt_ratio(self) -> float:
        """Depth scale of prompt coordinates: 0 where depth does not count (one slice)."""
        return 0.0 if self.da0 >= PLANAR_DEGREE else self.slice_ratio


def field_shape(da0: int, size: int) -> tuple[int, int, int]:
    """Grid of a field: max(size >> da0, 1) slices of size x size, and one slice in 2D."""
    return (1 if da0 >= PLANAR_DEGREE else max(size >> da0, 1), size, size)


class Pyramid:
    """A volume at full resolution and at coarser and coarser averages.

    A coarse field is sampled from a coarse level: no aliasing, and a cost that does not grow with
    the volume. Each level halves the axes that are finest, so voxels become isotropic on the way.

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
    def levels(self) -> list[tuple[Tensor | None, tuple[int, int, int]]]:
        """(Voxels, volume voxels per level voxel); the first level is `array` itself (None)."""
        levels: list[tuple[Tensor | None, tuple[int, int, int]]] = [(None, (1, 1, 1))]
        for pool, factor in _coarser(self.array.shape, self.spacing_mm):
            levels.append((self._averaged(levels[-1][0], pool), factor))
        return levels

    def _averaged(self, previous: Tensor | None, pool: list[int]) -> Tensor:
        """One level up, float32; block by block along depth so that memory stays small."""
        if previous is not None:
            return _means(previous, pool)
        d = self.array.shape[0]
        block = max(8 // pool[0] * pool[0], pool[0])
        parts = []
        for start in range(0, d - d % pool[0], block):
            stop = min(start + block, d - d % pool[0])
            chunk = torch.from_numpy(np.ascontiguousarray(self.array[start:stop], dtype=np.float32))
            parts.append(_means(chunk, pool))
        return torch.cat(parts)

    def _level_for(
        self, step: npt.NDArray[np.float64]
    ) -> tuple[Tensor | None, tuple[int, int, int]]:
        chosen = self.levels[0]
        for level in self.levels[1:]:
            if all(f <= 1.01 * s for f, s in zip(level[1], step, strict=True)):
                chosen = level
        return chosen

    def sample(
        self, field: Field, rotation: npt.NDArray[np.float64] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Resample a field.

        Args:
            field: Where and how.
            rotation: Optional 3 x 3 matrix on (d, h, w) offsets in millimetres about the centre
                (augmentation).

        Returns:
            Intensities and an inside mask, each (d, h, w) float32.
        """
        tensor, factor = self._level_for(np.asarray(field.step))
        matrix = _index_matrix(field, self.spacing_mm, rotation)  # field offset -> volume offset
        # Thick slices out of thin ones: average sub-slices.
        thick = int(np.clip(round(field.step[0] / factor[0]), 1, 4))
        corner = _corners(field.shape) @ matrix.T + np.asarray(field.centre_index)
        low, high = corner.min(0), corner.max(0)
        region, offset = self._region(tensor, factor, low, high)
        shape = (field.shape[0] * thick, *field.shape[1:])
        grid = _grid(field.shape, shape, matrix, np.asarray(field.centre_index))
        local = (grid + 0.5) / torch.tensor(factor) - 0.5 - torch.tensor(offset)
        size = torch.tensor(region.shape)
        normal = ((local + 0.5) / size * 2 - 1).flip(-1).float()
        image = F.grid_sample(
            region[None, None],
            normal[None],
            mode="bilinear",
            padding_mode="border",
            align_corners=False,
        )[0, 0]
        limit = torch.tensor(self.array.shape)
        inside = ((grid > -0.5) & (grid < limit - 0.5)).all(-1).float()
        if thick > 1:
            weight = inside.reshape(field.shape[0], thick, *field.shape[1:])
            slabs = image.reshape(field.shape[0], thick, *field.shape[1:])
            total = weight.sum(1)
            image = torch.where(
                total > 0, (slabs * weight).sum(1) / total.clamp_min(1), slabs.mean(1)
            )
            inside = (total >= thick / 2).float()
        return image, inside

    def sample_nearest(
        self, field: Field, rotation: npt.NDArray[np.float64] | None = None
    ) -> Tensor:
        """Nearest voxel values, (d, h, w); 0 outside. For label maps."""
        matrix = _index_matrix(field, self.spacing_mm, rotation)
        grid = (
            _grid(field.shape, field.shape, matrix, np.asarray(field.centre_index)).round().long()
        )
        limit = torch.tensor(self.array.shape)
        inside = ((grid >= 0) & (grid < limit)).all(-1)
        d, h, w = grid.clamp_min(0).minimum(limit - 1).unbind(-1)
        values = torch.from_numpy(np.ascontiguousarray(self.array[d.numpy(), h.numpy(), w.numpy()]))
        return torch.where(inside, values, torch.zeros_like(values))

    def _region(
        self,
        tensor: Tensor | None,
        factor: tuple[int, int, int],
        low: npt.NDArray[np.float64],
        high: npt.NDArray[np.float64],
    ) -> tuple[Tensor, tuple[int, int, int]]:
        """Crop of a level that covers volume indices low .. high, and its offset in that level."""
        source = self.array if tensor is None else tensor
        starts, stops = [], []
        for axis in range(3):
            n = source.shape[axis]
            start = int(np.floor((low[axis] + 0.5) / factor[axis])) - 2
            stop = int(np.ceil((high[axis] + 0.5) / factor[axis])) + 2
            starts.append(min(max(start, 0), n - 1))
            stops.append(max(min(stop, n), starts[-1] + 1))
        window = tuple(slice(a, b) for a, b in zip(starts, stops, strict=True))
        if tensor is None:
            crop = torch.from_numpy(np.ascontiguousarray(self.array[window], dtype=np.float32))
        else:
            crop = tensor[window]
        return crop, (starts[0], starts[1], starts[2])


def level_bytes(shape: tuple[int, ...], spacing_mm: tuple[float, float, float]) -> int:
    """What all coarser levels of a volume take, bytes, before any of them is made.

    Args:
        shape: Grid (d, h, w).
        spacing_mm: Voxel size (d, h, w), depth first, mm.
    """
    total, size = 0, shape
    for pool, _ in _coarser(shape, spacing_mm):
        size = tuple(n // p for n, p in zip(size, pool, strict=True))
        total += 4 * math.prod(size)
    return total


def _coarser(
    shape: tuple[int, ...], spacing_mm: tuple[float, float, float]
) -> Iterator[tuple[list[int], tuple[int, int, int]]]:
    """For each coarser level, what it averages of the one before and of the volume."""
    factor = (1, 1, 1)
    while True:
        spacing = [s * f for s, f in zip(spacing_mm, factor, strict=True)]
        size = [n // f for n, f in zip(shape, factor, strict=True)]
        # A short axis keeps its voxels, and the others go on without it.
        long = [s for s, n in zip(spacing[1:], size[1:], strict=True) if n >= 16]
        if not long:
            return
        pool = [
            2 if s < 1.5 * min(long) and n >= 16 else 1 for s, n in zip(spacing, size, strict=True)
        ]
        d, h, w = (f * p for f, p in zip(factor, pool, strict=True))
        factor = (d, h, w)
        yield pool, factor


def _means(voxels: Tensor, pool: list[int]) -> Tensor:
    """Means of 1 or 2 voxels along each axis; what is left over at an end is left out.

    The same as `avg_pool3d`, which takes a single channel voxel by voxel in one thread: sums of
    slices take a fifth of its time.
    """
    for axis in (2, 1, 0):  # the last axis first: its neighbours lie together
        if pool[axis] == 2:
            count = voxels.shape[axis] // 2
            first, second = (voxels.transpose(0, axis)[i : 2 * count : 2] for i in (0, 1))
            voxels = (first + second).transpose(0, axis)
    return voxels / math.prod(pool)


def _index_matrix(
    field: Field, spacing_mm: tuple[float, float, float], rotation: npt.NDArray[np.float64] | None
) -> npt.NDArray[np.float64]:
    """Matrix from field-index offsets to volume-index offsets."""
    step = np.diag(np.asarray(field.step, dtype=np.float64))
    if rotation is None:
        return step
    spacing = np.diag(np.asarray(spacing_mm, dtype=np.float64))
    return np.linalg.inv(spacing) @ rotation @ spacing @ step


def _corners(shape: tuple[int, int, int]) -> npt.NDArray[np.float64]:
    """Offsets of the eight outer corners from the centre, in field voxels, (8, 3)."""
    half = np.asarray(shape) / 2
    signs = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1], indexing="ij"), -1).reshape(-1, 3)
    return signs * half


def _grid(
    field: tuple[int, int, int],
    shape: tuple[int, int, int],
    matrix: npt.NDArray[np.float64],
    centre: npt.NDArray[np.float64],
) -> Tensor:
    """Volume indices of the sample points, (*shape, 3); `shape` refines `field`."""
    axes = []
    for n, m in zip(shape, field, strict=True):
        axes.append(((torch.arange(n, dtype=torch.float64) + 0.5) / n - 0.5) * m)
    offset = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
    return offset @ torch.from_numpy(matrix).T + torch.from_numpy(centre)
