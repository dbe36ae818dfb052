"""Lists of segments: shipped, saved and loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from daily_panel import Daily
from PUMITSlicerLib.terms import hasCode


class Dialogs:
    """File dialogs that answer at once."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def open(self) -> str:
        return self.path

    def save(self) -> str:
        return self.path


def choose(daily: Daily, text: str) -> None:
    menu = daily.ui.newSegmentButton.menu()
    menu.aboutToShow.emit()
    (action,) = [each for each in menu.actions() if each.text == text]
    action.trigger()
    daily.process()


def segments(daily: Daily) -> dict[str, tuple[str, tuple[float, ...]]]:
    """Terminology and colour of each segment, by its name."""
    segmentation = daily.logic.segmentationNode.GetSegmentation()
    found = [segmentation.GetNthSegment(i) for i in range(segmentation.GetNumberOfSegments())]
    return {each.GetName(): (each.GetTerminology(), each.GetColor()) for each in found}


@pytest.mark.parametrize(
    ("title", "first", "count"),
    [("Abdomen", "Gallbladder", 10), ("Heart", "Left ventricle", 7), ("Head and neck", "Brai", 15)],
)
def test_a_shipped_list_is_one_press(daily: Daily, title: str, first: str, count: int) -> None:
    choose(daily, f"All of: {title}")
    made = segments(daily)
    assert len(made) == 1 + count  # the liver was there
    assert list(made)[1].startswith(first)
    segmentation = daily.logic.segmentationNode.GetSegmentation()
    uncoded = [
        segmentation.GetNthSegment(i).GetName()
        for i in range(len(made))
        if not hasCode(segmentation.GetNthSegment(i))
    ]
    assert uncoded == []
    colours = [colour for _term, colour in made.values()]
    assert len(set(colours)) == len(colours)  # neighbours differ
    choose(daily, f"All of: {title}")  # none comes twice
    assert len(segments(daily)) == 1 + count


def test_a_list_is_saved_and_loaded_with_codes_and_colours(daily: Daily, tmp_path: Path) -> None:
    daily.panel.segmentSection.dialogs = Dialogs(tmp_path / "mine")
    choose(daily, "All of: Heart")
    segment = daily.logic.segmentationNode.GetSegmentation().GetNthSegment(2)
    segment.SetColor(0.1, 0.2, 0.9)
    before = segments(daily)
    choose(daily, "Save these segments as a list...")
    file = tmp_path / "mine.pumit-list.json"
    assert file.is_file()
    assert "Miller" not in file.read_text()
    daily.logic.parameters.segmentation = None
    daily.panel.segmentSection.dialogs = Dialogs(file)
    choose(daily, "All of a saved list...")
    after = segments(daily)
    assert list(after) == list(before)
    for name, (term, colour) in before.items():
        assert after[name][0] == term
        assert after[name][1] == pytest.approx(colour, abs=1e-3)


def test_what_is_no_list_is_said(daily: Daily, tmp_path: Path) -> None:
    file = tmp_path / "odd.pumit-list.json"
    daily.panel.segmentSection.dialogs = Dialogs(file)
    for content in ("nothing", "[]", '{"segments": [{}]}'):
        daily.logic.status.waiting("Before")
        file.write_text(content)
        choose(daily, "All of a saved list...")
        assert "is not a list of segments" in daily.status
        assert len(segments(daily)) == 1
