"""The panel at 380 by 800, as in Slicer's side bar, in the states that a day brings."""

from pathlib import Path
from typing import Any

from daily_panel import B
from pumit.errors import PumitError


def check(frame: Any, file: Path) -> None:
    from harness.widgets.layout_faults import inModulePanel, layoutFaults

    inModulePanel(frame)
    frame.grab().save(str(file))
    assert layoutFaults(frame) == []
    assert frame.minimumSizeHint.width() <= frame.width


def test_a_fresh_panel_fits(panel, screenshots):
    check(panel.frame, screenshots / "fits_fresh.png")


def test_a_panel_in_use_fits(daily, screenshots):
    def fits(state: str) -> None:
        daily.process()
        check(daily.frame, screenshots / f"fits_{state}.png")

    fits("clicking")
    daily.view.clickAt((9, 9, 9))
    text = "The worker ended: it has too little memory. Choose a smaller model under Computing. "
    daily.worker.requests[-1].onError(PumitError(2 * text))
    fits("error")
    for number in range(6):
        daily.logic.newSegment(f"Segment with a long name {number}")
    spleen = daily.addSpleen()
    daily.panel.segmentColumns.count()
    daily.view.clickAt((9, 9, 9))
    fits("computing")
    daily.answer(B)
    daily.logic.status.done("The segment Spleen stops at Liver, where both would be. " * 2)
    fits("two_lines")
    daily.press(daily.ui.box3dButton)
    fits("box")
    # The segment that is worked on is seen in the table.
    table = daily.ui.segmentsTable
    for segmentID in (spleen, daily.liver):
        daily.logic.selectSegment(segmentID)
        daily.process()
        rows = table.tableWidget()
        place = rows.visualRect(rows.model().index(table.rowForSegmentID(segmentID), 0))
        assert rows.viewport().rect.contains(place.center()), segmentID


def test_every_section_fits_when_it_is_opened(daily, screenshots):
    import ctk

    sections = daily.frame.findChildren(ctk.ctkCollapsibleButton)
    for number, section in enumerate(sections):
        for each in sections:
            each.collapsed = each is not section and not each.isAncestorOf(section)
        daily.process()
        check(daily.frame, screenshots / f"fits_section_{number}.png")
