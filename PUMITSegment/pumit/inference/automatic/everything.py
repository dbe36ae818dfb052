"""Segment everything: prompt a promptable model on a grid of points and keep its best masks.

The method follows SAM's automatic mask generator (Kirillov et al. 2023, appendix B): a regular
grid of points at several scales, masks filtered by estimated IoU and stability, and non-maximum
suppression of duplicates.

Differs from the source: 3D fields instead of crops. Duplicates are found by overlap of masks, not
of boxes. A point inside a mask already found at its scale is skipped, because in 3D most points are
inside something large. Masks cut off by a field are left to the coarser scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage
from skimage.filters import threshold_otsu

from pumit.errors import PumitError
from pumit.inference.automatic.region import Region
from pumit.inference.interactive.field_planner import face_contact
from pumit.inference.interactive.grid_transfer import (
    Box,
    Floats,
    common,
    start_of,
    to_volume,
    within,
)
from pumit.inference.interactive.index_prompts import IndexPrompts, in_field
from pumit.inference.interactive.prompt_solver import PromptSolver
from pumit.inference.interactive.session import InteractiveSession
from pumit.preprocessing.fields import Field
from pumit.segmentation import ClassLabel, LabelMap
from pumit.system.watch import UNWATCHED, Watch

Mask = npt.NDArray[np.bool_]

# Score penalty of a mask that is cut off by its field, as with clicks.
_CONTACT_PENALTY = 0.5
# Approximate number of voxels sampled to find the body.
_BODY_VOXELS = 500_000
# The point grids: points along the in-plane side of a field, and how often fields are halved.
POINTS_PER_SIDE, LEVELS = 6, 2
MIN_IOU, MIN_STABILITY = 0.2, 0.4
MAX_CONTACT = 0.5  # maximum cut-off by the field; see `face_contact`
MAX_OVERLAP = 0.3  # IoU from which two masks are duplicates
MAX_INSIDE = 0.5  # maximum share of a mask inside a better one
MAX_SHARE = 0.5  # maximum share of the body in one segment
MIN_VOXELS, MAX_SEGMENTS = 30, 40


@dataclass(frozen=True, eq=False)
class _MaskBox:
    """A mask on a box of the volume's grid, depth first."""

    box: Box
    mask: Mask
    score: float

    @property
    def size(self) -> int:
        return int(self.mask.sum())

    def within(self, box: Box) -> Mask:
        return self.mask[within(box, start_of(self.box))]

    def holds(self, index: npt.NDArray[np.int64]) -> bool:
        at = common(self.box, tuple(slice(i, i + 1) for i in index))
        return at is not None and bool(self.within(at).all())

    def repeats(self, better: _MaskBox) -> bool:
        """Return whether it duplicates a better mask, or is mostly inside it."""
        shared, size = common(self.box, better.box), self.size
        both = 0 if shared is None else int((self.within(shared) & better.within(shared)).sum())
        is_same = both / (size + better.size - both) >= MAX_OVERLAP
        return is_same or both / size > MAX_INSIDE


def segment_everything(
    session: InteractiveSession,
    *,
    roi_corners_lps: Sequence[Sequence[float]] | None = None,
    watch: Watch = UNWATCHED,
) -> LabelMap:
    """Segment all distinct structures without prompts or classes.

    Costs one decoding per point, often hundreds in total.

    Args:
        session: A session with an open volume; uses its embeddings and keeps its prompts.
        roi_corners_lps: Eight corners of a region, rotated or not, LPS mm; None for the body.

    Returns:
        "Structure 1", "Structure 2", ..., the largest first. Where they overlap, a voxel belongs to
        the smallest.

    Raises:
        Cancelled: If the caller cancelled it.
        PromptError: If the region is outside the volume.
        PumitError: If the model is SAM.
    """
    # 1. Target: the region within the body, (D, H, W), in the network's axis order.
    if session.segmenter.make_solver is not None:
        raise PumitError("SAM answers clicks and boxes; choose PUMIT's model to find everything.")
    solver, order = session.solver, session.order
    region_mask = np.ones(session.volume.shape, dtype=bool)
    if roi_corners_lps is not None:
        region = Region.between(roi_corners_lps, session.volume)
        region_mask[:] = False
        region_mask[region.window] = region.inside
    region_mask = region_mask.transpose(order)
    body = body_mask(solver)
    target = body & region_mask if (body & region_mask).any() else region_mask
    most = MAX_SHARE * int(body.sum())
    # 2. Point grids, from coarse to fine; finer ones find smaller structures.
    planner = solver.planner
    halved = (planner.coarsest_mm / 2**i for i in range(LEVELS))
    spacings = dict.fromkeys(max(mm, planner.finest_mm) for mm in halved)
    levels = [_points(solver, target, mm) for mm in spacings]
    total = sum(len(points) for level in levels for points in level.values())
    prompted = 0
    # 3. Prompt at every point not covered by a mask of its grid, and keep distinct masks.
    found: list[_MaskBox] = []
    for level in levels:
        own: list[_MaskBox] = []
        for where, points in level.items():
            for point in points:
                watch.check()
                watch.report(prompted / total)
                prompted += 1
                if not any(mask.holds(point) for mask in own):
                    own += _answers_to_click(solver, where, point, most)
        found += _distinct(own)
    watch.report(1.0)
    # 4. Keep distinct masks over all grids, and paint small structures over large ones.
    kept = _distinct(found)[:MAX_SEGMENTS]
    labels = _painted(kept, region_mask)
    names = tuple(ClassLabel(f"Structure {i + 1}") for i in range(int(labels.max())))
    return LabelMap(labels.transpose(np.argsort(order)), names)


def body_mask(solver: PromptSolver) -> Mask:
    """Return the body mask, (d, h, w): Otsu's threshold with holes filled slice by slice."""
    array = solver.pyramid.array
    step = max(1, round((array.size / _BODY_VOXELS) ** (1 / 3)))
    steps = tuple(min(step, max(1, n // 8)) for n in array.shape)
    sample = array[tuple(slice(None, None, n) for n in steps)].astype(np.float32)
    mask = ndimage.binary_opening(sample > threshold_otsu(sample), np.ones((1, 3, 3)))
    filled = np.stack([ndimage.binary_fill_holes(plane) for plane in mask])
    for axis, n in enumerate(steps):
        filled = filled.repeat(n, axis)
    d, h, w = array.shape
    return np.asarray(filled[:d, :h, :w], dtype=bool)


def _points(
    solver: PromptSolver, target: Mask, in_plane_mm: float
) -> dict[Field, npt.NDArray[np.int64]]:
    """Return a grid of points in the target, (n, 3), grouped by the most central field."""
    planner = solver.planner
    step_mm = in_plane_mm * planner.size / POINTS_PER_SIDE
    bounds = ndimage.find_objects(target.astype(np.uint8))[0]
    axes = []
    for n, mm, bound in zip(target.shape, planner.spacing_mm, bounds, strict=True):
        length = bound.stop - bound.start
        # At most all voxels: a damaged header may state any spacing.
        count = min(max(1, round(length * mm / step_mm)), length) if n > 1 else 1
        at = bound.start + (np.arange(count) + 0.5) * length / count
        axes.append(np.floor(at).astype(np.int64))
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    points = points[target[tuple(points.T)]]
    if len(points) == 0:  # a target thinner than the grid
        points = np.argwhere(target)[target.sum() // 2][None]
    low = [bound.start for bound in bounds]
    fields = planner.windows_over(low, [bound.stop for bound in bounds], in_plane_mm)
    places = np.array([field.centre_index for field in fields])
    reach = np.array([np.multiply(field.shape, field.step) for field in fields]) / 2
    away = np.abs(points[:, None] - places[None]) / reach[None]
    nearest = away.max(-1).argmin(1)
    return {fields[i]: points[nearest == i] for i in np.unique(nearest)}


def _answers_to_click(
    solver: PromptSolver, where: Field, point: npt.NDArray[np.int64], most: float
) -> list[_MaskBox]:
    """Return the masks of one click that pass all filters."""
    d, h, w = (float(i) for i in point)
    batch = in_field(IndexPrompts([(d, h, w, True)]), where, None)
    logits, iou = solver.engine.decode(solver.embedding(where), batch)
    found = []
    for answer, estimate in zip(logits, iou.tolist(), strict=True):
        stable = stability(answer)
        if estimate < MIN_IOU or stable < MIN_STABILITY:
            continue
        contact = face_contact(answer > 0, where, solver.shape)
        patch = to_volume(answer, where, solver.shape)
        if contact > MAX_CONTACT or patch is None:
            continue
        # Rank by the IoU estimate only: on real scans stability did not predict quality.
        score = estimate - _CONTACT_PENALTY * contact
        mask = _MaskBox(patch.window, patch.logits > 0, score)
        if MIN_VOXELS <= mask.size <= most and mask.holds(point):
            found.append(mask)
    return found


def stability(logits: Floats, offset: float = 1.0) -> float:
    """Return the IoU of the masks thresholded at +offset and -offset; 0 if both are empty."""
    loose = int((logits > -offset).sum())
    return int((logits > offset).sum()) / loose if loose else 0.0


def _distinct(found: list[_MaskBox]) -> list[_MaskBox]:
    """Apply non-maximum suppression; return the kept masks, the best first."""
    kept: list[_MaskBox] = []
    for mask in sorted(found, key=lambda m: -m.score):
        if not any(mask.repeats(better) for better in kept):
            kept.append(mask)
    return kept


def _painted(found: list[_MaskBox], region_mask: Mask) -> npt.NDArray[Any]:
    """Paint masks to labels from 1, the largest first, smaller on top; drop tiny remainders."""
    labels = np.zeros(region_mask.shape, dtype=np.uint16)
    for number, mask in enumerate(sorted(found, key=lambda m: -m.size), start=1):
        labels[mask.box][mask.mask] = number
    labels[~region_mask] = 0
    left = np.bincount(labels.ravel(), minlength=len(found) + 1)
    left[0] = 0
    ranked = [number for number in np.argsort(-left, kind="stable") if left[number] >= MIN_VOXELS]
    names = np.zeros(len(left), dtype=np.uint8 if len(ranked) < 256 else np.uint16)
    names[ranked] = np.arange(1, len(ranked) + 1)
    return np.asarray(names[labels])
