"""Local correction: a corrective click changes the answer only around the click.

A new prediction changes the answer everywhere and may undo earlier corrections. So only the change
connected to the newest click is kept: in one field (`change_at`), or on the volume's grid
(`changed_at`). A negative click in the heart leaves the liver untouched, and a mask that the user
gave or painted is kept voxel by voxel.

Logits before and after are (D, H, W) of a field, or a `LogitBox` of the volume; a place is an index
(d, h, w) of the same. `slice_ratio` is slice spacing over in-plane spacing, 0 in 2D.

Source:
    Chen et al., FocalClick, CVPR 2022, "Progressive merge". Differs from the source: in 3D, and
    the change is found on the field's grid, then resampled to the volume's.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.geometry import bounds_of, window_of
from pumit.inference.interactive.box_checks import depth_of
from pumit.inference.interactive.field_planner import FieldPlanner
from pumit.inference.interactive.grid_transfer import (
    OUTSIDE,
    Box,
    Floats,
    LogitBox,
    common,
    covered_box,
    enclosing,
    on_box,
    on_other_box,
    slabs,
    start_of,
    to_field,
    within,
)
from pumit.preprocessing.fields import Field, box_of

Mask = npt.NDArray[np.bool_]
REACH = 2.0  # in-plane field voxels around a click within which a change belongs to it
# Maximum extent of a removal from the network's answer relative to its depth at the click.
# Additions have no limit: of 866 realistic positive clicks, 7 lowered Dice by more than 0.05. Of
# 853 negative clicks, 88 did so without a limit, and 41 with it.
REMOVED_DEPTHS = 6.0
# Maximum extent of a change of a given mask, relative to the click's distance from its border:
# users click in the middle of an error. Within how many in-plane voxels the border is searched.
GIVEN_REACH, BORDER_SEARCH = 2.0, 32
# Logit bonus of a positive click by its distance from the previous answer: 0 up to `FAR` in-plane
# field voxels, rising to `MOST_BONUS` at `FARTHEST`.
MOST_BONUS, FAR, FARTHEST = 2.0, 2.0, 8.0
# If the network ignores a click, logits are set to `FORCED` where they moved by at least
# `LEAST_MOVED` and by `HALF_MOVED` of the movement at the click.
HALF_MOVED, LEAST_MOVED, FORCED = 0.5, 0.5, np.float32(1)
RIM = 1  # voxels around a change that are replaced with it, so that its border is new
FINER = 0.75  # a field this much finer than the shown one is worth another embedding
# Minimum depth of a given mask in a field, in-plane voxels. A coarser field does not resolve the
# mask: a vein across the abdomen is lost in a field that contains all of it.
LEAST_DEPTH = 3.0
_NEIGHBOURS = np.ones((3, 3, 3), dtype=bool)


def correction_field(
    planner: FieldPlanner,
    shown: Field,
    patch: LogitBox,
    place: Sequence[float],
    margin: float,
    *,
    is_given: bool,
    is_averaged: bool,
) -> Field:
    """Return the field for a corrective click: the shown one, unless it is too coarse.

    Args:
        margin: Size of the field relative to the segment.
        is_given: Whether the answer began with a mask prompt, which has no own field.
        is_averaged: Whether answers are averaged over fields; a finer field then helps less often.
    """
    bounds = bounds_of(patch.logits > 0)
    if bounds is None:
        return shown
    # 1. The shown field may be far too large. Now that the structure's size is known, a field
    #    fitted to it resolves its border better.
    low, high = bounds + np.asarray(patch.start)
    low, high = np.minimum(low, place), np.maximum(high, place)
    fitting = planner.around_box(low, high, margin, ends_count=not is_averaged)
    is_finer = fitting.step[1] < FINER * shown.step[1]
    where = fitting if is_finer and fitting.covers(place) else shown
    # 2. For a given mask, refine around the click until the field resolves the mask, as long as
    #    the field contains some of it.
    while is_given and _depth_in(patch, where) < LEAST_DEPTH:
        in_plane_mm = where.step[1] * planner.spacing_mm[1]
        finer = planner.field(place, max(in_plane_mm / 2, planner.finest_mm))
        if finer.step[1] >= where.step[1] or not _is_in_sight(patch, finer):
            break
        where = finer
    return where


def follow_click(
    before: Floats,
    after: Floats,
    place: npt.ArrayLike,
    slice_ratio: float,
    *,
    is_positive: bool,
    must_change: bool,
) -> tuple[Floats, Mask | None]:
    """Return a new answer that follows the click, and the region to change; None if there is none.

    Args:
        must_change: Whether the previous answer contradicts the click.
    """
    # 1. Users click in the middle of what is missing: far from the answer, much is missing.
    raised = after + far_bonus(before, place, slice_ratio) if is_positive else after
    # 2. Find the change at the click. If there is none, force it: the user knows better.
    change = change_at(before, raised, place, slice_ratio, is_positive=is_positive)
    if change is None and must_change:
        raised = forced(before, after, place, is_positive=is_positive)
        change = change_at(before, raised, place, slice_ratio, is_positive=is_positive)
    return raised, change


def far_bonus(before: Floats, place: npt.ArrayLike, slice_ratio: float) -> np.float32:
    """Return the logit bonus of a click by its distance from the previous answer."""
    scale = np.array([slice_ratio or 1.0, 1.0, 1.0])
    away = (np.argwhere(before > 0) - np.asarray(place, dtype=np.float64)) * scale
    distance = np.sqrt((away**2).sum(1).min(initial=FARTHEST**2))
    return np.float32(MOST_BONUS * np.clip((distance - FAR) / (FARTHEST - FAR), 0, 1))


def change_at(
    before: Floats, after: Floats, place: npt.ArrayLike, slice_ratio: float, *, is_positive: bool
) -> Mask | None:
    """Return the part of a change that a click asks for; None if nothing changed there in its way.

    A new prediction also moves the rest of the border a little, often connected to the intended
    change. So a removal is limited to a multiple of its depth at the click: a real error is deep
    and mostly removed, a thin shell around a good answer is hardly touched.
    """
    # 1. Find the voxels added (or removed), and their connected components near the click.
    changed = (before > 0) != (after > 0)
    changed &= (after > 0) == is_positive
    labels, count = ndimage.label(changed, _NEIGHBOURS)
    if count == 0:
        return None
    scale = np.array([slice_ratio or 1.0, 1.0, 1.0])
    at = np.asarray(place, dtype=np.float64)
    distance = np.sqrt(_squared_distances(tuple(map(slice, changed.shape)), at, scale))
    held = [np.abs(np.arange(n) - c) <= 0.5 for n, c in zip(changed.shape, at, strict=True)]
    near = (distance <= REACH) | box_of(held)  # a thick slice's centre may be farther away
    pieces = _touched(labels, near)
    if is_positive or pieces is None:
        return pieces
    # 2. Limit a removal to a few times its depth at the click.
    window = ndimage.find_objects(pieces.astype(np.uint8))[0]
    depth = depth_of(pieces[window], scale, [n == 1 for n in changed.shape])
    deepest = depth[near[window]].max()
    return pieces & (distance <= max(REMOVED_DEPTHS * float(deepest), REACH))


def forced(before: Floats, after: Floats, place: npt.ArrayLike, *, is_positive: bool) -> Floats:
    """Force a new answer to follow its click if the network did not.

    Where the network is very certain, a click moves the logits without changing their sign. The
    connected region where they moved at least half as far as at the click gets the click's sign.
    """
    sign, place = np.float32(1 if is_positive else -1), np.asarray(place, np.float64).round(6)
    moved = sign * (after - before)
    # 1. Subtract the median movement of all voxels that the click could change: a shown mask has
    #    more extreme logits than the network's answer.
    moved -= np.median(moved[sign * before <= 0]) if (sign * before <= 0).any() else 0
    # 2. Take the component at the click that moved half as far, and always the voxels next to it.
    at = tuple(np.clip(np.rint(place).astype(int), 0, np.array(after.shape) - 1))
    labels, _ = ndimage.label(moved >= max(HALF_MOVED * moved[at], LEAST_MOVED), _NEIGHBOURS)
    piece = (labels == labels[at]) if labels[at] > 0 else np.zeros(after.shape, bool)
    piece |= box_of([np.abs(np.arange(n) - c) < 1 for n, c in zip(after.shape, place, strict=True)])
    return np.where(piece, sign * np.maximum(sign * after, FORCED), after)


def apply_change(
    patch: LogitBox, after: Floats, change: Mask, where: Field, shape: tuple[int, int, int]
) -> LogitBox:
    """Replace the changed region (D, H, W) of a field, not empty, in the previous answer."""
    # 1. The change with a rim, and its window in the field.
    rim = np.ones([1 if n == 1 else 2 * RIM + 1 for n in change.shape], dtype=bool)
    region = ndimage.binary_dilation(change, rim)
    found = window_of(region)
    assert found is not None
    # One voxel more for interpolation.
    pairs = zip(found, region.shape, strict=True)
    window = tuple(slice(max(s.start - 1, 0), min(s.stop + 1, n)) for s, n in pairs)
    part = crop(where, window)
    box = covered_box(part, shape)
    if box is None:
        return patch
    # 2. The previous answer, enlarged to contain both.
    whole = on_other_box(patch, enclosing([patch.window, box]))
    # 3. Resample the new logits and the region to the volume's grid, and copy them there.
    taken = region[window].astype(np.float32)
    for slab in slabs(box):
        inside = on_box(taken, part, slab).logits > 0.5
        values = on_box(after[window], part, slab).logits
        np.copyto(whole.logits[within(slab, whole.start)], values, where=inside)
    return whole


def crop(where: Field, window: tuple[slice, ...]) -> Field:
    """Crop a field to a window of its voxels."""
    middle = [(s.start + s.stop - 1) / 2 for s in window]
    d, h, w = where.to_volume(middle).tolist()
    a, b, c = (s.stop - s.start for s in window)
    return replace(where, centre_index=(d, h, w), shape=(a, b, c))


def changed_at(
    before: LogitBox,
    after: LogitBox | None,
    places: Sequence[Sequence[float]],
    spacing_mm: Sequence[float],
) -> LogitBox:
    """Apply the changes of a new answer that are connected to some places, if there are any."""
    if after is None:
        after = LogitBox(before.start, np.full(before.logits.shape, OUTSIDE, np.float32))
    # 1. Crop both to where they differ, with a rim.
    box = _difference(before, after)
    if box is None:
        return before
    wider = tuple(slice(max(s.start - RIM, 0), s.stop + RIM) for s in box)
    box = common(wider, enclosing([before.window, after.window])) or box
    old, new = on_other_box(before, box), on_other_box(after, box)
    # 2. Find the connected components of the change near the places.
    labels, _ = ndimage.label((old.logits > 0) != (new.logits > 0), _NEIGHBOURS)
    near = _near(places, old.start, labels.shape, np.asarray(spacing_mm, dtype=np.float64))
    pieces = _touched(labels, near)
    if pieces is None:
        return before
    # 3. Replace them with a rim, so that the border is new.
    return _taken_over(before, new, ndimage.binary_dilation(pieces, _NEIGHBOURS))


def _touched(labels: npt.NDArray[np.intp], near: Mask) -> Mask | None:
    """Return the labelled components that have a voxel in a region, or None."""
    is_touched = np.zeros(labels.max(initial=0) + 1, dtype=bool)
    is_touched[labels[near]] = True
    is_touched[0] = False
    return is_touched[labels] if is_touched.any() else None


def _squared_distances(
    box: Box, at: npt.NDArray[np.float64], scale: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the squared distance of each voxel of a box from an index, in units of the scale."""
    axes = [
        ((np.arange(s.start or 0, s.stop) - c) * mm) ** 2
        for s, c, mm in zip(box, at, scale, strict=True)
    ]
    d2, h2, w2 = np.ix_(*axes)
    return np.asarray(d2 + h2 + w2)


def near_places(
    before: LogitBox,
    after: LogitBox,
    points: Sequence[tuple[float, float, float, bool]],
    spacing_mm: Sequence[float],
    shape: Sequence[int],
) -> LogitBox:
    """Apply a change near the newest points: additions if positive, removals if negative.

    An answer that began with a mask is mostly right, and better than the network's own. A new
    prediction moves its whole border, connected to the intended change. So the change is applied
    only within a multiple of the click's distance from the border: near it, the error is small.
    """
    box = _difference(before, after)
    if box is None:
        return before
    old, new = on_other_box(before, box), on_other_box(after, box)
    # 1. Keep only additions or only removals: all points of a scribble have the same sign.
    one_way = np.maximum if points[-1][3] else np.minimum
    one_way(old.logits, new.logits, out=new.logits)
    changed = (old.logits > 0) != (new.logits > 0)
    if not changed.any():
        return before
    # 2. Distance of the places from the border.
    sampling = np.asarray(spacing_mm, dtype=np.float64)
    places = np.asarray([point[:3] for point in points], dtype=np.float64)
    away = [_from_border(before, place, sampling, shape) for place in places]
    reach = max(GIVEN_REACH * max(away), REACH * float(sampling[1:].max()))
    # 3. Apply it within that reach of any place.
    kept = np.zeros(changed.shape, dtype=bool)
    for place in places:
        kept |= _squared_distances(box, place, sampling) <= reach**2
    return _taken_over(before, new, kept)


def _from_border(
    answer: LogitBox,
    place: npt.NDArray[np.float64],
    spacing: npt.NDArray[np.float64],
    shape: Sequence[int],
) -> float:
    """Return the distance, mm, from a place to an answer's border; the volume's edge is none."""
    most = BORDER_SEARCH * float(spacing[1:].max())
    half = np.ceil(most / spacing).astype(int)
    last = np.asarray(shape) - 1
    at = np.rint(place).astype(int).clip(0, last)
    low, high = (at - half).clip(0), (at + half).clip(None, last)
    around = tuple(slice(int(a), int(b) + 1) for a, b in zip(low, high, strict=True))
    inside = on_other_box(answer, around).logits > 0
    other = np.argwhere(inside != inside[tuple(at - low)]) + low
    nearest = np.sqrt((((other - place) * spacing) ** 2).sum(1).min(initial=np.inf))
    return float(nearest) if nearest <= most else np.inf


def _taken_over(before: LogitBox, part: LogitBox, taken: Mask) -> LogitBox:
    """Return the previous answer with some voxels replaced by those of another."""
    whole = on_other_box(before, enclosing([before.window, part.window]))
    np.copyto(whole.logits[within(part.window, whole.start)], part.logits, where=taken)
    return whole


def _is_in_sight(patch: LogitBox, where: Field) -> bool:
    """Return whether a field contains any of an answer, even parts thinner than its voxels."""
    low, high = (np.asarray(bound) - patch.start for bound in where.bounds())
    first = np.ceil(low).astype(int).clip(0)
    stop = (np.floor(high).astype(int) + 1).clip(0)
    window = tuple(slice(a, b) for a, b in zip(first, stop, strict=True))
    return bool((patch.logits[window] > 0).any())


def _depth_in(patch: LogitBox, where: Field) -> float:
    """Return the maximum depth of an answer in a field, in-plane voxels."""
    inside = to_field(patch, where) > 0.5
    sampling = np.array([where.prompt_ratio or 1.0, 1.0, 1.0])
    return float(depth_of(inside, sampling, [n == 1 for n in inside.shape]).max())


def _difference(a: LogitBox, b: LogitBox) -> Box | None:
    """Return the smallest box around all voxels where two answers differ, or None."""
    whole = enclosing([a.window, b.window])
    start, differs = start_of(whole), np.zeros([s.stop - s.start for s in whole], dtype=bool)
    for each in (a, b):
        differs[within(each.window, start)] ^= each.logits > 0
    window = window_of(differs)
    return None if window is None else within(window, [-first for first in start])


def _near(
    places: npt.ArrayLike,
    start: npt.ArrayLike,
    shape: tuple[int, ...],
    spacing_mm: npt.NDArray[np.float64],
) -> Mask:
    """Return the voxels within `REACH` in-plane voxels of a place, and those that contain one."""
    reach_mm = REACH * float(spacing_mm[1:].max())
    near = np.zeros(shape, dtype=bool)
    for place in np.asarray(places, dtype=np.float64) - np.asarray(start):
        low = np.ceil(place - reach_mm / spacing_mm).astype(int)
        high = np.floor(place + reach_mm / spacing_mm).astype(int)
        low, high = np.minimum(low, np.rint(place).astype(int)), np.maximum(high, np.rint(place))
        box = tuple(
            slice(max(int(a), 0), max(min(int(b) + 1, n), 0))
            for a, b, n in zip(low, high, shape, strict=True)
        )
        index = np.stack(np.meshgrid(*(np.arange(s.start, s.stop) for s in box), indexing="ij"))
        offset = index - place[:, None, None, None]
        distance = np.linalg.norm(offset * spacing_mm[:, None, None, None], axis=0)
        near[box] |= (distance <= reach_mm) | (np.abs(offset) <= 0.5).all(axis=0)
    return near
