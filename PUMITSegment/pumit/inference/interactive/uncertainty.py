"""Uncertain regions: places on an answer's border that are probably wrong.

A voxel's uncertainty is the difference between its label and the mean probability over the answer
and all fields. It is high along blurred borders and where the fields disagree. Its local mean is
the expected share of wrong voxels. Other cues found no more real errors in tests and are not used.
These were answers to the flipped image, to moved prompts and without the previous answer, missing
image edges, and the distance from the clicks.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.geometry import window_of
from pumit.inference.interactive.grid_transfer import Floats, LogitBox, sigmoid
from pumit.inference.interactive.solver_state import SolverState
from pumit.models.overlap import Evidence
from pumit.preprocessing.fields import box_of, resampled

SAMPLED_VOXELS = 400_000
REACH = 0.1  # radius of a region: the Gaussian's standard deviation over the segment's size
APART = 2.5  # minimum distance between two regions, in radii
MARGIN = 2  # around the answer's box, where other fields may have foreground


@dataclass(frozen=True, eq=False)
class IndexedRegion:
    """An uncertain region on the grid of the volume.

    Attributes:
        index: Volume index (d, h, w), depth axis first.
        share: Expected share of wrong voxels around it, 0 to 1.
        reach_mm: Radius of the region, mm.
        weighed_mm3: Integral of the Gaussian weight around it, mm3.
    """

    index: npt.NDArray[np.int64]
    share: float
    reach_mm: float
    weighed_mm3: float


@dataclass(frozen=True, eq=False)
class _Lattice:
    """A regular subsample of the voxels in a box: indices, voxels and mm between points by axis."""

    at: tuple[npt.NDArray[np.int64], ...]
    step: npt.NDArray[np.int64]
    spacing_mm: npt.NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.at))


def uncertain_regions(
    answer: SolverState,
    shape: tuple[int, ...],
    spacing_mm: tuple[float, float, float],
    *,
    count: int = 5,
) -> list[IndexedRegion]:
    """Find at most `count` regions where an answer may be wrong, the most uncertain first.

    They are a minimum distance apart. Each index is a border voxel in the slice that shows most of
    the uncertainty around it.
    """
    if answer.patch is None:
        return []
    # 1. Sample the answer on a lattice, coarse enough for scans of any size.
    lattice = _lattice(answer.patch, shape, spacing_mm)
    own = _on_lattice(answer.patch, lattice)
    mask = own > 0
    if not mask.any():
        return []
    # 2. Error probability at each lattice point: disagreement of the fields with the answer.
    wrong = np.abs(mask - _mean_opinion(own, answer, lattice))
    return _places(mask, wrong, lattice, answer.patch.logits > 0, answer.patch.start, count=count)


def doubtful_places(
    mask: npt.NDArray[np.bool_],
    doubt: npt.NDArray[np.uint8],
    spacing_mm: tuple[float, float, float],
    *,
    count: int = 5,
) -> list[npt.NDArray[np.int64]]:
    """Find border voxels where the mask of an automatic model may be wrong, the worst first.

    Args:
        doubt: Probability that a voxel's label is wrong, scaled to 0 to 255, (D, H, W).
    """
    window = window_of(mask)
    if window is None:
        return []
    start = tuple(max(s.start - MARGIN, 0) for s in window)
    box = tuple(slice(a, s.stop + MARGIN) for a, s in zip(start, window, strict=True))
    whole = mask[box]
    step = _step(whole.shape, spacing_mm)
    at = tuple(np.arange(a, a + n, s) for a, n, s in zip(start, whole.shape, step, strict=True))
    sampled = tuple(slice(None, None, int(s)) for s in step)
    lattice = _Lattice(at, step, np.asarray(spacing_mm) * step)
    shown = whole[sampled]
    if not shown.any():
        return []
    wrong = doubt[box][sampled].astype(np.float32) / 255
    return [p.index for p in _places(shown, wrong, lattice, whole, start, count=count)]


def _places(
    mask: npt.NDArray[np.bool_],
    wrong: npt.NDArray[np.floating[Any]],
    lattice: _Lattice,
    whole: npt.NDArray[np.bool_],
    start: tuple[int, ...],
    *,
    count: int,
) -> list[IndexedRegion]:
    """Find the places on a mask's border with the highest expected error around them.

    Args:
        mask: The mask on the lattice.
        wrong: Error probability at each lattice point.
        whole: The mask at full resolution in a box that contains it, which begins at `start`.
    """
    # 3. Local mean of the error probability, over a radius proportional to the structure's size.
    voxel = lattice.spacing_mm[1:] if lattice.shape[0] == 1 else lattice.spacing_mm
    size_mm = float(mask.sum() * voxel.prod()) ** (1 / len(voxel))
    reach_mm = max(REACH * size_mm, 1.5 * lattice.spacing_mm[1])
    points = np.asarray(lattice.shape)
    # Bounded, as the filter's kernel is as large: a damaged header may state any spacing.
    sigma = np.minimum(reach_mm / lattice.spacing_mm, 8 * points) * (points > 1)
    error_share = ndimage.gaussian_filter(wrong, sigma, mode="constant", truncate=2)
    in_slice = ndimage.gaussian_filter(wrong, (0, *sigma[1:]), mode="constant", truncate=2)
    # 4. Pick border places, the most uncertain first, with a minimum distance between them.
    border = np.argwhere(_border(mask))
    at_border = error_share[tuple(border.T)]
    open_places = np.ones(len(border), dtype=bool)
    lengths = np.maximum(math.sqrt(2 * math.pi) * reach_mm, lattice.spacing_mm / lattice.step)
    regions: list[IndexedRegion] = []
    while open_places.any() and len(regions) < count:
        best = border[np.flatnonzero(open_places)[int(at_border[open_places].argmax())]]
        distance = np.linalg.norm((border - best) * lattice.spacing_mm, axis=1)
        # Move to the nearby slice that shows most of the uncertainty.
        around = np.flatnonzero(open_places & (distance <= reach_mm))
        shown = border[around[int(in_slice[tuple(border[around].T)].argmax())]]
        index = np.array([a[i] for a, i in zip(lattice.at, shown, strict=True)])
        index = _at_border(whole, start, index, lattice.step)
        share = float(error_share[tuple(best)].clip(0, 1))
        regions.append(IndexedRegion(index, share, reach_mm, float(lengths.prod())))
        for taken in (best, shown):
            away = np.linalg.norm((border - taken) * lattice.spacing_mm, axis=1)
            open_places &= away > APART * reach_mm
    return regions


def evidence_of(
    answer: SolverState,
    before: SolverState | None,
    image: npt.NDArray[Any],
    spacing_mm: tuple[float, float, float],
) -> Evidence | None:
    """Compute quality features of an answer without ground truth; None if it is empty.

    Args:
        before: Answer to all prompts but the newest, or None for the first.
        image: The scan, (D, H, W), depth axis first.
    """
    if answer.patch is None:
        return None
    # 1. Sample the answer on a coarse lattice.
    lattice = _lattice(answer.patch, image.shape, spacing_mm)
    own = _on_lattice(answer.patch, lattice)
    mask = own > 0
    size = int(mask.sum())
    if size == 0:
        return None
    # 2. Disagreement of the fields.
    wrong = np.abs(mask - _mean_opinion(own, answer, lattice))
    # 3. The mask's border, near which the rest of the lattice is not needed.
    window = window_of(mask)
    assert window is not None
    near = tuple(slice(max(s.start - 1, 0), s.stop + 1) for s in window)
    inside = mask[near]
    in_slice = np.zeros((3, 3, 3), dtype=bool)
    in_slice[1] = ndimage.generate_binary_structure(2, 1)
    inner = ndimage.binary_erosion(inside, in_slice)
    rim = inside & ~inner
    border = int(rim.sum())
    # Share of the border on image edges: gradient above the interior's median.
    read = (_every(n, a[s]) for n, a, s in zip(lattice.step, lattice.at, near, strict=True))
    voxels = image[tuple(read)].astype(np.float32)
    slope = np.hypot(ndimage.sobel(voxels, 1), ndimage.sobel(voxels, 2))
    edge = float((slope[rim] > np.median(slope[inner if inner.any() else inside])).mean())
    # 4. Dice with the answer before the newest prompt.
    agreement = None
    if before is not None and before.patch is not None:
        earlier = _on_lattice(before.patch, lattice) > 0
        agreement = 2 * int((mask & earlier).sum()) / (size + int(earlier.sum()))
    return Evidence(
        answer.iou,
        float(wrong.sum()) / size,
        size * int(lattice.step.prod()),
        2 * size / border * math.sqrt(lattice.step[1] * lattice.step[2]),
        agreement,
        float(sigmoid(own[mask]).mean()),
        edge,
    )


def _lattice(
    patch: LogitBox, shape: tuple[int, ...], spacing_mm: tuple[float, float, float]
) -> _Lattice:
    """Return a nearly isotropic lattice over a patch with a bounded number of points."""
    size, step = patch.logits.shape, _step(patch.logits.shape, spacing_mm)
    axes = []
    for start, length, limit, each in zip(patch.start, size, shape, step, strict=True):
        # Points are at multiples of the step from the patch's first voxel.
        below = min(MARGIN, start // int(each))
        above = math.ceil(length / each) + MARGIN
        at = start + np.arange(-below, above) * each
        axes.append(at[at < limit])
    return _Lattice(tuple(axes), step, np.asarray(spacing_mm) * step)


def _step(shape: tuple[int, ...], spacing_mm: tuple[float, float, float]) -> npt.NDArray[np.int64]:
    """Return the lattice step in voxels that keeps the number of points within the limit."""
    spacing, size = np.asarray(spacing_mm), np.asarray(shape)
    step = np.ones(3, dtype=np.int64)
    while np.prod(np.ceil(size / step)) > SAMPLED_VOXELS:
        step[int(np.argmin(step * spacing + 1e12 * (size <= step)))] += 1
    return step


def _at_border(
    mask: npt.NDArray[np.bool_],
    start: tuple[int, ...],
    index: npt.NDArray[np.int64],
    step: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the full-resolution border voxel nearest to a lattice point."""
    if (step == 1).all():
        return index
    local = index - start
    low = np.maximum(local - step, 0)
    near = tuple(slice(a, b + s + 1) for a, b, s in zip(low, local, step, strict=True))
    voxels = np.argwhere(_border(mask[near])) + low
    return np.asarray(voxels[int(((voxels - local) ** 2).sum(1).argmin())] + start)


def _on_lattice(patch: LogitBox, lattice: _Lattice) -> Floats:
    """Return a patch's logits at the lattice points; background outside the patch."""
    out = np.full(lattice.shape, -8.0, dtype=np.float32)
    inside, places = [], []
    for at, step, window in zip(lattice.at, lattice.step, patch.window, strict=True):
        hit = np.flatnonzero((at >= window.start) & (at < window.stop))
        if not hit.size:
            return out
        inside.append(slice(hit[0], hit[-1] + 1))
        places.append(_every(step, at[hit] - window.start))
    np.clip(patch.logits[tuple(places)], -8, 8, out=out[tuple(inside)])
    return out


def _every(step: int, at: npt.NDArray[np.int64]) -> slice:
    """Return evenly spaced indices as a slice, which is read several times as fast."""
    return slice(int(at[0]), int(at[-1]) + 1, int(step))


def _mean_opinion(own: Floats, answer: SolverState, lattice: _Lattice) -> Floats:
    """Return the mean foreground probability over the answer and all fields.

    Where a field does not cover a point, the answer's probability stands in for it.
    """
    probability = (1 / (1 + np.exp(-own))).astype(np.float32)
    total, count = probability.copy(), 1
    for view in answer.views:
        if view.logits is not None:
            pairs = (view.field.along(i, at) for i, at in enumerate(lattice.at))
            places, valid = zip(*pairs, strict=True)
            total += np.where(box_of(valid), sigmoid(resampled(view.logits, places)), probability)
            count += 1
    return np.asarray(total / count)


def _border(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return foreground points next to background; the edge of the array is no border."""
    around = ndimage.generate_binary_structure(3, 1)
    border = mask & ~ndimage.binary_erosion(mask, around, border_value=1)
    return border if border.any() else mask
