"""Which field answers a first click, and how far a later click reaches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from ball_scan import BALL, scan, session_on
from pumit.inference.interactive.answer_checks import covers
from pumit.inference.interactive.field_planner import FieldPlanner
from pumit.inference.interactive.grid_transfer import is_inside, patch_of
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.local_change import correction_field
from pumit.inference.interactive.prompt_solver import PromptSolver
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.solver_settings import SolverSettings
from pumit.inference.interactive.solver_state import SolverState
from pumit.system.watch import UNWATCHED
from pumit.volume import Volume

FIRST = (float(BALL[0]), float(BALL[1]), float(BALL[2]), True)


@pytest.fixture
def solver(bright_segmenter: Segmenter) -> PromptSolver:
    """Answers every bright voxel of a field, whatever the prompts."""
    return session_on(scan()[0], bright_segmenter).solver


def test_of_equally_sure_answers_that_of_the_coarsest_field_counts(solver: PromptSolver) -> None:
    # Fields of several sizes even on a small scan.
    solver.planner = replace(solver.planner, size=8)
    chosen = {}
    for bonus in (-5.0, 5.0):
        solver.settings = SolverSettings(coarse=bonus, windows=0)
        answer = solver.answer(IndexPrompts([FIRST]), None)
        assert len(answer.views) > 1
        chosen[bonus] = (answer.chosen, len(answer.views) - 1)
    assert chosen[-5.0][0] == 0
    assert chosen[5.0][0] == chosen[5.0][1]


def replaced_decoding(solver: PromptSolver, monkeypatch: pytest.MonkeyPatch, change: Any) -> list:
    """Let the network's answers be changed, and return the prompts that it is asked."""
    decode, calls = solver.segmenter.decode, []

    def decoded(embedding: Any, prompts: Any) -> Any:
        calls.append(prompts)
        logits, iou = decode(embedding, prompts)
        return change(prompts, logits.copy(), iou)

    monkeypatch.setattr(solver.segmenter, "decode", decoded, raising=False)
    return calls


def test_a_later_click_asks_one_field_once(
    solver: PromptSolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver.settings = SolverSettings(windows=0)
    before = solver.answer(IndexPrompts([FIRST]), None)
    later = (FIRST[0], FIRST[1] + 2, FIRST[2], False)
    field = before.views[before.chosen].field
    d, h, w = np.round(field.to_field(later[:3])).astype(int)

    def shrunk(_prompts: Any, logits: np.ndarray, iou: np.ndarray) -> Any:
        logits[:, d, h, w] = -5.0  # the click is followed
        return logits, iou

    calls = replaced_decoding(solver, monkeypatch, shrunk)
    after = solver.answer(IndexPrompts([FIRST, later]), before)
    assert len(calls) == 1
    changed = np.argwhere(whole(solver, before) != whole(solver, after))
    assert len(changed) > 0
    reach = np.abs(changed - np.array(later[:3])).max(0)
    assert (reach <= np.ceil(field.step) * 2 + 1).all()


@pytest.mark.parametrize("is_positive", [True, False])
def test_a_click_that_no_field_follows_is_followed_around_it(
    solver: PromptSolver, monkeypatch: pytest.MonkeyPatch, is_positive: bool
) -> None:
    """The network moves voxels next to the click, and not the one that was clicked."""
    solver.settings = SolverSettings(windows=0)
    before = solver.answer(IndexPrompts([FIRST]), None)
    later = (FIRST[0], FIRST[1] + (14 if is_positive else 2), FIRST[2], is_positive)
    place = before.views[before.chosen].field.to_field(later[:3])
    d, h, w = np.round(place).astype(int)

    def moves_a_neighbour(_prompts: Any, logits: np.ndarray, iou: np.ndarray) -> Any:
        logits[:, d, h, w + 1] = 5.0 if is_positive else -5.0
        return logits, iou

    assert is_inside(before.patch, later[:3]) != is_positive
    replaced_decoding(solver, monkeypatch, moves_a_neighbour)
    after = solver.answer(IndexPrompts([FIRST, later]), before)
    assert all(view.logits is not None for view in after.views)  # every field was asked
    assert is_inside(after.patch, later[:3]) == is_positive


def test_a_correction_is_requested_in_a_field_that_fits_the_segment(solver: PromptSolver) -> None:
    """An answer from a field of a whole scan yields to one that the segment nearly fills."""
    solver.planner = replace(solver.planner, size=16)
    settings = SolverSettings(coarse=5.0, windows=0)
    solver.settings = settings
    before = solver.answer(IndexPrompts([FIRST]), None)
    shown = before.views[before.chosen].field
    assert before.patch is not None
    settled: dict[str, Any] = {"margin": 1.5, "is_given": False, "is_averaged": False}
    where = partial(correction_field, solver.planner, shown, place=FIRST[:3], **settled)
    fitting = where(before.patch)
    assert fitting.step[1] <= shown.step[1]
    low, high = fitting.bounds()
    inside = np.argwhere(before.patch.logits > 0) + before.patch.start
    assert (inside.min(0) >= low - 1).all()
    assert (inside.max(0) <= high + 1).all()
    nothing = replace(before.patch, logits=-np.abs(before.patch.logits))
    assert where(nothing) is shown


def test_a_given_mask_is_corrected_as_finely_as_it_is_thin() -> None:
    """A vein across a scan is lost in the field that holds all of it."""
    planner = FieldPlanner((128, 128, 128), (1.0, 1.0, 1.0), size=16)
    vein = np.zeros(planner.shape, dtype=bool)
    vein[60:67, 60:67, 4:124] = True
    thick = np.zeros(planner.shape, dtype=bool)
    thick[20:110, 20:110, 4:124] = True
    click = (64.0, 68.0, 70.0)
    shown = planner.around_box((60, 60, 4), (66, 66, 123), 1.6)
    assert shown.step[1] > 8
    where = partial(correction_field, planner, shown, place=click, margin=1.5, is_averaged=False)
    fine = where(patch_of(vein), is_given=True)
    assert fine.step[1] < 2  # its border and its middle, 4 mm apart, three voxels
    assert covers(fine, np.array([click]))
    hair = np.zeros(planner.shape, dtype=bool)
    hair[63:65, 63:65, 4:124] = True
    finest = where(patch_of(hair), is_given=True)
    assert finest.step[1] == pytest.approx(1.0)  # though coarse fields sample none of it
    assert where(patch_of(vein), is_given=False) == shown
    assert where(patch_of(thick), is_given=True) == shown
    # A click where a finer field would show nothing of the mask is answered where some of it is.
    far = where(patch_of(vein), place=(64.0, 120.0, 70.0), is_given=True)
    assert far.step[1] >= 4


def test_a_part_far_from_a_given_mask_is_added_whole(solver: PromptSolver) -> None:
    """A click at the rim of another lesion, away from the border of the mask."""
    mask = np.zeros(solver.shape, dtype=bool)
    mask[2:4, 2:4, 2:10] = True
    bright = scan()[0].array > 50
    rim = np.argwhere(bright)[-1]
    click = (*map(float, rim), True)
    before = replace(solver.answer(IndexPrompts([FIRST]), None), patch=patch_of(mask))
    added = {}
    for given in (None, mask):
        after = solver._with_part(IndexPrompts(points=[click], mask=given), before, UNWATCHED)
        assert after is not None
        shown = whole(solver, after)
        assert (shown & mask).sum() == mask.sum()
        added[given is None] = int((shown & bright).sum())
    assert added[True] == added[False] > 0.8 * bright.sum()


def test_a_scribble_is_requested_everywhere(
    solver: PromptSolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its points lie apart: the change at one of them is not all that it asks for."""
    before = solver.answer(IndexPrompts([FIRST]), None)
    monkeypatch.setattr(
        "pumit.inference.interactive.prompt_solver.follow_click", None
    )  # would fail if called
    stroke = [(FIRST[0], FIRST[1] + i, FIRST[2], False) for i in (1, 2)]
    answer = solver.answer(IndexPrompts([FIRST, *stroke]), before)
    assert answer.num_points == 3


def box_of_the_ball() -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corner of the scan's bright ball, with a voxel around it."""
    inside = np.argwhere(scan()[1])
    return inside.min(0) - 1.0, inside.max(0) + 1.0


def test_a_box_is_repeated_with_a_click_in_each_of_its_answers(
    solver: PromptSolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver.settings = SolverSettings(windows=0)

    def two_answers(prompts: Any, logits: np.ndarray, _iou: np.ndarray) -> Any:
        """The bright voxels, all of them or the upper half; a click is followed."""
        upper = logits[:1].copy()
        upper[:, :, upper.shape[2] // 2 :] = -5.0
        found = np.concatenate([logits[:1], upper])
        first = min(len(prompts.points), 1)
        return found[first:], np.array([0.5, 0.9], np.float32)[first:]

    seen = replaced_decoding(solver, monkeypatch, two_answers)
    solver.answer(IndexPrompts(box=box_of_the_ball()), None)
    alone, *clicked, around = seen
    assert [len(alone.points), len(clicked)] == [0, 2]
    assert len(around.points) > 0
    assert around.is_positive.all()  # where the upper half, which is trusted most, leaves its box
    for prompts in clicked:
        assert np.array_equal(prompts.box, alone.box)
        assert prompts.is_positive.tolist() == [True]
    assert not np.array_equal(clicked[0].points, clicked[1].points)


def test_a_box_in_which_nothing_is_found_is_answered_all_the_same(
    solver: PromptSolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver.settings = SolverSettings(windows=0)
    seen = replaced_decoding(
        solver, monkeypatch, lambda _, logits, iou: (np.full_like(logits, -5.0), iou)
    )
    assert solver.answer(IndexPrompts(box=box_of_the_ball()), None).patch is None
    assert len(seen) == 1


def long_scan() -> tuple[Volume, np.ndarray]:
    """A bright bar that is far longer than a field of 16 voxels, and a ball next to it."""
    mask = np.zeros((24, 40, 160), dtype=bool)
    mask[10:14, 10:14, 4:156] = True
    mask[10:14, 30:34, 76:80] = True
    noise = np.random.default_rng(0).normal(0, 3, mask.shape)
    return Volume((100 * mask + noise).astype(np.int16), (1.0, 1.0, 1.0)), mask


@pytest.fixture
def fine_solver(bright_segmenter: Segmenter) -> PromptSolver:
    """Looks at `long_scan` through fields of 16 voxels, the finest first."""
    session = session_on(long_scan()[0], bright_segmenter)
    session.solver.planner = replace(session.solver.planner, size=16)
    session.solver.settings = SolverSettings(coarse=-5.0, consensus=0.0, windows=0)
    return session.solver


def whole(solver: PromptSolver, answer: SolverState) -> np.ndarray:
    mask = np.zeros(solver.shape, dtype=bool)
    assert answer.patch is not None
    mask[answer.patch.window] = np.asarray(answer.patch.logits > 0)
    return mask


def test_a_click_beyond_the_field_follows_a_long_structure_as_finely(
    fine_solver: PromptSolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (12.0, 12.0, 30.0, True), (12.0, 12.0, 42.0, True)
    before = fine_solver.answer(IndexPrompts([first]), None)
    shown = before.views[before.chosen].field
    assert not shown.bounds()[0][2] < second[2] < shown.bounds()[1][2]
    calls = []
    ask = fine_solver._field_answers
    monkeypatch.setattr(
        fine_solver,
        "_field_answers",
        lambda view, prompts: calls.append(view.field) or ask(view, prompts),
    )
    after = fine_solver.answer(IndexPrompts([first, second]), before)
    (field,) = calls
    assert field.step == shown.step
    was, now = whole(fine_solver, before), whole(fine_solver, after)
    assert (now & was).sum() == was.sum()
    assert now[12, 12, 42]
    bar = long_scan()[1]
    assert now[bar].sum() > 1.4 * was[bar].sum()


def test_a_click_far_away_adds_a_part_of_its_own(fine_solver: PromptSolver) -> None:
    first, second = (12.0, 12.0, 12.0, True), (12.0, 32.0, 78.0, True)
    before = fine_solver.answer(IndexPrompts([first]), None)
    after = fine_solver.answer(IndexPrompts([first, second]), before)
    was, now = whole(fine_solver, before), whole(fine_solver, after)
    assert now[12, 32, 78]
    # What was there stays, voxel by voxel; what is new lies about the click.
    assert (now & was).sum() == was.sum()
    added = np.argwhere(now & ~was)
    assert (np.abs(added - second[:3]) <= 9).all()
