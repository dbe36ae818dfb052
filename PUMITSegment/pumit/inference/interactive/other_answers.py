"""Alternative answers to a first prompt, chosen among the answers already computed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pumit.geometry import bounds_of
from pumit.inference.interactive.grid_transfer import is_inside, on_box, to_volume
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.solver_state import FieldAnswer, SolverState
from pumit.preprocessing.fields import box_of

MOST_ANSWERS = 4  # including the shown one
DISTINCT = 0.8  # Dice below which two answers are distinct
LIKENESS = 0.3  # score penalty of an alternative per Dice with the shown answer
SAMPLES = 20  # points along each axis at which answers are compared

Mask = npt.NDArray[np.bool_]
Bounds = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Extent:
    """A mask in its field, and its bounding box in volume indices, (2, 3)."""

    view: FieldAnswer
    mask: Mask
    bounds: Bounds

    @staticmethod
    def of(view: FieldAnswer) -> _Extent | None:
        assert view.logits is not None
        mask = view.logits > 0
        found = bounds_of(mask)
        if found is None:
            return None
        ends = view.field.to_volume(found + np.array([[-0.5], [0.5]]))
        return _Extent(view, mask, ends)

    def at(self, axes: Sequence[npt.NDArray[np.float64]]) -> Mask:
        """Return the mask on a grid of volume indices; False outside its field."""
        where = self.view.field
        index, inside = [], []
        for i, places in enumerate(axes):
            at, _ = where.along(i, places)
            nearest = np.rint(at).astype(np.intp)
            inside.append((nearest >= 0) & (nearest < where.shape[i]))
            index.append(nearest.clip(0, where.shape[i] - 1))
        return np.asarray(self.mask[np.ix_(*index)] & box_of(inside))


def distinct_answers(
    shown: FieldAnswer,
    candidates: Iterable[FieldAnswer],
    prompts: IndexPrompts,
    shape: tuple[int, int, int],
) -> tuple[FieldAnswer, ...]:
    """Choose at most three alternatives to the shown answer, the best-scored first.

    None contradicts a click. Their Dice with the shown one and each other is below `DISTINCT`. The
    score counts less the more an alternative is like the shown answer, which was not wanted.
    """
    limit = np.array(shape) - 0.5
    first = _Extent.of(shown)
    ranked = []
    for view in candidates:
        extent = _Extent.of(view)
        if extent is None or _contradicts(view, prompts):
            continue
        if (extent.bounds[0] < limit).all() and (extent.bounds[1] > -0.5).all():
            likeness = 0.0 if first is None else _dice(extent, first, limit)
            if likeness < DISTINCT:
                ranked.append((view.score - LIKENESS * likeness, extent))
    kept: list[_Extent] = []
    for _, extent in sorted(ranked, key=lambda each: -each[0]):
        if all(_dice(extent, other, limit) < DISTINCT for other in kept):
            kept.append(extent)
        if len(kept) == MOST_ANSWERS - 1:
            break
    # Copy: a candidate shares its memory with the others of its field.
    return tuple(replace(each.view, logits=np.array(each.view.logits)) for each in kept)


def with_answer(state: SolverState, number: int, shape: tuple[int, int, int]) -> SolverState:
    """Return the state with an alternative answer shown; numbers beyond the last wrap around.

    Nothing is decoded, so the answer has its field's resolution.
    """
    number = (number - 1) % state.count + 1
    if number == 1:
        return state
    view = state.others[number - 2]
    assert view.logits is not None
    chosen = next(i for i, other in enumerate(state.views) if other.field == view.field)
    views = [*state.views[:chosen], view, *state.views[chosen + 1 :]]
    patch = to_volume(view.logits, view.field, shape)
    return replace(
        state, views=views, chosen=chosen, patch=patch, iou=view.iou, number=number, others=()
    )


def _contradicts(view: FieldAnswer, prompts: IndexPrompts) -> bool:
    """Return whether an answer contradicts a click in its field, on the volume's grid."""
    assert view.logits is not None
    for *place, is_positive in prompts.points:
        if view.field.covers(place):
            voxel = tuple(slice(round(at), round(at) + 1) for at in place)
            if is_inside(on_box(view.logits, view.field, voxel), place) != is_positive:
                return True
    return False


def _dice(a: _Extent, b: _Extent, limit: npt.NDArray[np.float64]) -> float:
    """Return the approximate Dice of two masks, sampled on a grid over both."""
    low = np.maximum(np.minimum(a.bounds[0], b.bounds[0]), -0.5)
    high = np.minimum(np.maximum(a.bounds[1], b.bounds[1]), limit)
    axes = []
    for start, stop in zip(low, high, strict=True):
        count = max(1, min(SAMPLES, math.ceil(stop - start)))
        axes.append(start + (np.arange(count) + 0.5) * (stop - start) / count)
    one, two = a.at(axes), b.at(axes)
    total = int(one.sum()) + int(two.sum())
    return 2 * int((one & two).sum()) / total if total else 1.0
