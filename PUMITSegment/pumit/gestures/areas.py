"""Connected areas of a drawing, and the depth of each voxel in them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.errors import PromptError
from pumit.geometry import window_of
from pumit.gestures.middle_line import Cell
from pumit.volume import Volume

logger = logging.getLogger(__name__)

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MAX_AREAS = 16  # per drawing
_MAX_VOXELS = 2**21  # of a drawing's bounding box; larger ones are down-sampled
_MAX_CELLS = 2500  # for a path search of a fraction of a second
_TOUCHING = np.ones((3, 3, 3), bool)  # 26-connectivity


@dataclass(frozen=True)
class Depth:
    """Depth of each cell in an area, and the mapping from cells to voxels.

    Attributes:
        values: Distance to the border, mm, 0 outside; two axes for a thin sheet.
        cell_mm: Size of a cell along each axis.
        voxels: Function from N cells to volume indices (N, 3).
    """

    values: Floats
    cell_mm: tuple[float, ...]
    voxels: Callable[[Sequence[Cell]], Floats]

    def inner_part(self, inner: float) -> Depth:
        """Keep only cells deeper than a share of the maximum depth."""
        kept = self.values >= inner * self.values.max()
        return replace(self, values=np.where(kept, self.values, 0.0))

    def thinned(self) -> Depth:
        """Max-pool the depth to at most `_MAX_CELLS` cells for a path search."""
        if int((self.values > 0).sum()) <= _MAX_CELLS:
            return self
        step, pooled = min(self.cell_mm), self.values
        while int((pooled > 0).sum()) > _MAX_CELLS:
            step *= 1.4
            block = tuple(max(1, round(step / mm)) for mm in self.cell_mm)
            pooled, found = _pooled(self.values, block)
        size = tuple(mm * b for mm, b in zip(self.cell_mm, block, strict=True))
        fine = self.voxels
        return Depth(pooled, size, lambda cells: fine([tuple(found[c].tolist()) for c in cells]))

    def deepest(self) -> Cell:
        """Return the deepest cell; of several, the one in their middle."""
        cells = np.argwhere(self.values >= self.values.max() * (1 - 1e-6))
        places = cells * np.array(self.cell_mm)
        offset = ((places - places.mean(axis=0)) ** 2).sum(axis=1)
        return tuple(cells[int(offset.argmin())].tolist())


@dataclass(frozen=True)
class Area:
    """Voxels of one stroke or lasso.

    Attributes:
        mask: bool (d, h, w), on cells of `block` voxels.
        start: Volume index of the first cell's first voxel.
        block: Voxels per cell along each axis; all 1 unless the drawing is huge.
        spacing_mm: Spacing of the volume, (d, h, w).
        drawn: bool, the voxels from `start` on, at full resolution.
    """

    mask: Mask
    start: Integers
    block: Integers
    spacing_mm: tuple[float, ...]
    drawn: Mask

    def depth(self, *, is_filled: bool) -> Depth:
        """Compute the distance of the cells to the border; in 2D for a thin sheet."""
        size = tuple(float(mm * b) for mm, b in zip(self.spacing_mm, self.block, strict=True))
        across = _thin_axis(self.mask, size, is_filled)
        if across is None:
            solid = ndimage.binary_fill_holes(self.mask) if is_filled else self.mask
            return Depth(_distance(solid, size), size, self._voxels)
        flat = _seen(self.mask, across, is_filled)
        flat_size = tuple(s for axis, s in enumerate(size) if axis != across)
        middle = _middle_of_columns(self.mask, across)

        def lifted(cells: Sequence[Cell]) -> Floats:
            return self._voxels([(*c[:across], int(middle[c]), *c[across:]) for c in cells])

        return Depth(_distance(flat, flat_size), flat_size, lifted)

    def _voxels(self, cells: Sequence[Cell]) -> Floats:
        index = np.array(cells, dtype=np.int64).reshape(-1, 3) * self.block
        if (self.block > 1).any():
            index = index + np.array([self._drawn_in(corner) for corner in index])
        return np.asarray(index + self.start, dtype=np.float64)

    def _drawn_in(self, corner: Integers) -> Integers:
        """Return the drawn voxel nearest to a cell's middle, relative to the cell's start."""
        ends = corner + self.block
        cell = self.drawn[tuple(slice(a, b) for a, b in zip(corner, ends, strict=True))]
        middle = (np.array(cell.shape) - 1) // 2
        inside = np.argwhere(cell)
        if not len(inside):  # inside an outline
            return np.asarray(middle, dtype=np.int64)
        return np.asarray(inside[((inside - middle) ** 2).sum(axis=1).argmin()], dtype=np.int64)


def areas_of(
    drawn: npt.ArrayLike, start: Sequence[int], volume: Volume, name: str
) -> Iterator[Area]:
    """Yield the connected areas of a drawing, the largest first, at most `MAX_AREAS`.

    Args:
        drawn: bool (d, h, w), a crop of the volume's grid that begins at the voxel `start`.

    Raises:
        PromptError: If nothing is drawn, or the crop leaves the volume.
    """
    mask = np.asarray(drawn).astype(bool, copy=False)
    first = np.array([int(s) for s in start])
    if mask.ndim != 3 or len(first) != 3:
        raise PromptError(f"A {name} needs three axes (d, h, w), got shape {mask.shape}.")
    if (first < 0).any() or (first + mask.shape > volume.shape).any():
        raise PromptError(
            f"A {name} of {mask.shape} voxels that begins at {tuple(first.tolist())} leaves the "
            f"volume {volume.shape}; draw it inside the image."
        )
    window = window_of(mask)
    if window is None:
        raise PromptError(f"The {name} is empty; draw at least one voxel.")
    mask = mask[window]
    first = first + [s.start for s in window]
    block = _coarse_block(mask.shape, volume.spacing_mm)
    coarse = mask if (block == 1).all() else _pooled(mask, tuple(block.tolist()))[0]
    labels, count = ndimage.label(coarse, structure=_TOUCHING)
    if count > MAX_AREAS:
        logger.warning("Of a %s with %d parts the largest %d are used.", name, count, MAX_AREAS)
    boxes = ndimage.find_objects(labels)
    for i in np.argsort(-np.bincount(labels.ravel())[1:], kind="stable")[:MAX_AREAS]:
        low = np.array([s.start for s in boxes[i]]) * block
        high = np.array([s.stop for s in boxes[i]]) * block
        voxels = mask[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
        yield Area(labels[boxes[i]] == i + 1, first + low, block, volume.spacing_mm, voxels)


def _coarse_block(shape: tuple[int, ...], spacing_mm: tuple[float, ...]) -> Integers:
    """Return the voxels per cell along each axis that keep a drawing within `_MAX_VOXELS`."""
    step = min(spacing_mm)
    block = np.ones(3, dtype=np.int64)
    while np.prod(-(-np.array(shape) // block)) > _MAX_VOXELS:
        step *= 1.4
        # At most all voxels: `_pooled` pads to whole blocks.
        whole = zip(spacing_mm, shape, strict=True)
        block = np.array([min(max(1, round(step / mm)), n) for mm, n in whole])
    return block


def _pooled(values: npt.NDArray[Any], block: tuple[int, ...]) -> tuple[npt.NDArray[Any], Integers]:
    """Max-pool; return the maximum of each block, and its index (..., axes)."""
    padded = np.pad(values, [(0, -n % b) for n, b in zip(values.shape, block, strict=True)])
    count = tuple(n // b for n, b in zip(padded.shape, block, strict=True))
    split = padded.reshape([n for pair in zip(count, block, strict=True) for n in pair])
    rows = split.transpose([*range(0, split.ndim, 2), *range(1, split.ndim, 2)])
    rows = rows.reshape(*count, -1)
    within = np.array(np.unravel_index(rows.argmax(axis=-1), block))
    corner = np.moveaxis(np.indices(count), 0, -1) * np.array(block)
    return rows.max(axis=-1), corner + np.moveaxis(within, 0, -1)


def _distance(mask: Mask, size: tuple[float, ...]) -> Floats:
    """Return the distance of cells to the nearest background, mm; outside the array counts."""
    within = (slice(1, -1),) * mask.ndim
    return np.asarray(ndimage.distance_transform_edt(np.pad(mask, 1), sampling=size)[within])


def _seen(mask: Mask, across: int, is_filled: bool) -> Mask:
    """Return the projection of an area along an axis."""
    flat = mask.any(axis=across)
    return np.asarray(ndimage.binary_fill_holes(flat) if is_filled else flat, dtype=bool)


def _thin_axis(mask: Mask, size: tuple[float, ...], is_filled: bool) -> int | None:
    """Return the axis along which an area is a sheet, if only as thick as a brush or in steps."""
    if 1 in mask.shape:
        return mask.shape.index(1)
    seen = [int(mask.any(axis=axis).sum()) for axis in range(3)]
    thickness = [int(mask.sum()) / n * s for n, s in zip(seen, size, strict=True)]
    axis = int(np.argmin(thickness))
    rest = tuple(s for i, s in enumerate(size) if i != axis)
    return axis if thickness[axis] < _distance(_seen(mask, axis, is_filled), rest).max() else None


def _middle_of_columns(mask: Mask, across: int) -> Integers:
    """Return the index of the middle cell of each column along an axis.

    For empty columns, inside an outline, it is taken from the plane fitted to the others.
    """
    columns = np.moveaxis(mask, across, -1)
    order = np.cumsum(columns, axis=-1)
    half = (order[..., -1:] + 1) // 2
    middle = np.asarray((columns & (order == half)).argmax(axis=-1))
    is_empty = ~columns.any(axis=-1)
    if is_empty.any():
        along = np.moveaxis(np.array([*np.indices(is_empty.shape), np.ones(is_empty.shape)]), 0, -1)
        plane = np.linalg.lstsq(along[~is_empty], middle[~is_empty], rcond=None)[0]
        middle[is_empty] = np.clip(np.rint(along[is_empty] @ plane), 0, columns.shape[-1] - 1)
    return middle
