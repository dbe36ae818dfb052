"""Prompt solver: try several fields, keep the best-scored answer, refine its uncertain border.

A field is a patch of the volume at some resolution, the network's input. An answer depends only on
the ordered prompts: they are replayed one by one, each step starts from the previous answer, and
steps are cached. So undo is free, and a session rebuilt from its prompts gives the same masks.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.geometry import bounds_of
from pumit.inference.engine.engine import Features, R, T
from pumit.inference.interactive.box_checks import box_bonus, clicked_in_box
from pumit.inference.interactive.field_consensus import (
    averaged,
    field_logits,
    most_trusted,
    smaller_answer,
)
from pumit.inference.interactive.field_planner import FieldPlanner, face_contact
from pumit.inference.interactive.grid_transfer import (
    Floats,
    LogitBox,
    certain,
    is_inside,
    logit,
    patch_of,
    shared_voxels,
    sigmoid,
    to_field,
    to_volume,
)
from pumit.inference.interactive.image_store import ImageStore, OpenScan
from pumit.inference.interactive.index_prompts import IndexPrompts, in_field, is_same_box
from pumit.inference.interactive.local_change import (
    apply_change,
    changed_at,
    correction_field,
    follow_click,
    forced,
    near_places,
)
from pumit.inference.interactive.other_answers import distinct_answers
from pumit.inference.interactive.refinement import (
    Window,
    agreement,
    joined,
    merge,
    uncertain_windows,
)
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.solver_state import (
    BoxWeights,
    FieldAnswer,
    SolverSettings,
    SolverState,
)
from pumit.preprocessing.fields import Field, Pyramid, field_channels
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume

# Thresholds for the second click in a structure:
REPEATED = 0.5  # IoU from which two answers count as the same
LEAST_PART = 0.03  # relative growth below which a correction adds hardly anything
# The whole structure is at least this many times larger than its piece, and holds this share of it.
WHOLE_GROWS, WHOLE_HOLDS = 2.25, 0.8
MOST_ADDED = 2 / 3  # share of the missing part from which the correction is enough


class PromptSolver:
    """Solver that converts prompts on one volume, an awake scan, to masks."""

    def __init__(
        self, segmenter: Segmenter, scan: OpenScan, settings: SolverSettings | None = None
    ) -> None:
        self.engine = segmenter.engine
        self._averages_fields = segmenter.averages_fields
        self.settings = settings or SolverSettings()
        self.scan = scan
        self.pyramid = scan.pyramid
        d, h, w = self.pyramid.array.shape
        self.shape = (d, h, w)
        size = round(segmenter.field_size * self.settings.field_scale / 8) * 8
        self.planner = FieldPlanner(
            self.shape,
            self.pyramid.spacing_mm,
            size,
            self.settings.growth,
            largest=segmenter.largest_field,
        )

    def warm_up(self) -> None:
        """Build the pyramid and embed the coarsest field, before the first click."""
        centre = (np.asarray(self.shape) - 1) / 2
        fields = self.planner.around_click(centre)[::-1]
        self.engine.prepare(dict.fromkeys((field.da0, field.shape) for field in fields))
        self.embedding(fields[0])

    def embedding(self, where: Field) -> Features:
        """Return the embedding of a field, from the cache if it is there."""
        return self.scan.embedding(where, self._encoded)

    def _encoded(self, pyramid: Pyramid, where: Field) -> Features:
        image = field_channels(*pyramid.sample(where))
        found: Features = self.engine.encode(image, da0=where.da0, slice_ratio=where.prompt_ratio)
        return found

    def foresee(self, answer: SolverState) -> None:
        """Embed the field of a corrective click inside the extent of an answer."""
        bounds = None if answer.patch is None else bounds_of(answer.patch.logits > 0)
        if answer.patch is not None and bounds is not None:
            middle = (bounds.mean(0) + answer.patch.start).tolist()
            self.embedding(self._correction_field(answer, middle, is_given=False))

    def answer(
        self, prompts: IndexPrompts, before: SolverState | None, watch: Watch = UNWATCHED
    ) -> SolverState:
        """Answer prompts, starting from the answer to all but the newest, if there is one.

        Raises:
            Cancelled: If the caller cancelled it.
        """
        if before is None:
            return self._every_field(prompts, None, watch)
        if prompts.mask is not None and before.num_points == 0 and before.box is None:
            before = replace(before, patch=patch_of(prompts.mask))
        # 1. A scribble, which is several points, another box, or nothing to correct.
        is_click = len(prompts.points) == before.num_points + 1
        if before.patch is None or not is_click or not is_same_box(prompts.box, before.box):
            return self._every_field(prompts, before, watch)
        # 2. A click in the shown field changes only what is connected to it.
        shown = before.views[before.chosen].field
        *place, is_positive = prompts.points[-1]
        if shown.covers(place):
            where = self._correction_field(before, place, is_given=prompts.mask is not None)
            return self._corrected(prompts, before, where, watch)
        # 3. A click beyond it: move a field of the same spacing there, to follow a long structure.
        #    If that shows none of the answer, the click is in a separate part.
        if is_inside(before.patch, place) == is_positive:
            return before.confirmed(len(prompts.points))
        moved = self.planner.field(place, shown.step[1] * self.planner.spacing_mm[1])
        if (to_field(before.patch, moved) > 0.5).any():
            return self._corrected(prompts, before, moved, watch)
        if is_positive:
            return self._with_part(prompts, before, watch)
        return self._every_field(prompts, before, watch)

    def _every_field(
        self, prompts: IndexPrompts, before: SolverState | None, watch: Watch
    ) -> SolverState:
        """Answer by the best of all fields, which must follow the newest click."""
        views = self._views(prompts, before)
        candidates = self._map(lambda view: self._field_answers(view, prompts), views, watch)
        found = self._best_of(candidates, prompts, before, watch)
        return found if before is None else self._insisted(prompts, before, found)

    def _best_of(
        self,
        candidates: list[list[FieldAnswer]],
        prompts: IndexPrompts,
        before: SolverState | None,
        watch: Watch,
    ) -> SolverState:
        """Return the best-scored of the answers of each field, refined."""
        # 1. Select the best answer of each field, then the best field.
        middle, spacing_mm = prompts.places.mean(0), self.planner.spacing_mm
        trusted = most_trusted(candidates, middle, spacing_mm, self.settings)
        best = int(np.argmax([view.score for view in trusted]))
        if (smaller := smaller_answer(trusted[best], candidates[0], prompts)) is not None:
            best, trusted[0] = 0, smaller
        views = [replace(v, logits=np.array(v.logits), spare=()) for v in trusted]  # free the batch
        out = SolverState(views, best, box=prompts.box, num_points=len(prompts.points))
        chosen = views[best]
        assert chosen.logits is not None
        if before is None:
            if self._averages_fields:
                others = field_logits(candidates[:best] + candidates[best + 1 :])
                chosen.logits = averaged(chosen.logits, chosen.field, others)
            found = [view for answers in candidates for view in answers]
            everything = [each for view in found for each in (view, *view.spare)]
            out.others = distinct_answers(chosen, everything, prompts, self.shape)
            out.count += len(out.others)
        # 2. Resample to the volume's grid, and refine where the border is uncertain.
        out.iou, out.patch = chosen.iou, to_volume(chosen.logits, chosen.field, self.shape)
        if out.patch is not None and self.settings.windows > 0:
            out.patch = self._refined(out.patch, chosen, prompts, watch)
        # 3. Undo changes that are not connected to the newest points.
        if before is not None and before.patch is not None:
            points = prompts.points[before.num_points :]
            if points and is_same_box(prompts.box, before.box):
                places = [point[:3] for point in points]
                out.patch = changed_at(before.patch, out.patch, places, spacing_mm)
                out.patch = self._near(points, prompts, before.patch, out.patch)
        return out

    def _near(
        self,
        points: Sequence[tuple[float, float, float, bool]],
        prompts: IndexPrompts,
        before: LogitBox,
        patch: LogitBox,
    ) -> LogitBox:
        """Keep a change of a given mask near the newest points."""
        if prompts.mask is None:
            return patch
        return near_places(before, patch, points, self.planner.spacing_mm, self.shape)

    def _insisted(
        self, prompts: IndexPrompts, before: SolverState, found: SolverState
    ) -> SolverState:
        """Force the answer to follow its newest click if the network did not."""
        chosen = found.views[found.chosen]
        if not prompts.points or len(prompts.points) != before.num_points + 1:
            return found
        *place, is_positive = prompts.points[-1]
        is_in_sight = chosen.field.covers(place)
        if found.patch is None or is_inside(found.patch, place) == is_positive or not is_in_sight:
            return found
        prior, at = logit(to_field(found.patch, chosen.field)), chosen.field.to_field(place)
        logits = forced(prior, prior, at, is_positive=is_positive)
        change = (logits > 0) != (prior > 0)
        if not change.any():
            return found
        patch = apply_change(found.patch, logits, change, chosen.field, self.shape)
        return replace(found, patch=patch)

    def _correction_field(
        self, before: SolverState, place: Sequence[float], *, is_given: bool
    ) -> Field:
        assert before.patch is not None
        return correction_field(
            self.planner,
            before.views[before.chosen].field,
            before.patch,
            place,
            self.settings.correction_margin,
            is_given=is_given,
            is_averaged=self._averages_fields,
        )

    def _second_click(
        self, prompts: IndexPrompts, before: SolverState, corrected: SolverState, watch: Watch
    ) -> SolverState:
        """Return the correction, or the joint answer to both clicks if that is much larger.

        The first answer may cover only a part, such as a piece of a liver between its veins. The
        second click then shows the extent of the structure; adding a piece per click would never
        fill it. Not used for models that average fields: it lowered their results on whole scans.
        """
        first, patch = before.patch, corrected.patch
        is_second = before.num_points == 1 and prompts.are_clicks_inside
        # Do not replace an alternative answer that the user selected.
        if not is_second or before.number > 1 or self._averages_fields:
            return corrected
        if first is None or patch is None or patch is first:
            return corrected
        # Beyond its field, a long structure is followed at the same spacing.
        places, shown = prompts.places, before.views[before.chosen].field
        if not shown.covers(places) or not may_be_piece(first, patch, places):
            return corrected
        # 1. Decode both clicks in the fields of the first one, which are already embedded.
        views = [FieldAnswer(v.field) for v in before.views if v.field.covers(places)]
        again = self._map(lambda view: self._field_answers(view, prompts), views, watch)
        ranked = sorted((found[0] for found in again), key=lambda view: -view.score)
        found = [to_volume(v.logits, v.field, self.shape) for v in ranked if v.logits is not None]
        answers = [answer for answer in found if answer is not None]
        # 2. Use the joint answer if it is much larger.
        if answers and is_far_more(first, patch, answers, places):
            return self._best_of(again, prompts, None, watch)
        return corrected

    def _corrected(
        self, prompts: IndexPrompts, before: SolverState, where: Field, watch: Watch
    ) -> SolverState:
        """Change the answer as one field sees it, only where connected to the newest click."""
        assert before.patch is not None
        *place, is_positive = prompts.points[-1]
        # 1. Decode the field with the shown answer as prior.
        prior = logit(to_field(before.patch, where))
        view = replace(before.views[before.chosen], field=where, logits=prior)
        (new,) = self._field_answers(view, prompts)
        assert new.logits is not None
        at, ratio = where.to_field(place), where.prompt_ratio
        agrees = is_inside(before.patch, place) == is_positive
        new.logits, change = follow_click(
            prior, new.logits, at, ratio, is_positive=is_positive, must_change=not agrees
        )
        if change is None and agrees:
            return before.confirmed(len(prompts.points))
        patch = before.patch
        if change is not None:
            patch = apply_change(patch, new.logits, change, where, self.shape)
            patch = self._near(prompts.points[-1:], prompts, before.patch, patch)
        # 2. If the result still contradicts the click, every field is decoded.
        if is_inside(patch, place) != is_positive:
            return self._every_field(prompts, before, watch)
        views = [replace(v, logits=None) for v in before.views]
        views[before.chosen] = replace(new, logits=new.logits.copy())
        count = len(prompts.points)
        found = SolverState(views, before.chosen, patch, new.iou, prompts.box, count)
        return self._second_click(prompts, before, found, watch)

    def _with_part(self, prompts: IndexPrompts, before: SolverState, watch: Watch) -> SolverState:
        """Add the answer to a distant click alone, such as in a second lesion."""
        assert before.patch is not None
        part = self._every_field(IndexPrompts(points=[prompts.points[-1]]), None, watch)
        negative = [point for *point, is_positive in prompts.points if not is_positive]
        if part.patch is None or any(is_inside(part.patch, point) for point in negative):
            return self._every_field(prompts, before, watch)
        patch = joined(before.patch, part.patch)
        patch = self._near(prompts.points[-1:], prompts, before.patch, patch)
        return replace(part.confirmed(len(prompts.points)), patch=patch, box=prompts.box)

    def _refined(
        self, patch: LogitBox, chosen: FieldAnswer, prompts: IndexPrompts, watch: Watch
    ) -> LogitBox:
        """Refine the uncertain border at twice the resolution."""
        in_plane = chosen.field.step[1] * self.planner.spacing_mm[1]
        if in_plane < 1.5 * self.planner.finest_mm:
            return patch
        stop = [s + n for s, n in zip(patch.start, patch.logits.shape, strict=True)]
        finer = max(in_plane / 2, self.planner.finest_mm)
        candidates = self.planner.windows_over(patch.start, stop, finer)

        def refine_window(where: Field) -> Window | None:
            prior = to_field(patch, where)
            logits, _ = self._decoded(where, prompts, prior)
            agrees = agreement(logits[0], logit(prior)) >= self.settings.window_agreement
            return Window(where, logits[0]) if agrees else None

        places = uncertain_windows(patch, candidates, most=self.settings.windows)
        found = self._map(refine_window, places, watch)
        windows = [window for window in found if window is not None]
        return merge(patch, windows, self.shape) if windows else patch

    def _map(self, work: Callable[[T], R], fields: Sequence[T], watch: Watch) -> list[R]:
        """Apply a function to fields, in parallel where that is faster."""

        def unless_cancelled(field: T) -> R:
            watch.check()
            return work(field)

        _ = self.pyramid.levels  # build the pyramid before several threads need it
        return self.engine.map(unless_cancelled, fields)

    def _views(self, prompts: IndexPrompts, before: SolverState | None) -> list[FieldAnswer]:
        """Return the fields to decode, each with its prior answer."""
        if before is None or not is_same_box(prompts.box, before.box):
            # First prompt, mask to start from, or another box: ignore the shown answer.
            fields = self._fresh_fields(prompts)
            if prompts.mask is None:
                return [FieldAnswer(f) for f in fields]
            given = LogitBox((0, 0, 0), certain(prompts.mask))
            return [FieldAnswer(f, logit(to_field(given, f))) for f in fields]
        # Move a field that is wide enough but was centred on a click near the structure's end.
        places = prompts.places
        middle = (places.min(0) + places.max(0)) / 2
        holding = []
        for view in before.views:
            if not view.field.covers(places):
                spacing = view.field.step[1] * self.planner.spacing_mm[1]
                view = replace(view, field=self.planner.field(middle, spacing))
            if view.field.covers(places):
                holding.append(view)
        holding = holding or [FieldAnswer(f) for f in self._fresh_fields(prompts)]
        return [replace(v, logits=logit(to_field(before.patch, v.field))) for v in holding]

    def _fresh_fields(self, prompts: IndexPrompts) -> list[Field]:
        """Return new fields that contain every positive prompt."""
        places = prompts.places
        low, high = places.min(0), places.max(0)
        if prompts.box is not None:
            return [self.planner.around_box(low, high, self.settings.box_margin)]
        if prompts.mask is None:
            holding = [f for f in self.planner.around_click((low + high) / 2) if f.covers(places)]
            if holding:
                return holding
        return [self.planner.around_box(low, high, margin=1.6)]

    def _field_answers(self, view: FieldAnswer, prompts: IndexPrompts) -> list[FieldAnswer]:
        """Decode one field; an ambiguous prompt gives several answers."""
        prior = None if view.logits is None else sigmoid(view.logits)
        logits, iou = self._decoded(view.field, prompts, prior)
        # A single click or box may mean several structures: each answer is a candidate.
        is_ambiguous = prior is None and len(prompts.points) + (prompts.box is not None) == 1
        # The remaining masks are only offered as alternatives.
        further: list[tuple[Floats, Floats]] = []

        def first_mask(found: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
            if len(found[0]) > 1:
                further.append((found[0][1:], found[1][1:]))
            return found[0][:1], found[1][:1]

        if prior is not None:
            logits, iou = logits[:1], iou[:1]
        elif not is_ambiguous:
            logits, iou = first_mask((logits, iou))
        elif prompts.box is not None:
            logits, iou = clicked_in_box(
                lambda both: first_mask(self._decoded(view.field, both, None)),
                (logits, iou),
                view.field,
                prompts,
                self._box_weights(prompts),
            )
        answers = self._scored(view, prompts, logits, iou)
        spare = [each for group in further for each in self._scored(view, prompts, *group)]
        return [replace(answers[0], spare=tuple(spare)), *answers[1:]]

    def _box_weights(self, prompts: IndexPrompts) -> BoxWeights:
        return self.settings.flat_box if prompts.is_depth_guessed else self.settings.box

    def _scored(
        self, view: FieldAnswer, prompts: IndexPrompts, logits: Floats, iou: Floats
    ) -> list[FieldAnswer]:
        """Return the masks of one field as scored answers."""
        bonus: Floats | float = 0.0
        if prompts.box is not None and not prompts.points:
            bonus = box_bonus(logits, view.field, prompts.box, self._box_weights(prompts))
        answers = []
        for mask_logits, estimate, score in zip(logits, iou, (iou + bonus).tolist(), strict=True):
            mask = mask_logits > 0
            score -= self.settings.miss_penalty * prompts.contradicted_by(mask, view.field)
            score -= self.settings.contact_penalty * face_contact(mask, view.field, self.shape)
            answers.append(replace(view, logits=mask_logits, score=score, iou=float(estimate)))
        return answers

    def _decoded(
        self, where: Field, prompts: IndexPrompts, prior: Floats | None
    ) -> tuple[Floats, Floats]:
        """Embed and decode a field; see `Segmenter.decode`."""
        return self.engine.decode(self.embedding(where), in_field(prompts, where, prior))


def may_be_piece(first: LogitBox, corrected: LogitBox, places: npt.NDArray[np.float64]) -> bool:
    """Return whether a first answer may be only a piece of the structure of two clicks.

    If so, the second click adds a part connected to the first answer, or hardly anything. A second
    lesion is not connected.

    Args:
        corrected: The first answer with the local change of the second click.
        places: Both clicks, volume indices (d, h, w), shape (2, 3).
    """
    if corrected.voxels <= (1 + LEAST_PART) * first.voxels:
        return True
    if not all(is_inside(corrected, place) for place in places.tolist()):
        return False
    labels, _ = ndimage.label(corrected.logits > 0, np.ones((3, 3, 3)))
    a, b = np.rint(places).astype(int) - corrected.start
    return bool(labels[tuple(a)] == labels[tuple(b)])


def is_far_more(
    first: LogitBox,
    corrected: LogitBox,
    answers: Sequence[LogitBox],
    places: npt.NDArray[np.float64],
) -> bool:
    """Return whether the joint answer to two clicks is far larger than the correction.

    For a lesion in an organ, a coarse field answers with the organ and a finer one with the lesion,
    as the correction does. The correction is then kept.

    Args:
        answers: Joint answers of several fields to both clicks, the best-scored first.
    """
    both = answers[0]
    before, now, then = first.voxels, corrected.voxels, both.voxels
    # 1. The best joint answer holds both clicks and most of the first answer, and is far larger.
    if not all(is_inside(both, place) for place in places.tolist()):
        return False
    if then < WHOLE_GROWS * before or shared_voxels(first, both) < WHOLE_HOLDS * before:
        return False
    # 2. The correction adds only a small part of it, and no field gives the same as the correction.
    shared = [shared_voxels(corrected, each) for each in answers]
    ious = [n / (now + each.voxels - n) for n, each in zip(shared, answers, strict=True)]
    return now - before < MOST_ADDED * (then - before) and max(ious) < REPEATED


def scan_embedding(segmenter: Segmenter, volume: Volume) -> Floats:
    """Embed a whole scan as one vector (dim,), which is similar for similar scans.

    It is the mean of the transformer's features of the field that covers the scan.

    Raises:
        VolumeError: If the scan has no contrast.
    """
    scan = ImageStore().open(volume, 0)
    try:
        solver = PromptSolver(segmenter, scan)
        middle = (np.asarray(solver.shape) - 1) / 2
        return solver.embedding(solver.planner.around_click(middle)[-1]).summary
    finally:
        scan.close()
