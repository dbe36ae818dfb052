"""The panel at 380 by 800, as in Slicer's side bar, in the states that a day brings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daily_panel import Daily
from pumit.errors import PumitError


def check(frame: Any, file: Path) -> None:
    from harness.widgets.layout_faults import inModulePanel, layoutFaults

    inModulePanel(frame)
    frame.grab().save(str(file))
    assert layoutFaults(frame) == []
    assert frame.minimumSizeHint.width() <= frame.width


def test_a_fresh_panel_fits(panel, screenshots):
    check(panel.frame, screenshots / "fits_fresh.png")


def severalSegments(daily: Daily) -> None:
    for number in range(6):
        daily.logic.newSegment(f"Segment with a long name {number}")
    daily.addSpleen()
    daily.panel.segmentColumns.count()


def twoLines(daily: Daily) -> None:
    severalSegments(daily)
    daily.logic.status.done("The segment Spleen stops at Liver, where both would be. " * 2)


def error(daily: Daily) -> None:
    daily.view.clickAt((9, 9, 9))
    text = "The worker ended: it has too little memory. Choose a smaller model under Computing. "
    daily.worker.requests[-1].onError(PumitError(2 * text))


def computing(daily: Daily) -> None:
    severalSegments(daily)
    daily.view.clickAt((9, 9, 9))


STATES: dict[str, Callable[[Daily], object]] = {
    "clicking": lambda daily: None,
    "two_lines": twoLines,
    "error": error,
    "computing": computing,
    "box": lambda daily: daily.press(daily.ui.box3dButton),
}


@pytest.mark.parametrize("state", STATES)
def test_a_panel_in_use_fits(daily, screenshots, state):
    STATES[state](daily)
    daily.process()
    check(daily.frame, screenshots / f"fits_{state}.png")


def test_the_segment_that_is_worked_on_is_seen_in_the_table(daily):
    severalSegments(daily)
    table = daily.ui.segmentsTable

    def isSeen(segmentID: str) -> bool:
        rows = table.tableWidget()
        place = rows.visualRect(rows.model().index(table.rowForSegmentID(segmentID), 0))
        return bool(rows.viewport().rect.contains(place.center()))

    daily.process()
    assert isSeen(daily.logic.segmentID)
    daily.logic.selectSegment(daily.liver)
    daily.process()
    assert isSeen(daily.liver)


def test_every_section_fits_when_it_is_opened(daily, screenshots):
    import ctk

    sections = daily.frame.findChildren(ctk.ctkCollapsibleButton)
    for number, section in enumerate(sections):
        for each in sections:
            each.collapsed = each is not section and not each.isAncestorOf(section)
        daily.process()
        check(daily.frame, screenshots / f"fits_section_{number}.png")
