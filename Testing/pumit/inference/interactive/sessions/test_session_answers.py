"""Answers follow from the prompts alone, and can be cancelled."""

from __future__ import annotations

import threading
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ball_scan import BALL, OBLIQUE, Opened, at, box_of, many_prompts, scan, session_on
from pumit.errors import Cancelled
from pumit.evaluation.metrics import dice
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.system.watch import Watch
from pumit.volume import Volume


def test_a_replayed_session_gives_the_same_masks(tiny_segmenter: Segmenter) -> None:
    volume, _ = scan(OBLIQUE)
    stepwise, at_once = (InteractiveSession(tiny_segmenter) for _ in range(2))
    for session in (stepwise, at_once):
        session.set_volume(volume)
    for number, prompt in enumerate(many_prompts(volume)):
        stepwise.add_prompt(prompt)
        if number > 0:  # the first is negative
            stepwise.predict()
        at_once.add_prompt(prompt)
    np.testing.assert_array_equal(stepwise.predict(), at_once.predict())
    assert stepwise.estimated_iou() == at_once.estimated_iou()


def test_detours_leave_no_trace(tiny_segmenter: Segmenter) -> None:
    """Other segments, undone clicks and forgotten answers change nothing."""
    volume, _ = scan()
    plain, busy = (InteractiveSession(tiny_segmenter) for _ in range(2))
    for session in (plain, busy):
        session.set_volume(volume)
    for prompt in many_prompts(volume)[1:4]:
        plain.add_prompt(prompt)
        busy.add_point(at(volume, (9, 30, 30)), positive=False)
        busy.undo()
        busy.add_prompt(prompt)
        busy.add_point(at(volume, (3, 9, 9)), segment="other")
        busy.predict("other")
        busy.predict()
    busy._answers.clear()
    np.testing.assert_array_equal(plain.predict(), busy.predict())


def test_segments_are_independent_and_may_overlap(bright_segmenter: Segmenter) -> None:
    volume, truth = scan()
    session = session_on(volume, bright_segmenter)
    session.add_point(at(volume, BALL), segment="a")
    session.add_point(at(volume, (6, 18, 24)), segment="b")
    assert session.segments == ["a", "b"]
    assert dice(session.predict("a"), truth) > 0.9
    assert dice(session.predict("b"), truth) > 0.9
    session.reset("a")
    assert session.segments == ["b"]
    assert dice(session.predict("b"), truth) > 0.9


def test_a_click_costs_nothing_that_is_known(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undo, redo, asking twice and asking for the estimate decode nothing again."""
    session, volume = opened
    session.add_point(at(volume, BALL))
    session.predict()
    session.add_point(at(volume, (6, 18, 26)))
    mask = session.predict()
    expected = mask.copy()
    monkeypatch.setattr(Segmenter, "decode", lambda *_: pytest.fail("decoded again"))
    mask[:] = ~mask  # it is the user's own
    np.testing.assert_array_equal(session.predict(), expected)
    session.estimated_iou()
    session.undo()
    session.predict()
    session.redo()
    session.predict()


@pytest.mark.parametrize("limit", ["CACHED_ANSWERS", "CACHED_ANSWER_BYTES"])
def test_long_sessions_answer_only_the_newest_prompt(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Answers beyond the cache are forgotten without being requested again, except by undo."""
    session, volume = opened
    masks = []
    plain, calls = session.solver.answer, []
    monkeypatch.setattr(
        session.solver, "answer", lambda *given: calls.append(given) or plain(*given)
    )
    for number in range(5):
        session.add_point(at(volume, (6, 15 + number, 25)))
        masks.append(session.predict())
        assert len(calls) == number + 1
        assert len(session._answers) <= 4
        if number == 0:
            size = next(iter(session._answers.values())).nbytes
            most = 3 if limit == "CACHED_ANSWERS" else 3 * size
            monkeypatch.setattr(f"pumit.inference.interactive.session.{limit}", most)
    for expected in masks[-2::-1]:
        session.undo()
        np.testing.assert_array_equal(session.predict(), expected)


# Every kind of prompt


@pytest.mark.parametrize(
    "corners",
    [((2, 6, 14), (10, 28, 36)), ((6, 6, 14), (6, 28, 36)), ((2, 17, 14), (10, 17, 36))],
    ids=["3D", "one slice", "one row"],
)
def test_boxes_of_an_oblique_volume_by_their_corners(
    bright_segmenter: Segmenter, corners: tuple[Any, Any]
) -> None:
    volume, truth = scan(OBLIQUE)
    session = session_on(volume, bright_segmenter)
    session.add_prompt(box_of(volume, *corners))
    assert dice(session.predict(), truth) > 0.8


@pytest.mark.parametrize("is_box", [True, False], ids=["second box", "click"])
def test_a_prompt_far_from_the_box_is_inspected(bright_segmenter: Segmenter, is_box: bool) -> None:
    """The last box counts, also where the first one's field does not reach; a click adds to it."""
    array = np.random.default_rng(0).integers(0, 4, (8, 300, 300), dtype=np.int16)
    array[2:6, 8:20, 8:20] += 100
    array[2:6, 270:286, 270:286] += 100
    volume = Volume(array, (3.0, 1.0, 1.0))
    session = session_on(volume, bright_segmenter)
    session.add_prompt(box_of(volume, (1, 6, 6), (6, 22, 22)))
    assert session.predict()[4, 12, 12]
    if is_box:
        session.add_prompt(box_of(volume, (1, 266, 266), (6, 290, 290)))
    else:
        session.add_point(at(volume, (4, 278, 278)))
    assert session.predict()[4, 278, 278]


# Cancelling, progress, memory


def test_cancelling_at_any_moment_changes_no_answer(opened: Opened) -> None:
    session, volume = opened
    for prompt in many_prompts(volume)[1:3]:
        session.add_prompt(prompt)
    calls = []
    session.predict(watch=Watch(lambda: bool(calls.append(1))))  # type: ignore[func-returns-value]
    expected = session.predict()
    assert len(calls) > 2
    for moment in range(len(calls)):
        session._answers.clear()
        count = iter(range(len(calls) + 1))
        with pytest.raises(Cancelled):
            session.predict(watch=Watch(lambda c=count, m=moment: next(c) == m))  # type: ignore[misc]
        np.testing.assert_array_equal(session.predict(), expected)


def test_progress_rises_to_one_in_the_callers_thread(opened: Opened) -> None:
    session, volume = opened
    session.add_point(at(volume, (1, 2, 3)), positive=False)
    for prompt in many_prompts(volume)[1:4]:
        session.add_prompt(prompt)
    reports: list[tuple[float, int]] = []
    for _ in range(2):  # computed, and known
        reports.clear()
        session.predict(
            watch=Watch(progress=lambda share: reports.append((share, threading.get_ident())))
        )
        shares = [share for share, _ in reports]
        assert shares == sorted(set(shares))
        assert shares[-1] == 1.0
        assert min(shares) > 0
        assert {thread for _, thread in reports} == {threading.get_ident()}


def test_opening_a_large_scan_does_not_copy_it(bright_segmenter: Segmenter) -> None:
    """Memory follows the field and the averaged levels, not a second copy of the scan."""
    array = np.zeros((160, 256, 256), np.float64)  # 80 MiB that the system hands out lazily
    array[80, 100:140, 100:140] = 1.0
    volume = Volume(array, (2.0, 1.0, 1.0))
    session = InteractiveSession(bright_segmenter)
    tracemalloc.start()
    try:
        session.set_volume(volume)
        session.add_point(at(volume, (80, 120, 120)))
        mask = session.predict()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert mask.shape == volume.shape
    assert peak < 0.5 * array.nbytes
    assert session._solver is not None
    levels = session._solver.pyramid.levels
    assert sum(t.nbytes for t, _ in levels if t is not None) < 0.6 * array.size * 4


def test_the_estimate_is_read_as_the_model_was_calibrated(tiny_segmenter: Segmenter) -> None:
    volume, _ = scan()
    plain = InteractiveSession(tiny_segmenter)
    row = {"estimate": [0, 1], "iou": [0.25, 0.75]}
    calibrated = InteractiveSession(replace(tiny_segmenter, recipe={"calibration": row}))
    for session in (plain, calibrated):
        session.set_volume(volume)
        session.add_point(at(volume, BALL))
    assert calibrated.estimated_iou() == pytest.approx(0.25 + plain.estimated_iou() / 2)
    np.testing.assert_array_equal(calibrated.predict(), plain.predict())
