"""The word on a segment is of what was written, stays with it, and is green only when good."""

from pathlib import Path
from typing import Any

import numpy as np
import slicer
from daily_panel import A, Daily
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.rating import Rating, isReviewed, ratingOf
from PUMITSegmentLib.segments.volumes import digestOf
from PUMITSegmentLib.segments.writer import OverwriteMode
from PUMITSlicerLib.status import Activity
from scripted_worker import SHAPE, box

BLOCK = box((2, 2, 2), (18, 20, 24))
# Nearly all of it lies in the block.
VENTRICLE = box((8, 8, 8), (14, 14, 14)) | box((18, 8, 8), (19, 11, 11))


def words(daily: Daily, title: str = "Rating") -> dict[str, str]:
    """Return the texts of a column, with the volumes unchanged."""
    daily.panel.segmentColumns.count()
    return daily.column(title)


def colour(daily: Daily, segmentID: str) -> str:
    from Qt import QtCore

    return str(daily.cell(segmentID, "Rating", QtCore.Qt.ForegroundRole).color().name())


def pressReviewed(daily: Daily, segmentID: str) -> None:
    from Qt import QtCore, QtTest

    daily.panel.segmentColumns.count()
    table = daily.ui.segmentsTable.tableWidget()
    last = table.model().columnCount() - 1
    row = daily.ui.segmentsTable.rowForSegmentID(segmentID)
    place = table.visualRect(table.model().index(row, last)).center()
    QtTest.QTest.mouseClick(table.viewport(), QtCore.Qt.LeftButton, pos=place)
    daily.process()


def isGreen(daily: Daily) -> bool:
    return daily.logic.status.current.activity is Activity.DONE


def click(daily: Daily, mask: np.ndarray, quality: Any, place: Any = (10, 10, 10)) -> None:
    daily.view.clickAt(place)
    daily.worker.requests[-1].answer(mask, dice=0.9, quality=quality)
    daily.process()


def test_each_word_is_said_and_stands_in_the_table(daily):
    for number, (quality, word, colourOfWord) in enumerate(
        (
            ("good", "good", "#1f8f4e"),
            ("check", "check", ""),
            ("check carefully", "check carefully", "#c75000"),
            ("unreliable", "unreliable", "#c75000"),
            (None, "not rated", ""),
        )
    ):
        click(daily, A, quality, (10, 10, 6 + number))
        assert daily.status.startswith(f"Liver: {word} (updated in ")
        assert words(daily) == {"Liver": word}
        assert words(daily, "Volume") == {"Liver": "0.3 mL"}
        assert isGreen(daily) == (quality == "good")
        if colourOfWord:
            assert colour(daily, daily.liver) == colourOfWord


def test_a_segment_that_neighbours_left_little_of_is_not_called_good(daily):
    """F9: a block painted on purpose lies over the ventricle; 2 % of it were called good."""
    daily.editByHand(daily.liver, BLOCK)
    ventricle = daily.logic.newSegment("Ventricle")
    click(daily, VENTRICLE, "good")
    assert daily.status == "Ventricle: 96 % of the result overlaps Liver and was not added."
    assert not isGreen(daily)
    assert "4 % kept" in words(daily)["Ventricle"]
    buttons = (daily.ui.firstChoiceButton, daily.ui.secondChoiceButton)
    assert [button.text for button in buttons] == ["Take it", "Overlap"]
    daily.press(daily.ui.secondChoiceButton)
    assert np.array_equal(daily.logic.maskOf(ventricle), VENTRICLE)
    assert np.array_equal(daily.logic.maskOf(daily.liver), BLOCK)
    assert daily.status.startswith("Ventricle: good")
    assert "good" in words(daily)["Ventricle"]
    assert not daily.ui.firstChoiceButton.isVisible()
    # The next click takes nothing of it away.
    click(daily, VENTRICLE, "good")
    assert np.array_equal(daily.logic.maskOf(ventricle), VENTRICLE)
    assert daily.status.startswith("Ventricle: good")


def test_what_a_neighbour_keeps_can_be_taken_from_it_and_given_back(daily):
    daily.editByHand(daily.liver, BLOCK)
    ventricle = daily.logic.newSegment("Ventricle")
    click(daily, VENTRICLE, "good")
    daily.press(daily.ui.firstChoiceButton)
    assert np.array_equal(daily.logic.maskOf(ventricle), VENTRICLE)
    assert not (daily.logic.maskOf(daily.liver) & VENTRICLE).any()
    daily.press(daily.ui.undoButton)
    assert np.array_equal(daily.logic.maskOf(daily.liver), BLOCK)
    # The button writes nothing over an edit made since.
    click(daily, VENTRICLE, "good", (12, 12, 10))
    mine = box((18, 0, 0), (20, 3, 3))
    daily.editByHand(ventricle, mine)
    daily.press(daily.ui.secondChoiceButton)
    assert np.array_equal(daily.logic.maskOf(ventricle), mine)


def test_good_of_less_than_nine_tenths_is_to_be_checked():
    assert Rating.ofAnswer("good", 0.95).word == "good"
    assert Rating.ofAnswer("good", 0.8).word == "check"
    assert Rating.ofAnswer("good", 0.49).word == "partly"
    assert Rating.ofAnswer(None, 0.2).word == "partly"


def test_what_the_editable_area_takes_counts_too(daily):
    node = segmentEditorNode()
    node.SetMaskMode(slicer.vtkMRMLSegmentationNode.EditAllowedOutsideAllSegments)
    daily.editByHand(daily.liver, BLOCK)
    daily.logic.parameters.overwriteMode = OverwriteMode.NONE
    daily.logic.newSegment("Ventricle")
    click(daily, VENTRICLE, "good")
    assert "masking allows only 4 % of the result" in daily.status
    assert not isGreen(daily)
    assert "4 % kept" in words(daily)["Ventricle"]


def test_a_word_stays_when_its_segment_is_named_saved_and_chosen_again(daily, tmp_path):
    """F10: "check well" gave way to a green "The segment is coded as Aorta."."""
    from Qt import QtCore, QtTest

    click(daily, A, "check carefully")
    daily.ui.termEdit.selectAll()
    QtTest.QTest.keyClicks(daily.ui.termEdit, "aorta")
    QtTest.QTest.keyClick(daily.ui.termEdit, QtCore.Qt.Key_Return)
    assert daily.status == "Named Aorta (SNOMED CT); its segment: check carefully."
    assert not isGreen(daily)
    assert "check carefully" in words(daily)["Liver"]
    path = str(tmp_path / "kept.seg.nrrd")
    assert slicer.util.saveNode(daily.logic.segmentationNode, path)
    rating = ratingOf(slicer.util.loadSegmentation(path).GetSegmentation().GetNthSegment(0))
    assert rating is not None
    assert rating.word == "check carefully"
    daily.addSpleen()
    daily.logic.selectSegment(daily.liver)
    assert "Liver (check carefully)" in daily.status


def test_an_edit_by_hand_takes_the_word_away_and_undo_brings_that_of_before(daily):
    click(daily, A, "good")
    click(daily, BLOCK, "unreliable", (12, 12, 10))
    daily.press(daily.ui.undoButton)
    assert "good" in words(daily)["Liver"]
    daily.press(daily.ui.redoButton)
    assert "unreliable" in words(daily)["Liver"]
    assert not isGreen(daily)
    daily.press(daily.ui.undoButton)
    daily.editByHand(daily.liver, BLOCK)
    daily.process()
    assert words(daily)["Liver"] == ""
    daily.press(daily.ui.undoButton)  # of the edit
    assert "good" in words(daily)["Liver"]


def test_a_volume_is_never_that_of_before(daily):
    """F16: for a moment after "updated" the volume beside the segment was the old one."""
    assert daily.column("Volume") == {"Liver": "0.3 mL"}  # at once with the answer
    click(daily, BLOCK, "good")
    assert daily.column("Volume") == {"Liver": "6.3 mL"}
    daily.press(daily.ui.undoButton)
    assert daily.column("Volume")["Liver"] in ("", "0.3 mL")


def test_a_person_says_that_a_segment_is_reviewed(daily, tmp_path):
    click(daily, A, "good")
    assert words(daily, "Reviewed") == {"Liver": ""}
    pressReviewed(daily, daily.liver)
    assert words(daily, "Reviewed") == {"Liver": "\u2713"}
    segment = daily.logic.segmentationNode.GetSegmentation().GetSegment(daily.liver)
    status = slicer.vtkSlicerSegmentationsModuleLogic
    assert status.GetSegmentStatus(segment) == status.Completed
    path = str(tmp_path / "kept.seg.nrrd")
    assert slicer.util.saveNode(daily.logic.segmentationNode, path)
    assert "Segmentation.Status:completed" in Path(path).read_bytes().decode("latin1")
    pressReviewed(daily, daily.liver)
    assert words(daily, "Reviewed") == {"Liver": ""}
    assert status.GetSegmentStatus(segment) == status.InProgress
    pressReviewed(daily, daily.logic.newSegment("Spleen"))
    assert daily.status == "Spleen is empty: there is nothing to review yet."
    assert words(daily, "Reviewed")["Spleen"] == ""


def test_what_changes_a_segment_takes_the_review_away(daily):
    def takeFromLiver() -> None:
        daily.logic.newSegment("Tumour")
        click(daily, box((5, 5, 5), (7, 7, 7)), "good")
        daily.press(daily.ui.firstChoiceButton)  # Take it

    click(daily, A, "good")
    for change in (
        lambda: daily.press(daily.ui.undoButton),
        lambda: click(daily, BLOCK, "good", (12, 12, 10)),
        lambda: daily.editByHand(daily.liver, A),
        takeFromLiver,
    ):
        pressReviewed(daily, daily.liver)
        assert words(daily, "Reviewed")["Liver"] == "\u2713"
        change()
        daily.process()
        assert words(daily, "Reviewed")["Liver"] == ""


def test_an_edit_that_keeps_the_number_of_voxels_takes_word_and_review_away(daily):
    before, carved = A.copy(), A.copy()
    before[10, 10, 10] = carved[11, 11, 11] = False  # within the same box
    for edited, place in ((np.roll(before, 1, axis=2), (10, 10, 9)), (carved, (10, 10, 8))):
        click(daily, before, "good", place)
        pressReviewed(daily, daily.liver)
        assert words(daily, "Reviewed")["Liver"] == "\u2713"
        daily.editByHand(daily.liver, edited)
        daily.process()
        assert words(daily)["Liver"] == ""
        assert words(daily, "Reviewed")["Liver"] == ""


def test_a_review_is_kept_with_the_scene_where_neighbours_share_the_voxels(daily, tmp_path):
    """Slicer's files hold several segments in one image, of another extent than before."""
    click(daily, A, "good")
    pressReviewed(daily, daily.liver)
    daily.logic.newSegment("Spleen")
    click(daily, box((15, 15, 15), (20, 20, 20)), "good", (17, 17, 17))
    path = str(tmp_path / "kept.seg.nrrd")
    daily.logic.segmentationNode.GetSegmentation().CollapseBinaryLabelmaps(False)
    assert slicer.util.saveNode(daily.logic.segmentationNode, path)
    segmentation = slicer.util.loadSegmentation(path).GetSegmentation()
    reviewed = [
        isReviewed(segment, digestOf(segment))
        for segment in map(segmentation.GetNthSegment, range(2))
    ]
    assert reviewed == [True, False]


def test_a_first_click_that_finds_a_great_deal_says_so(daily):
    """F8: one click at an adrenal gland gave a litre, and no way out."""
    daily.logic.newSegment("Adrenal gland")
    found = np.ones(SHAPE, dtype=bool)
    daily.logic.removeSegment(daily.liver)
    click(daily, found, "unreliable")
    assert daily.status == (
        "Adrenal gland: unreliable. This may be more than you meant: draw a box or a stroke."
    )
    click(daily, found, "unreliable", (12, 12, 10))
    assert "more than you meant" not in daily.status


def test_a_picture_has_no_millilitres(panel, sliceView):
    """F11: 24.6 mL of a photograph of skin."""
    view = sliceView("Red", "Axial")
    mask = np.zeros((1, 24, 28), bool)
    mask[0, 5:11, 5:11] = True
    for side, text in ((0.5, "0.090 cm²"), (0.02, "0.0144 mm²"), (5e-4, "9 µm²"), (1.0, "")):
        picture = slicer.util.addVolumeFromArray(np.zeros((1, 24, 28), np.uint8))
        picture.SetSpacing(side, side, 1.0)
        panel.ui.sourceVolumeSelector.setCurrentNode(picture)
        panel.process()
        view.show(picture)
        panel.logic.newSegment("Naevus")
        panel.press(panel.ui.pointButton)
        view.clickAt((6 * side, 8 * side, 0))
        panel.worker.requests[-1].answer(mask)
        panel.logic.stopPlacing()
        assert words(panel, "Volume") == {"Naevus": text}
        assert words(panel) == {"Naevus": "not rated"}


def test_the_table_uses_the_room_that_there_is(daily):
    """Friction 4: three rows of nineteen segments were shown."""
    before = daily.ui.segmentsTable.minimumHeight
    for _number in range(19):
        daily.logic.newSegment()
    daily.process()
    assert daily.ui.segmentsTable.minimumHeight >= 3 * before
