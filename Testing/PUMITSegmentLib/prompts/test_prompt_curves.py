"""Scribbles and lassos: curves drawn in real slice views."""

from __future__ import annotations

import numpy as np
import pytest
import slicer
from prompt_frames import lps
from prompt_scene import markups
from pumit.prompts import ScribblePrompt


def drawCurve(prompted, view, positions) -> None:
    """Click along it, end it with the right button, and put the tool away."""
    for position in positions:
        view.click(*position)
    view.click(*positions[-1], button="Right")
    prompted.prompts.stopPlacing()


def distances(points, polyline) -> np.ndarray:
    """Distance of each point to the nearest vertex of a polyline."""
    a, b = np.asarray(points)[:, None], np.asarray(polyline)[None]
    return np.linalg.norm(a - b, axis=2).min(axis=1)


@pytest.mark.parametrize("isPositive", [True, False])
def test_a_scribble_follows_the_curve_that_is_seen(prompted, view, isPositive) -> None:
    clicked = [(150, 200), (200, 260), (260, 240), (320, 300)]
    prompted.place("SCRIBBLE", isPositive=isPositive)
    drawCurve(prompted, view, clicked)

    (scribble,) = prompted.of()
    assert isinstance(scribble, ScribblePrompt)
    assert scribble.is_positive is isPositive
    # More than its control points, through all of them, and as the curve is drawn.
    assert len(scribble.points_lps) > 20
    expected = [lps(view.xyToRas(*xy)) for xy in clicked]
    assert distances(expected, scribble.points_lps).max() < 0.5
    (node,) = markups()
    drawn = slicer.util.arrayFromMarkupsCurvePoints(node, world=True) * (-1, -1, 1)
    np.testing.assert_allclose(scribble.points_lps, drawn, atol=1e-3)
    assert prompted.changed == ["liver"]


def test_a_curve_is_no_prompt_before_it_is_finished(prompted, view) -> None:
    prompted.place("SCRIBBLE")
    view.click(150, 200)
    view.click(200, 260)
    view.move(250, 200)
    assert prompted.of() == []
    assert prompted.changed == []


def test_a_moved_control_point_asks_again_once(prompted, view) -> None:
    prompted.place("SCRIBBLE")
    drawCurve(prompted, view, [(150, 200), (200, 260), (260, 240)])
    view.drag((200, 260), (210, 320))
    (scribble,) = prompted.of()
    assert distances([lps(view.xyToRas(210, 320))], scribble.points_lps)[0] < 0.5
    assert prompted.changed == ["liver"] * 2


@pytest.mark.parametrize("isPositive", [True, False])
def test_a_lasso_marks_the_middle_of_its_area(prompted, view, isPositive) -> None:
    # An area that is longer than wide, closed by itself.
    clicked = [(150, 200), (250, 190), (350, 200), (350, 260), (250, 270), (150, 260)]
    prompted.place("LASSO", isPositive=isPositive)
    drawCurve(prompted, view, clicked)

    (lasso,) = prompted.of()
    assert lasso.is_positive is isPositive
    seen = np.array([view.rasToXy(lps(point)) for point in lasso.points_lps])
    assert np.abs(seen[:, 1] - 230).max() < 20
    assert seen[:, 0].min() > 165
    assert seen[:, 0].max() < 335
    back = [view.xyToRas(*xy) for xy in seen]  # in the slice
    np.testing.assert_allclose([lps(ras) for ras in back], lasso.points_lps, atol=0.01)
    assert (len(lasso.points_lps) == 1) == (not isPositive)


def test_a_lasso_of_two_clicks_is_no_prompt(prompted, view) -> None:
    prompted.place("LASSO")
    drawCurve(prompted, view, [(150, 200), (250, 190)])
    assert prompted.of() == []
    prompted.prompts.stopPlacing()
    assert markups() == []
