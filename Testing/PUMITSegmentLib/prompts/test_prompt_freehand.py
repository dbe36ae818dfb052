"""Strokes: a curve drawn by press, drag and release."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from prompt_frames import lps
from prompt_scene import markups

STROKE = [(150, 200), (220, 280), (300, 240), (340, 180)]


@pytest.mark.parametrize("isPositive", [True, False])
def test_a_stroke_becomes_a_scribble_along_it(prompted, view, isPositive) -> None:
    prompted.place("SCRIBBLE", isPositive=isPositive)
    view.drag(*STROKE, steps=20)

    (scribble,) = prompted.of()
    assert scribble.is_positive is isPositive
    assert prompted.changed == ["liver"]
    drawn = np.vstack([np.linspace(a, b, 40) for a, b in pairwise(STROKE)])
    expected = np.array([lps(view.xyToRas(*xy)) for xy in drawn])
    gaps = np.linalg.norm(expected[:, None] - np.array(scribble.points_lps)[None], axis=2)
    pixel = np.linalg.norm(view.xyToRas(1, 0) - view.xyToRas(0, 0))
    assert gaps.min(axis=1).max() < 3 * pixel
    assert gaps.min(axis=0).max() < 3 * pixel


def test_strokes_follow_each_other_until_a_right_click(prompted, view) -> None:
    prompted.place("SCRIBBLE")
    for shift in (0, 40):
        view.drag(*[(x, y + shift) for x, y in STROKE])
    assert prompted.prompts.isPlacing
    assert len(prompted.of()) == 2
    assert prompted.changed == ["liver"] * 2
    view.click(200, 200, button="Right")
    assert not prompted.prompts.isPlacing
    prompted.prompts.stopPlacing()
    assert len(markups()) == 2


def test_a_stroke_becomes_a_lasso(prompted, view) -> None:
    turn = np.linspace(0, 2 * np.pi, 25)
    prompted.place("LASSO")
    view.drag(*np.stack((250 + 90 * np.cos(turn), 230 + 40 * np.sin(turn)), axis=1), steps=3)
    (lasso,) = prompted.of()
    seen = np.array([view.rasToXy(lps(point)) for point in lasso.points_lps])
    assert np.abs(seen - (250, 230)).max(axis=0) == pytest.approx((40, 0), abs=25)


def test_clicks_with_an_unsteady_hand_stay_clicks(prompted, view) -> None:
    prompted.place("SCRIBBLE")
    for x, y in STROKE:
        view.drag((x, y), (x + 2, y + 1))
    view.click(340, 180, button="Right")
    (scribble,) = prompted.of()
    assert prompted.changed == ["liver"]
    ends = [lps(view.xyToRas(*xy)) for xy in ((152, 201), (342, 181))]
    np.testing.assert_allclose((scribble.points_lps[0], scribble.points_lps[-1]), ends, atol=0.01)


def test_after_strokes_the_mouse_does_what_it_did(prompted, view) -> None:
    from harness.program.scene_state import countPythonObservers

    before = countPythonObservers(view.interactor)
    prompted.place("SCRIBBLE")
    view.drag(*STROKE)
    prompted.prompts.stopPlacing()
    assert countPythonObservers(view.interactor) == before
    # Its points can be dragged.
    view.drag(STROKE[0], (120, 180))
    (scribble,) = prompted.of()
    moved = np.array(scribble.points_lps) - lps(view.xyToRas(120, 180))
    assert np.linalg.norm(moved, axis=1).min() < 0.5
    assert prompted.changed == ["liver"] * 2


def test_a_stroke_can_be_undone_while_drawing_goes_on(prompted, view) -> None:
    prompted.place("SCRIBBLE")
    view.drag(*STROKE)
    one = prompted.prompts.snapshot("liver")
    view.drag(*[(x, y + 50) for x, y in STROKE])
    prompted.prompts.restore("liver", one)
    assert len(prompted.of()) == 1
    view.drag(*[(x, y + 90) for x, y in STROKE])
    assert len(prompted.of()) == 2
