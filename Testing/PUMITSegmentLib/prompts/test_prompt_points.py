"""Points: placed, moved and deleted in real slice views."""

from __future__ import annotations

import pytest
import slicer
from prompt_frames import lps


def test_clicks_become_points_where_they_were_made(prompted, view) -> None:
    prompted.place()
    view.click(220, 260)
    view.click(300, 240)
    prompted.place(isPositive=False)
    view.click(260, 200)

    expected = [lps(view.xyToRas(*xy)) for xy in ((220, 260), (300, 240), (260, 200))]
    made = prompted.of()
    assert [p.is_positive for p in made] == [True, True, False]
    for prompt, position in zip(made, expected, strict=True):
        assert prompt.point_lps == pytest.approx(position, abs=1e-3)
    assert prompted.changed == ["liver"] * 3


def test_the_preview_under_the_mouse_is_no_prompt(prompted, view) -> None:
    prompted.place()
    view.enter()
    view.move(220, 260)
    assert prompted.of() == []
    assert prompted.changed == []


def test_a_drag_is_reported_once_when_it_ends(prompted, view) -> None:
    prompted.place()
    view.click(220, 260)
    view.click(300, 240)
    prompted.prompts.stopPlacing()
    prompted.changed.clear()
    view.drag((220, 260), (180, 300))

    assert prompted.changed == ["liver"]
    moved, other = prompted.of()  # in the same order as before
    assert moved.point_lps == pytest.approx(lps(view.xyToRas(180, 300)), abs=0.5)
    assert other.point_lps == pytest.approx(lps(view.xyToRas(300, 240)), abs=1e-3)


def test_the_delete_key_removes_a_point(prompted, view) -> None:
    prompted.place()
    view.click(220, 260)
    view.click(300, 240)
    prompted.prompts.stopPlacing()
    view.move(220, 260)
    view.key("Delete", 220, 260)

    (left,) = prompted.of()
    assert left.point_lps == pytest.approx(lps(view.xyToRas(300, 240)), abs=1e-3)
    assert prompted.changed == ["liver"] * 3


def test_a_point_snapped_to_the_slice_does_not_hide_what_follows(prompted, axial) -> None:
    prompted.place()
    axial.click(220, 260)
    axial.click(300, 240)
    prompted.prompts.stopPlacing()
    axial.sliceLogic.SetSliceOffset(axial.sliceLogic.GetSliceOffset() + 1.0)
    axial.render()
    axial.key("s", 220, 260)  # Slicer's key: the point comes into this slice
    prompted.changed.clear()
    slicer.util.getNode("Liver +").RemoveNthControlPoint(1)
    (snapped,) = prompted.of()
    assert prompted.changed == ["liver"]
    assert snapped.point_lps == pytest.approx(lps(axial.xyToRas(220, 260)), abs=1e-3)
