"""What saves a daily user's time, by real clicks and keys in the panel and in a view."""

from pathlib import Path

import numpy as np
import pytest
import slicer
from daily_panel import A, B, Daily
from PUMITSegmentLib.reconstruction import ViewsBefore
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.writer import OverwriteMode
from PUMITSlicerLib.terms import hasCode
from scripted_worker import SHAPE, box

# --- undo -----------------------------------------------------------------------------------------


def test_undo_says_what_and_where_and_selects_it(daily):
    daily.press(daily.ui.negativeButton)
    daily.clickAt((10, 10, 8), A)
    daily.addSpleen()
    daily.press(daily.ui.undoButton)
    assert daily.status == "Undone: point inside, Spleen."
    daily.press(daily.ui.undoButton)
    assert daily.status == "Undone: new segment, Spleen."
    daily.press(daily.ui.undoButton)
    assert daily.status == "Undone: point outside, Liver."
    assert daily.logic.segmentID == daily.liver
    daily.press(daily.ui.redoButton)
    assert daily.status == "Redone: point outside, Liver."
    # An edit by hand and a removal are named, too.
    daily.logic.stopPlacing()
    daily.editByHand(daily.liver, B)
    daily.logic.startPlacing(daily.logic.parameters.promptKind)
    daily.press(daily.ui.undoButton)
    assert all(word in daily.status for word in ("Undone", "by hand", "Liver"))
    daily.press(daily.ui.removeSegmentButton)
    daily.press(daily.ui.undoButton)
    assert all(word in daily.status for word in ("Undone", "removal", "Liver"))
    assert daily.logic.segmentID == daily.liver


def typeStructure(daily: Daily, text: str) -> None:
    from Qt import QtCore, QtTest

    daily.ui.termEdit.selectAll()  # "Liver" has a code already
    QtTest.QTest.keyClicks(daily.ui.termEdit, text)
    QtTest.QTest.keyClick(daily.ui.termEdit, QtCore.Qt.Key_Return)


def test_a_structure_is_found_by_what_people_type_and_a_typo_gives_names_to_press(daily):
    for typed, name in (("LV", "Left ventricle"), ("L kidney", "Left kidney")):
        typeStructure(daily, typed)
        assert name in daily.status
        assert "Named" in daily.status
    typeStructure(daily, "galbladder")
    assert daily.status == "galbladder is not in the list of structures. Did you mean this?"
    assert "allbladder" in daily.ui.firstChoiceButton.text
    daily.press(daily.ui.firstChoiceButton)
    assert "Named Gallbladder" in daily.status


def test_an_answer_names_no_other_segment_than_the_one_asked_about(daily):
    spleen = daily.addSpleen()
    daily.logic.selectSegment(daily.liver)
    typeStructure(daily, "galbladder")
    (choice, *_) = daily.logic.status.current.choices
    daily.logic.selectSegment(spleen)
    choice.act()
    assert "Named" not in daily.status
    names = daily.logic.segmentationNode.GetSegmentation()
    assert "allbladder" not in names.GetSegment(spleen).GetName()


# --- Ctrl and a click -----------------------------------------------------------------------------


def test_ctrl_click_is_outside_and_leaves_the_tool_as_it_is(daily):
    daily.view.clickAt((14, 12, 8), control=True)
    assert daily.polarities() == [True, False]
    assert daily.ui.positiveButton.checked
    assert daily.logic.isPlacing
    daily.view.clickAt((7, 8, 8))
    assert sorted(daily.polarities()) == [False, True, True]
    daily.answer(A)
    daily.press(daily.ui.undoButton)
    daily.press(daily.ui.undoButton)
    assert daily.logic.promptCount(daily.liver) == 1
    assert "point outside" in daily.status
    daily.press(daily.ui.pointButton)  # nothing is placed now
    count = len(daily.worker.requests)
    daily.view.clickAt((14, 12, 8), control=True)
    assert len(daily.worker.requests) == count


# --- choosing and finding segments ----------------------------------------------------------------


def test_a_click_on_a_segment_selects_it_while_nothing_is_placed(daily):
    spleen = daily.addSpleen()
    daily.view.clickAt((8, 8, 8))  # a prompt
    assert daily.logic.segmentID == spleen
    daily.logic.undo()
    daily.logic.stopPlacing()
    daily.view.clickAt((8, 8, 8))
    assert daily.logic.segmentID == daily.liver
    daily.view.clickAt((22, 2, 8))  # outside all
    assert daily.logic.segmentID == daily.liver
    daily.gui.exit()
    daily.view.clickAt((15, 15, 15))
    assert daily.logic.segmentID == daily.liver
    daily.gui.enter()
    daily.view.clickAt((15, 15, 15))
    assert daily.logic.segmentID == spleen


def test_the_smallest_of_overlapping_segments_is_selected_and_no_hidden_one(daily):
    daily.logic.parameters.overwriteMode = OverwriteMode.NONE
    tumour = daily.logic.newSegment("Tumour")
    daily.clickAt((8, 8, 8), box((7, 7, 7), (10, 10, 10)))
    daily.logic.stopPlacing()
    daily.logic.selectSegment(daily.liver)
    daily.view.clickAt((9, 9, 8))
    assert daily.logic.segmentID == tumour
    daily.logic.selectSegment(daily.liver)
    daily.logic.segmentationNode.GetDisplayNode().SetSegmentVisibility(tumour, False)
    daily.view.clickAt((9, 9, 8))
    assert daily.logic.segmentID == daily.liver


def test_volumes_are_shown_and_follow_the_segments(daily):
    daily.panel.segmentColumns.count()
    assert daily.column("Volume") == {"Liver": "0.3 mL"}  # 7 x 7 x 7 voxels of 1 mm
    daily.addSpleen()
    daily.panel.segmentColumns.count()
    assert daily.column("Volume") == {"Liver": "0.3 mL", "Spleen": "0.1 mL"}
    daily.logic.removeSegment(daily.liver)
    # Before anything is counted again: no row has the volume of another.
    assert daily.column("Volume") == {"Spleen": "0.1 mL"}
    daily.press(daily.ui.undoButton)
    daily.logic.newSegment("Kidney")
    assert daily.column("Volume")["Kidney"] == ""
    daily.panel.segmentColumns.count()
    assert daily.column("Volume") == {
        "Liver": "0.3 mL",
        "Spleen": "0.1 mL",
        "Kidney": "0 mL",
    }


def test_a_double_click_on_a_volume_jumps_to_its_segment(daily):
    from Qt import QtCore, QtTest, QtWidgets

    daily.addSpleen()
    daily.panel.segmentColumns.count()
    table = daily.ui.segmentsTable.tableWidget()
    daily.view.jumpTo((2, 2, 2))
    for row, middle in ((0, 8.0), (1, 15.0)):
        place = table.visualRect(table.model().index(row, 3)).center()
        QtTest.QTest.mouseClick(table.viewport(), QtCore.Qt.LeftButton, pos=place)
        QtTest.QTest.mouseDClick(table.viewport(), QtCore.Qt.LeftButton, pos=place)
        daily.process()
        assert abs(daily.view.sliceNode.GetSliceOffset() - middle) < 1
        assert daily.ui.segmentsTable.rowForSegmentID(daily.logic.segmentID) == row
        assert not table.findChildren(QtWidgets.QLineEdit), "the volume can be edited"
    place = table.visualRect(table.model().index(row, 2)).center()
    QtTest.QTest.mouseClick(table.viewport(), QtCore.Qt.LeftButton, pos=place)
    QtTest.QTest.mouseDClick(table.viewport(), QtCore.Qt.LeftButton, pos=place)
    assert table.findChildren(QtWidgets.QLineEdit), "the name cannot be edited"


# --- how segments look ----------------------------------------------------------------------------


def test_opacity_outline_and_hiding_are_at_hand(daily):
    from Qt import QtCore, QtTest

    display = daily.logic.segmentationNode.GetDisplayNode()
    daily.ui.opacitySlider.value = 20
    assert display.GetOpacity2DFill() == pytest.approx(0.2)
    daily.press(daily.ui.outlineCheckBox)
    assert not display.GetVisibility2DFill()
    assert display.GetVisibility2DOutline()
    display.SetVisibility2DFill(True)
    daily.panel.refresh()
    assert not daily.ui.outlineCheckBox.checked
    # A held key hides the segments, and letting go shows them.
    daily.panel.shortcuts.install(daily.frame)
    QtTest.QTest.keyPress(daily.frame, QtCore.Qt.Key_H)
    assert not display.GetVisibility()
    QtTest.QTest.keyRelease(daily.frame, QtCore.Qt.Key_H)
    assert display.GetVisibility()
    QtTest.QTest.keyPress(daily.frame, QtCore.Qt.Key_H)
    daily.gui.exit()
    assert display.GetVisibility()
    daily.gui.enter()
    display.SetVisibility(False)  # by the user: it stays so after the key
    daily.panel.displayRow.hide(True)
    daily.panel.displayRow.hide(False)
    assert not display.GetVisibility()


def test_what_a_click_changed_flashes_and_goes(daily):
    flash = daily.panel.flash
    assert flash.node is None  # the first answer is seen anyhow
    daily.view.clickAt((10, 10, 8))
    grown = A | box((12, 5, 5), (14, 12, 12))
    daily.answer(grown)
    assert flash.node is None  # the segment is drawn first
    assert flash._drawn.isActive()
    flash._drawn.timeout.emit()
    node = flash.node
    array = slicer.util.arrayFromSegmentBinaryLabelmap(
        node, node.GetSegmentation().GetNthSegmentID(0), daily.volumeNode
    )
    np.testing.assert_array_equal(array.astype(bool), grown & ~A)
    assert node.GetHideFromEditors()
    assert not node.GetSaveWithScene()
    assert flash._timer.interval == 500
    flash._timer.timeout.emit()
    assert flash.node is None
    daily.clickAt((9, 9, 8), A)
    flash._drawn.timeout.emit()
    assert flash.node is not None
    slicer.mrmlScene.Clear()
    assert flash.node is None


def test_a_click_refreshes_the_panel_once_and_its_answer_once(daily):
    told: list[str] = []
    daily.logic.listeners.append(lambda: told.append(daily.status))
    daily.view.clickAt((10, 10, 8))
    assert len(told) == 1
    daily.answer(A | box((12, 5, 5), (14, 12, 12)))
    assert len(told) == 2
    assert told[1] == daily.status  # of what was written, when all of it is


# --- by hand --------------------------------------------------------------------------------------


def test_edit_by_hand_opens_the_segment_editor_and_leads_back(daily, mainWindow, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(slicer.util, "selectModule", opened.append)
    daily.press(daily.ui.editByHandButton)
    assert opened == ["SegmentEditor"]
    editor = segmentEditorNode()
    assert editor.GetSegmentationNode() is daily.logic.segmentationNode
    assert editor.GetSourceVolumeNode() is daily.volumeNode
    assert editor.GetSelectedSegmentID() == daily.liver
    daily.gui.exit()
    daily.editByHand(daily.liver, A | B)
    back = daily.panel.editByHand.backAction
    assert back.text == "Back to PUMIT Segment"
    back.trigger()
    assert opened[-1] == "PUMITSegment"
    daily.gui.enter()
    assert daily.panel.editByHand.backAction is None
    daily.press(daily.ui.pointButton)
    daily.view.clickAt((9, 9, 8))
    prompts = [type(prompt).__name__ for prompt in daily.worker.requests[-1].prompts]
    assert prompts == ["PointPrompt", "MaskPrompt", "PointPrompt"]


def test_holes_islands_and_borders_are_tidied_from_one_menu(daily):
    holed = A.copy()
    holed[8, 8, 8] = False
    daily.logic.stopPlacing()
    daily.editByHand(daily.liver, holed | B)
    daily.cleanUp("Fill holes")
    assert np.array_equal(daily.mask(daily.liver), A | B)
    assert all(word in daily.status for word in ("Fill holes", "Liver"))
    daily.cleanUp("Keep the largest island")
    assert np.array_equal(daily.mask(daily.liver), A)
    daily.cleanUp("Keep the largest island")
    assert "nothing to change" in daily.status
    daily.cleanUp("Smooth")
    smooth = daily.mask(daily.liver)
    assert 0.8 < smooth.sum() / A.sum() < 1.1  # a small one does not vanish
    assert not smooth[5, 5, 5]
    for expected in (A, A | B, holed | B):
        daily.press(daily.ui.undoButton)
        assert np.array_equal(daily.mask(daily.liver), expected)


def test_tidying_cancels_a_pending_answer_and_no_other_work(daily):
    daily.view.clickAt((9, 9, 8))
    cancelled: list[bool] = []
    daily.logic.status.working("Writing...", None, lambda: cancelled.append(True))  # an export
    daily.cleanUp("Smooth")
    smooth = daily.mask(daily.liver)
    assert cancelled == []
    daily.answer(B)
    assert np.array_equal(daily.mask(daily.liver), smooth)


# --- the status -----------------------------------------------------------------------------------


def test_the_status_stands_in_the_views_while_the_module_is_open(daily):
    status = daily.panel.viewStatus
    assert status.actors
    daily.logic.status.problem("The point lies outside the image.")
    first, *others = (actor.GetInput() for actor in status.actors)
    assert first == "CT abdomen\nThe point lies outside the image."
    assert set(others) <= {"CT abdomen"}
    daily.logic.status.problem("A longer sentence " * 5)  # is broken, not cut at the sides
    assert status.actors[0].GetInput().count("\n") == 2
    daily.gui.exit()
    assert status.actors == []
    daily.gui.enter()
    assert status.actors


def test_a_long_name_of_a_scan_without_spaces_is_cut_and_not_left_out(daily):
    daily.volumeNode.SetName("CT_Thorax_Abdomen_arterial_phase_1.25mm_B30f_series7")
    daily.panel.viewStatus.refresh()
    name = daily.panel.viewStatus.actors[0].GetInput().partition("\n")[0]
    assert name.startswith("CT_Thorax")
    assert name.endswith("...")


def test_a_question_that_came_while_another_module_was_open_can_be_answered(daily):
    from PUMITSlicerLib.status import Choice

    daily.frame.hide()
    daily.logic.status.ask("Is this CT or MR?", Choice("CT", print), Choice("MR", print))
    daily.frame.show()
    buttons = (daily.ui.firstChoiceButton, daily.ui.secondChoiceButton)
    assert [button.text for button in buttons if button.visible] == ["CT", "MR"]
    daily.logic.status.done("Liver: updated.")
    assert not any(button.visible for button in buttons)


def test_nothing_jumps_when_work_begins_and_ends(daily):
    def places() -> list[int]:
        daily.process()
        return [w.mapTo(daily.panel.widget, w.rect.topLeft()).y() for w in (daily.ui.pointButton,)]

    before = places()
    daily.logic.status.working("Liver: Segmenting...", 0.4, lambda: None)
    daily.panel.statusLine._showProgress()
    assert daily.ui.progressBar.visible
    assert places() == before
    daily.logic.status.done("Liver: updated in 0.3 s.")
    assert places() == before


# --- lassos ---------------------------------------------------------------------------------------


def lasso(daily: Daily, middle: tuple[float, float], radius: float) -> None:
    """Draw around a place on the slice at 8 mm, click by click."""
    daily.press(daily.ui.lassoButton)
    daily.view.sliceNode.JumpSliceByOffsetting(0, 0, 8)
    for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
        place = middle[0] + radius * np.cos(angle), middle[1] + radius * np.sin(angle)
        daily.view.click(*daily.view.rasToXy((*place, 8)))
    daily.view.click(*daily.view.rasToXy((*middle, 8)), button="Right")


def test_a_lasso_is_what_was_drawn_in_its_slice(daily):
    daily.press(daily.ui.newSegmentButton)
    lasso(daily, (20, 16), 4.2)
    daily.answer(box((6, 14, 18), (11, 22, 27)))
    found = daily.mask(daily.logic.segmentID)
    h, w = np.indices(SHAPE[1:])
    expected = (h - 16) ** 2 + (w - 20) ** 2 < 4.2**2
    assert (found[8] != expected).sum() <= 6
    assert np.array_equal(found[7], box((6, 14, 18), (11, 22, 27))[7])
    daily.clickFirst((25, 20, 8), box((6, 14, 18), (11, 22, 27)))
    assert daily.mask(daily.logic.segmentID)[8, 20, 25]


def test_a_lasso_after_a_click_adds_to_the_segment(daily):
    lasso(daily, (20, 16), 3.2)
    daily.answer(A)
    found = daily.mask(daily.liver)
    assert found[A].all()
    assert found[8, 16, 20]


def test_a_lasso_before_an_edit_by_hand_binds_no_more(daily):
    daily.press(daily.ui.newSegmentButton)
    lasso(daily, (20, 16), 3.2)
    daily.answer(box((6, 14, 18), (11, 19, 23)))
    daily.logic.stopPlacing()
    daily.editByHand(daily.logic.segmentID, B)
    daily.clickFirst((16, 16, 16), B)
    assert np.array_equal(daily.mask(daily.logic.segmentID), B)


# --- export and reconstruction --------------------------------------------------------------------


def test_an_export_has_the_name_given_and_its_folder_opens(daily, tmp_path, monkeypatch):
    import qt

    ui = daily.ui
    ui.exportSection.collapsed = False
    ui.exportFolderEdit.currentPath = str(tmp_path)
    ui.exportNameEdit.text = "liver of today"
    ui.exportFormatSelector.currentIndex = 1
    assert not ui.openFolderButton.enabled
    daily.press(ui.exportButton)
    assert daily.logic.background.drain(120)
    assert [path.name for path in tmp_path.iterdir()] == ["liver of today.seg.nrrd"]
    shown: list[str] = []
    monkeypatch.setattr(
        qt.QDesktopServices, "openUrl", lambda url: shown.append(url.toLocalFile()) or True
    )
    ui.openFolderButton.click()
    assert shown == [str(tmp_path)]


def test_the_views_before_a_reconstruction_come_back(daily):
    layout = slicer.mrmlScene.GetFirstNodeByClass("vtkMRMLLayoutNode")
    arrangement, composite = layout.GetViewArrangement(), daily.view.compositeNode
    other = daily.addScan("Reconstructed")
    before = ViewsBefore()
    layout.SetViewArrangement(slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpPlotView)
    composite.SetBackgroundVolumeID(other.GetID())
    composite.SetForegroundVolumeID(other.GetID())
    slicer.mrmlScene.RemoveNode(other)
    before.restore()
    assert layout.GetViewArrangement() == arrangement
    assert composite.GetBackgroundVolumeID() == daily.volumeNode.GetID()
    assert composite.GetForegroundVolumeID() is None


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


def test_a_shipped_list_is_one_press(daily):
    lists = (("Abdomen", "Gallbladder", 10), ("Heart", "Left ventricle", 7))
    for title, first, count in (*lists, ("Head and neck", "Brai", 15)):
        choose(daily, f"All of: {title}")
        made = segments(daily)
        assert len(made) == 1 + count  # the liver was there
        assert list(made)[1].startswith(first)
        segmentation = daily.logic.segmentationNode.GetSegmentation()
        assert all(hasCode(segmentation.GetNthSegment(i)) for i in range(len(made)))
        colours = [colour for _term, colour in made.values()]
        assert len(set(colours)) == len(colours)  # neighbours differ
        choose(daily, f"All of: {title}")  # none comes twice
        assert len(segments(daily)) == 1 + count
        daily.logic.parameters.segmentation = None
        daily.logic.newSegment("Liver")


def test_a_list_is_saved_and_loaded_with_codes_and_colours(daily, tmp_path):
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


def test_what_is_no_list_is_said(daily, tmp_path):
    file = tmp_path / "odd.pumit-list.json"
    daily.panel.segmentSection.dialogs = Dialogs(file)
    for content in ("nothing", "[]", '{"segments": [{}]}'):
        daily.logic.status.waiting("Before")
        file.write_text(content)
        choose(daily, "All of a saved list...")
        assert "is not a list of segments" in daily.status
        assert len(segments(daily)) == 1
