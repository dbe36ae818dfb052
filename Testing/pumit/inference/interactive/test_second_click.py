"""A second click gives the whole structure where the first answer was a mere piece of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ball_scan import BALL, at, scan, session_on
from pumit.inference.interactive.grid_transfer import LogitBox, patch_of
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.prompt_solver import PromptSolver, is_far_more, may_be_piece
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.solver_state import SolverState
from pumit.volume import Volume

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


def test_an_answer_may_be_a_piece_where_the_correction_touches_it_or_is_next_to_nothing() -> None:
    assert may_be_piece(patch(PIECE), patch(PIECE, BIT), CLICKS)
    assert may_be_piece(patch(PIECE), patch(PIECE, FAR_BIT), BEYOND)
    # 2.5 means voxel 2: of a patch that begins at 1 its voxel 1; 1.5 would be its voxel 2.
    part, grown = ((slice(1, 3), slice(1, 5), slice(1, stop)) for stop in (5, 9))
    assert may_be_piece(patch(part), patch(grown), np.array([[2.5, 2.0, 2.0], [2.0, 2.0, 7.0]]))


@pytest.mark.parametrize(("first", "second"), [(LESION, SMALL), (SMALL, LESION)])
def test_of_two_lesions_neither_is_a_piece_in_either_order(
    first: tuple[slice, ...], second: tuple[slice, ...]
) -> None:
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
def test_both_clicks_mean_more_or_no_more(answers: list[LogitBox]) -> None:
    piece, corrected = patch(PIECE), patch(PIECE, BIT)
    assert is_far_more(piece, corrected, [patch(LIVER), patch(BIT)], CLICKS)
    assert not is_far_more(piece, corrected, answers, CLICKS)
    # A correction that brings most of it is enough.
    most = patch((slice(4, 16), slice(10, 50), slice(10, 42)))
    assert not is_far_more(piece, most, [patch(LIVER)], CLICKS)


@pytest.fixture
def solver(bright_segmenter: Segmenter) -> PromptSolver:
    """Answers every bright voxel of a field, whatever the prompts: a bright box."""
    noise = np.random.default_rng(0).normal(0, 4, GRID)
    array = (100 * mask(LIVER) + noise).astype(np.int16)
    return session_on(Volume(array, (2.0, 1.0, 1.0)), bright_segmenter).solver


Solve = Callable[..., SolverState]


@pytest.fixture
def after_a_piece(solver: PromptSolver, monkeypatch: pytest.MonkeyPatch) -> Solve:
    """Answers prompts after an answer that was a piece; the correction adds a bit to it."""
    begun = solver.answer(IndexPrompts([(10.0, 25.0, 25.0, True)]), None)

    def solve(prompts: IndexPrompts, answered: int, number: int = 1) -> SolverState:
        piece = replace(begun, patch=patch(PIECE), num_points=answered, number=number)
        before = replace(piece, box=prompts.box)
        corrected = replace(before, patch=patch(PIECE, BIT), num_points=answered + 1)
        monkeypatch.setattr(solver, "_corrected", lambda *_: corrected)
        return solver.answer(prompts, before)

    return solve


FIRST, SECOND = (10.0, 25.0, 25.0, True), (10.0, 24.0, 31.0, True)


def share_of_the_liver(state: SolverState) -> float:
    assert state.patch is not None
    found = np.zeros(GRID, dtype=bool)
    found[state.patch.window] = state.patch.logits > 0
    return float(found[LIVER].mean())


def test_a_second_click_brings_the_whole_and_decodes_each_field_once(
    solver: PromptSolver, after_a_piece: Solve, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, fields = solver._decoded, []
    monkeypatch.setattr(
        solver, "_decoded", lambda where, *args: fields.append(where) or decode(where, *args)
    )
    state = after_a_piece(IndexPrompts([FIRST, SECOND]), 1)
    assert share_of_the_liver(state) > 0.9
    assert state.num_points == 2
    assert len(fields) == len(set(fields))


@pytest.mark.parametrize(
    ("prompts", "answered"),
    [
        (IndexPrompts([FIRST, FIRST, SECOND]), 2),
        (IndexPrompts([FIRST, (10.0, 24.0, 31.0, False)]), 1),
        (IndexPrompts([FIRST, SECOND], box=(np.array([8.0, 20, 20]), np.array([12.0, 34, 34]))), 1),
        (IndexPrompts([FIRST, SECOND], mask=mask(PIECE)), 1),
    ],
    ids=["a third click", "a click outside", "in a box", "on a given mask"],
)
def test_every_other_click_corrects(
    after_a_piece: Solve, prompts: IndexPrompts, answered: int
) -> None:
    assert share_of_the_liver(after_a_piece(prompts, answered)) < 0.1


def test_chosen_and_averaged_answers_are_only_corrected(
    solver: PromptSolver, after_a_piece: Solve, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = IndexPrompts([FIRST, SECOND])
    assert share_of_the_liver(after_a_piece(both, 1, number=2)) < 0.1
    monkeypatch.setattr(type(solver.segmenter), "averages_fields", True)
    assert share_of_the_liver(after_a_piece(both, 1)) < 0.1


def test_a_second_click_in_what_is_there_already_changes_nothing(solver: PromptSolver) -> None:
    before = solver.answer(IndexPrompts([FIRST]), None)
    after = solver.answer(IndexPrompts([FIRST, SECOND]), before)
    assert after.patch is before.patch


def test_what_was_foreseen_is_not_computed_again_and_changes_no_answer(
    bright_segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, _ = scan()
    embed, embedded = Segmenter.embed, []

    def noted(self: Segmenter, *args: Any) -> Any:
        embedded.append(args)
        return embed(self, *args)

    monkeypatch.setattr(Segmenter, "embed", noted)
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
