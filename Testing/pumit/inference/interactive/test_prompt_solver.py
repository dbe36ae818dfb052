"""Which field answers a first click, and how far a later click reaches."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from ball_scan import BALL, at, scan, session_on
from pumit.inference.interactive.field_planner import FieldPlanner
from pumit.inference.interactive.grid_transfer import LogitBox, is_inside, patch_of
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.local_change import correction_field
from pumit.inference.interactive.prompt_solver import PromptSolver, is_far_more, may_be_piece
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.solver_state import SolverSettings, SolverState
from pumit.system.watch import UNWATCHED
from pumit.volume import Volume

FIRST = (float(BALL[0]), float(BALL[1]), float(BALL[2]), True)


@pytest.fixture
def solver(bright_segmenter: Segmenter) -> PromptSolver:
    """Answers every bright voxel of a field, whatever the prompts."""
    return session_on(scan()[0], bright_segmenter).solver


def test_of_equally_sure_answers_that_of_the_coarsest_field_counts(solver):
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
    decode, calls = solver.engine.decode, []

    def decoded(embedding: Any, prompts: Any) -> Any:
        calls.append(prompts)
        logits, iou = decode(embedding, prompts)
        return change(prompts, logits.copy(), iou)

    monkeypatch.setattr(solver.engine, "decode", decoded)
    return calls


def test_a_later_click_asks_one_field_once(solver, monkeypatch):
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
def test_a_click_that_no_field_follows_is_followed_around_it(solver, monkeypatch, is_positive):
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


def test_a_correction_is_requested_in_a_field_that_fits_the_segment(solver):
    """An answer from a field of a whole scan yields to one that the segment nearly fills."""
    solver.planner = replace(solver.planner, size=16)
    settings = SolverSettings(coarse=5.0, windows=0)
    solver.settings = settings
    before = solver.answer(IndexPrompts([FIRST]), None)
    shown = before.views[before.chosen].field
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


def test_a_given_mask_is_corrected_as_finely_as_it_is_thin():
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
    assert fine.covers(click)
    hair = np.zeros(planner.shape, dtype=bool)
    hair[63:65, 63:65, 4:124] = True
    finest = where(patch_of(hair), is_given=True)
    assert finest.step[1] == pytest.approx(1.0)  # though coarse fields sample none of it
    assert where(patch_of(vein), is_given=False) == shown
    assert where(patch_of(thick), is_given=True) == shown
    # A click where a finer field would show nothing of the mask is answered where some of it is.
    far = where(patch_of(vein), place=(64.0, 120.0, 70.0), is_given=True)
    assert far.step[1] >= 4


def test_a_part_far_from_a_given_mask_is_added_whole(solver):
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
        shown = whole(solver, after)
        assert (shown & mask).sum() == mask.sum()
        added[given is None] = int((shown & bright).sum())
    assert added[True] == added[False] > 0.8 * bright.sum()


def test_a_given_mask_is_distinguished_from_an_answer(solver, monkeypatch):
    flags = []

    def noted(_planner: object, shown: Any, *_: object, is_given: bool, **__: object) -> Any:
        flags.append(is_given)
        return shown

    monkeypatch.setattr("pumit.inference.interactive.prompt_solver.correction_field", noted)
    near = (FIRST[0], FIRST[1] + 2, FIRST[2], False)
    given = IndexPrompts(mask=scan()[1])
    for prompts in (IndexPrompts([FIRST]), given):
        later = replace(prompts, points=[*prompts.points, near])
        solver.answer(later, solver.answer(prompts, None))
    assert flags == [False, True]


def box_of_the_ball() -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corner of the scan's bright ball, with a voxel around it."""
    inside = np.argwhere(scan()[1])
    return inside.min(0) - 1.0, inside.max(0) + 1.0


def test_a_box_is_repeated_with_a_click_in_each_of_its_answers(solver, monkeypatch):
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


def test_a_box_in_which_nothing_is_found_is_answered_all_the_same(solver, monkeypatch):
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
    mask[answer.patch.window] = np.asarray(answer.patch.logits > 0)
    return mask


def test_a_click_beyond_the_field_follows_a_long_structure_as_finely(fine_solver, monkeypatch):
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


def test_a_click_far_away_adds_a_part_of_its_own(fine_solver):
    first, second = (12.0, 12.0, 12.0, True), (12.0, 32.0, 78.0, True)
    before = fine_solver.answer(IndexPrompts([first]), None)
    after = fine_solver.answer(IndexPrompts([first, second]), before)
    was, now = whole(fine_solver, before), whole(fine_solver, after)
    assert now[12, 32, 78]
    # What was there stays, voxel by voxel; what is new lies about the click.
    assert (now & was).sum() == was.sum()
    added = np.argwhere(now & ~was)
    assert (np.abs(added - second[:3]) <= 9).all()
    # The part has other answers by itself, but they would replace both.
    assert fine_solver.answer(IndexPrompts([second]), None).count > 1
    assert (after.count, after.others) == (1, ())


# The second click: the whole structure where the first answer was a mere piece of it


GRID = (20, 80, 80)
LIVER = (slice(4, 16), slice(10, 50), slice(10, 50))
PIECE = (slice(8, 12), slice(20, 30), slice(20, 30))
BIT = (slice(8, 12), slice(22, 26), slice(30, 33))  # next to the piece
FAR_BIT = (slice(8, 10), slice(40, 42), slice(40, 43))
LESION, SMALL = (
    (slice(8, 12), slice(20, 30), slice(20, 30)),
    (slice(8, 12), slice(40, 45), slice(40, 45)),
)
CLICKS = np.array([[10.0, 25.0, 25.0], [10.0, 24.0, 31.0]])
BEYOND = np.array([[10.0, 25.0, 25.0], [9.0, 41.0, 41.0]])


def mask(*blocks: tuple[slice, ...]) -> np.ndarray:
    out = np.zeros(GRID, dtype=bool)
    for block in blocks:
        out[block] = True
    return out


def patch(*blocks: tuple[slice, ...]) -> LogitBox:
    return patch_of(mask(*blocks))


def test_an_answer_may_be_a_piece_where_the_correction_touches_it_or_is_next_to_nothing():
    assert may_be_piece(patch(PIECE), patch(PIECE, BIT), CLICKS)
    assert may_be_piece(patch(PIECE), patch(PIECE, FAR_BIT), BEYOND)
    # 2.5 means voxel 2: of a patch that begins at 1 its voxel 1; 1.5 would be its voxel 2.
    part, grown = ((slice(1, 3), slice(1, 5), slice(1, stop)) for stop in (5, 9))
    assert may_be_piece(patch(part), patch(grown), np.array([[2.5, 2.0, 2.0], [2.0, 2.0, 7.0]]))


@pytest.mark.parametrize(("first", "second"), [(LESION, SMALL), (SMALL, LESION)])
def test_of_two_lesions_neither_is_a_piece_in_either_order(first, second):
    places = np.array([[(s.start + s.stop) / 2 for s in block] for block in (first, second)])
    assert not may_be_piece(patch(first), patch(first, second), places)


def larger(by: int) -> tuple[slice, ...]:
    return (PIECE[0], slice(20, 30 + by), slice(20, 33))


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([patch(larger(1))], id="hardly larger"),
        pytest.param([patch((slice(4, 16), slice(10, 50), slice(10, 31)))], id="without a click"),
        pytest.param(
            [patch_of(mask(LIVER) & ~mask((slice(8, 12), slice(20, 24), slice(20, 30))))],
            id="without much of the first answer",
        ),
        pytest.param([patch(LIVER), patch(PIECE, BIT)], id="another field repeats the correction"),
    ],
)
def test_both_clicks_mean_more_or_no_more(answers):
    piece, corrected = patch(PIECE), patch(PIECE, BIT)
    assert is_far_more(piece, corrected, [patch(LIVER), patch(BIT)], CLICKS)
    assert not is_far_more(piece, corrected, answers, CLICKS)
    # A correction that brings most of it is enough.
    most = patch((slice(4, 16), slice(10, 50), slice(10, 42)))
    assert not is_far_more(piece, most, [patch(LIVER)], CLICKS)


@pytest.fixture
def liver_solver(bright_segmenter: Segmenter) -> PromptSolver:
    """Answers every bright voxel of a field, whatever the prompts: a bright box."""
    noise = np.random.default_rng(0).normal(0, 4, GRID)
    array = (100 * mask(LIVER) + noise).astype(np.int16)
    return session_on(Volume(array, (2.0, 1.0, 1.0)), bright_segmenter).solver


Solve = Callable[..., SolverState]


@pytest.fixture
def after_a_piece(liver_solver: PromptSolver) -> Solve:
    """Answers prompts after an answer that was a piece; the correction adds a bit to it."""
    begun = liver_solver.answer(IndexPrompts([(10.0, 25.0, 25.0, True)]), None)

    def solve(prompts: IndexPrompts, answered: int, number: int = 1) -> SolverState:
        piece = replace(begun, patch=patch(PIECE), num_points=answered, number=number)
        before = replace(piece, box=prompts.box)
        corrected = replace(before, patch=patch(PIECE, BIT), num_points=answered + 1)
        return liver_solver._second_click(prompts, before, corrected, UNWATCHED)

    return solve


INSIDE, NEXT_TO_IT = (10.0, 25.0, 25.0, True), (10.0, 24.0, 31.0, True)


def share_of_the_liver(state: SolverState) -> float:
    found = np.zeros(GRID, dtype=bool)
    found[state.patch.window] = state.patch.logits > 0
    return float(found[LIVER].mean())


def test_a_second_click_brings_the_whole_and_decodes_each_field_once(
    liver_solver, after_a_piece, monkeypatch
):
    decode, fields = liver_solver._decoded, []
    monkeypatch.setattr(
        liver_solver, "_decoded", lambda where, *args: fields.append(where) or decode(where, *args)
    )
    state = after_a_piece(IndexPrompts([INSIDE, NEXT_TO_IT]), 1)
    assert share_of_the_liver(state) > 0.9
    assert state.num_points == 2
    assert len(fields) == len(set(fields))


@pytest.mark.parametrize(
    ("prompts", "answered"),
    [
        (IndexPrompts([INSIDE, INSIDE, NEXT_TO_IT]), 2),
        (IndexPrompts([INSIDE, (10.0, 24.0, 31.0, False)]), 1),
        (
            IndexPrompts(
                [INSIDE, NEXT_TO_IT], box=(np.array([8.0, 20, 20]), np.array([12.0, 34, 34]))
            ),
            1,
        ),
        (IndexPrompts([INSIDE, NEXT_TO_IT], mask=mask(PIECE)), 1),
    ],
    ids=["a third click", "a click outside", "in a box", "on a given mask"],
)
def test_every_other_click_corrects(after_a_piece, prompts, answered):
    assert share_of_the_liver(after_a_piece(prompts, answered)) < 0.1


def test_chosen_and_averaged_answers_are_only_corrected(liver_solver, after_a_piece, monkeypatch):
    both = IndexPrompts([INSIDE, NEXT_TO_IT])
    assert share_of_the_liver(after_a_piece(both, 1, number=2)) < 0.1
    monkeypatch.setattr(liver_solver, "_averages_fields", True)
    assert share_of_the_liver(after_a_piece(both, 1)) < 0.1


def test_a_second_click_in_what_is_there_changes_nothing(liver_solver):
    before = liver_solver.answer(IndexPrompts([INSIDE]), None)
    after = liver_solver.answer(IndexPrompts([INSIDE, NEXT_TO_IT]), before)
    assert after.patch is before.patch


def test_what_was_foreseen_is_not_computed_again_and_changes_no_answer(
    bright_segmenter, monkeypatch
):
    volume, _ = scan()
    engine, embedded = bright_segmenter.engine, []
    encode = engine.encode

    def noted(image: Any, **options: Any) -> Any:
        embedded.append(options)
        return encode(image, **options)

    monkeypatch.setattr(engine, "encode", noted)
    masks = []
    for foresees in (False, True):
        session = session_on(volume, bright_segmenter)
        session.add_point(at(volume, BALL))
        session.predict()
        session.solver.scan.embeddings.clear()
        if foresees:
            session.foresee()
        embedded.clear()
        session.add_point(at(volume, (6, 20, 30)), positive=False)
        masks.append(session.predict())
        assert bool(embedded) is not foresees
    np.testing.assert_array_equal(*masks)
