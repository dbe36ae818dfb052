"""The panel of the unmodified module, by real clicks on its widgets and in slice views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from panel_scene import WIDTH, Panel
from scripted_worker import box

A = box((5, 5, 5), (12, 12, 12))
SECTIONS = (
    *("inputSection", "segmentsSection", "promptsSection", "automaticSection"),
    *("tokenizerSection", "computeSection", "exportSection", "helpSection"),
)


# --- opening --------------------------------------------------------------------------------------


def test_the_panel_opens_on_an_empty_scene_and_starts_nothing(panel: Panel) -> None:
    from PUMITSlicerLib.computing.compute import ComputeState

    assert "scan" in panel.ui.statusLabel.text
    assert panel.logic.compute.state in (ComputeState.STOPPED, ComputeState.NOT_INSTALLED)
    assert not panel.ui.progressBar.isVisible()


def test_disabled_buttons_say_why(panel: Panel) -> None:
    ui = panel.ui
    for button in (ui.pointButton, ui.newSegmentButton, ui.undoButton, ui.resetSegmentButton):
        assert not button.enabled
        assert len(button.toolTip) > 10
    assert "scan" in ui.pointButton.toolTip
    panel.load()
    assert ui.pointButton.enabled
    assert "scan first" not in ui.pointButton.toolTip


def test_every_control_has_a_tooltip(panel: Panel) -> None:
    from Qt import QtWidgets

    controls = (
        *(QtWidgets.QAbstractButton, QtWidgets.QComboBox, QtWidgets.QLineEdit),
        QtWidgets.QPlainTextEdit,
    )
    missing = [
        child.name
        for child in panel.panel.widget.findChildren(QtWidgets.QWidget)
        if isinstance(child, controls)
        and child.name in vars(panel.ui)
        and not child.name.endswith(("Section", "cornerbutton"))
        and not child.toolTip
    ]
    assert missing == []


def test_advanced_sections_are_collapsed(panel: Panel) -> None:
    collapsed = [name for name in SECTIONS if getattr(panel.ui, name).collapsed]
    assert collapsed == list(SECTIONS[3:])


# --- clicking -------------------------------------------------------------------------------------


def test_a_click_in_a_slice_view_becomes_a_visible_segment(panel: Panel, sliceView: Any) -> None:
    panel.load()
    view = sliceView("Red", "Axial")
    view.show(panel.volumeNode)
    panel.press(panel.ui.newSegmentButton)
    panel.press(panel.ui.pointButton)
    assert panel.ui.pointButton.checked
    view.clickAt((14, 12, 10))
    panel.answer(A)
    assert np.array_equal(panel.mask(panel.logic.segmentID), A)
    view.sliceLogic.SetSliceOffset(8)
    segment = panel.logic.segmentationNode.GetSegmentation().GetSegment(panel.logic.segmentID)
    before, after = view.image().astype(int), None
    panel.logic.segmentationNode.SetDisplayVisibility(False)
    after = view.image().astype(int)
    assert np.abs(before - after).max() > 20, segment.GetColor()


@pytest.mark.parametrize(
    ("button", "kind"),
    [
        ("pointButton", "POINT"),
        ("box3dButton", "BOX_3D"),
        ("box2dButton", "BOX_2D"),
        ("scribbleButton", "SCRIBBLE"),
        ("lassoButton", "LASSO"),
    ],
)
def test_each_kind_of_prompt_is_placed_by_its_button(
    panel: Panel, sliceView: Any, button: str, kind: str
) -> None:
    panel.load()
    view = sliceView("Red", "Axial")
    view.show(panel.volumeNode)
    widget = getattr(panel.ui, button)
    panel.press(widget)
    assert widget.checked
    assert panel.logic.parameters.promptKind.name == kind
    x, y = view.rasToXy((14, 12, 10))
    corners = [(x - 60, y - 50), (x + 60, y - 40), (x + 50, y + 60)]
    if kind == "POINT":
        view.click(x, y)
    elif kind in ("BOX_3D", "BOX_2D"):
        view.click(*corners[0])
        view.click(*corners[2])
        if kind == "BOX_3D":  # its depth, two slices further
            view.sliceNode.JumpSliceByOffsetting(14, 12, 14)
            view.click(x, y)
    else:
        for corner in corners:
            view.click(*corner)
        view.click(*corners[-1], button="Right")
    assert panel.logic.promptCount(panel.logic.segmentID) == 1, panel.ui.statusLabel.text
    assert panel.worker.requests
    assert widget.checked  # ready for the next one


def test_pressing_a_kind_again_ends_placing(panel: Panel) -> None:
    panel.load()
    panel.press(panel.ui.pointButton)
    panel.press(panel.ui.pointButton)
    assert not panel.logic.isPlacing
    assert not panel.ui.pointButton.checked


def test_polarity_starts_positive_and_is_the_next_prompts(panel: Panel) -> None:
    panel.load()
    assert panel.ui.positiveButton.checked
    panel.click()
    panel.press(panel.ui.negativeButton)
    panel.click((20, 20, 5))
    assert [p.is_positive for p in panel.worker.requests[-1].prompts] == [True, False]
    panel.press(panel.ui.newSegmentButton)
    assert panel.ui.positiveButton.checked


def test_undo_redo_and_reset_buttons(panel: Panel) -> None:
    panel.load()
    panel.click()
    panel.answer(A)
    panel.press(panel.ui.resetSegmentButton)
    assert not panel.mask(panel.logic.segmentID).any()
    panel.press(panel.ui.undoButton)
    assert np.array_equal(panel.mask(panel.logic.segmentID), A)
    panel.press(panel.ui.redoButton)
    assert not panel.mask(panel.logic.segmentID).any()
    assert not panel.ui.redoButton.enabled
    panel.press(panel.ui.undoButton)
    panel.press(panel.ui.resetAllButton)
    assert panel.logic.promptCount(panel.logic.segmentID) == 0


def test_updating_can_be_switched_off_and_done_by_hand(panel: Panel) -> None:
    panel.load()
    panel.press(panel.ui.updateAutomaticallyCheckBox)
    assert not panel.logic.parameters.updateAutomatically
    panel.click()
    assert panel.worker.requests == []
    panel.press(panel.ui.updateButton)
    panel.answer(A)
    assert panel.mask(panel.logic.segmentID).any()


def test_check_here_is_a_button_for_segments_with_prompts(panel: Panel) -> None:
    from pumit.segmentation import UncertainRegion

    panel.load()
    assert not panel.ui.checkHereButton.enabled
    assert "segment first" in panel.ui.checkHereButton.toolTip
    panel.press(panel.ui.newSegmentButton)
    assert "prompt first" in panel.ui.checkHereButton.toolTip
    panel.click()
    panel.answer(A)
    panel.press(panel.ui.checkHereButton)
    places = (UncertainRegion((-5.0, -8.0, 9.0), 0.4, 2.0, None),)
    panel.worker.requests[-1].answer(A, places)
    assert "doubtful place" in panel.ui.statusLabel.text
    panel.press(panel.ui.undoButton)
    assert panel.logic.checkHere.mark.node is None


def test_the_overwrite_mode_is_remembered_in_the_scene(panel: Panel) -> None:
    from PUMITSegmentLib.segments.writer import OverwriteMode

    panel.load()
    assert panel.logic.parameters.overwriteMode is OverwriteMode.STOP
    assert panel.ui.overwriteSelector.currentText == "Keep off other segments"
    panel.ui.overwriteSelector.currentIndex = 3
    assert panel.logic.parameters.overwriteMode is OverwriteMode.ALL


def test_masking_of_the_segment_editor_is_reported(panel: Panel) -> None:
    from PUMITSegmentLib.segments.editable_area import segmentEditorNode

    panel.load()
    assert not panel.ui.maskingLabel.isVisible()
    segmentEditorNode().SetSourceVolumeIntensityMask(True)
    segmentEditorNode().SetSourceVolumeIntensityMaskRange(80, 120)
    panel.gui.exit()
    panel.gui.enter()
    assert "80 to 120" in panel.ui.maskingLabel.text
    assert panel.ui.maskingLabel.isVisible()


# --- segments -------------------------------------------------------------------------------------


def test_the_table_selects_segments_and_removes_them(panel: Panel) -> None:
    panel.load()
    panel.press(panel.ui.newSegmentButton)
    panel.press(panel.ui.newSegmentButton)
    first = panel.ui.segmentsTable.segmentIDForRow(0)
    panel.ui.segmentsTable.setSelectedSegmentIDs([first])
    assert panel.logic.segmentID == first
    panel.press(panel.ui.removeSegmentButton)
    assert panel.ui.segmentsTable.rowForSegmentID(first) == -1
    assert panel.ui.segmentsTable.selectedSegmentIDs() == [panel.logic.segmentID]


def test_a_structure_that_is_typed_becomes_name_and_code(panel: Panel) -> None:
    from PUMITSlicerLib.terms import hasCode
    from Qt import QtCore, QtTest

    panel.load()
    panel.press(panel.ui.newSegmentButton)
    QtTest.QTest.keyClicks(panel.ui.termEdit, "left kidney")
    QtTest.QTest.keyClick(panel.ui.termEdit, QtCore.Qt.Key_Return)
    segment = panel.logic.segmentationNode.GetSegmentation().GetSegment(panel.logic.segmentID)
    assert hasCode(segment)
    assert segment.GetName() == "Left kidney"


def test_segments_are_shown_in_3d_by_the_button(panel: Panel) -> None:
    panel.load()
    panel.click()
    panel.answer(A)
    panel.press(panel.ui.show3DButton)
    segmentation = panel.logic.segmentationNode.GetSegmentation()
    assert segmentation.ContainsRepresentation("Closed surface")


# --- status ---------------------------------------------------------------------------------------


def test_progress_with_cancel_appears_only_where_it_takes_long(panel: Panel) -> None:
    from Qt import QtTest

    panel.load()
    panel.click()
    assert not panel.ui.cancelButton.isVisible()
    panel.worker.requests[-1].watch.report(0.4)
    QtTest.QTest.qWait(900)
    assert panel.ui.progressBar.isVisible()
    assert panel.ui.progressBar.value == 40
    panel.press(panel.ui.cancelButton)
    assert not panel.ui.progressBar.isVisible()
    assert "Cancelled" in panel.ui.statusLabel.text


# --- compute --------------------------------------------------------------------------------------


def test_remote_settings_are_shown_only_for_a_remote_machine_and_kept(panel: Panel) -> None:
    from PUMITSlicerLib.computing.settings import ComputeMode
    from Qt import QtCore, QtTest

    ui = panel.ui
    ui.computeSection.collapsed = False
    assert ui.deviceSelector.isVisible()
    assert not ui.remoteUrlEdit.isVisible()
    ui.computeWhereSelector.currentIndex = 1
    assert ui.remoteUrlEdit.isVisible()
    assert not ui.deviceSelector.isVisible()
    QtTest.QTest.keyClicks(ui.remoteUrlEdit, "http://127.0.0.1:9")
    QtTest.QTest.keyClicks(ui.remoteTokenEdit, "secret")
    QtTest.QTest.keyClick(ui.remoteTokenEdit, QtCore.Qt.Key_Return)
    settings = panel.logic.compute.settings
    assert settings.mode is ComputeMode.REMOTE
    assert (settings.url, settings.token) == ("http://127.0.0.1:9", "secret")
    assert ui.remoteTokenEdit.displayText != "secret"


def test_devices_and_models_of_this_computer_can_be_chosen(panel: Panel) -> None:
    ui = panel.ui
    ui.computeSection.collapsed = False
    assert panel.logic.background.drain(30)
    assert ui.deviceSelector.findData("cuda:0") > 0
    ui.deviceSelector.currentIndex = ui.deviceSelector.findData("cuda:0")
    ui.modelSelector.currentIndex = ui.modelSelector.findData("mine")
    settings = panel.logic.compute.settings
    assert (settings.device, settings.model) == ("cuda:0", "mine")


def test_the_worker_starts_while_the_user_aims(panel: Panel) -> None:
    from Qt import QtTest

    panel.load()
    assert panel.workers.made == []
    panel.press(panel.ui.pointButton)
    for _ in range(200):  # a thread starts it
        if panel.workers.made:
            break
        QtTest.QTest.qWait(20)
    assert len(panel.workers.made) == 1, panel.logic.compute.sentence
    panel.press(panel.ui.box3dButton)
    assert len(panel.workers.made) == 1


def test_the_test_button_says_that_nobody_answers(panel: Panel) -> None:
    from PUMITSlicerLib.status import Activity
    from Qt import QtTest

    ui = panel.ui
    ui.computeSection.collapsed = False
    ui.computeWhereSelector.currentIndex = 1
    ui.remoteUrlEdit.text = "http://127.0.0.1:9"
    ui.remoteTokenEdit.text = "secret"
    ui.remoteTokenEdit.editingFinished.emit()
    panel.press(ui.testButton)
    for _ in range(200):
        if panel.logic.status.current.activity is Activity.PROBLEM:
            break
        QtTest.QTest.qWait(50)
    assert panel.logic.status.current.activity is Activity.PROBLEM
    assert "127.0.0.1" in ui.statusLabel.text


# --- export ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_export_says_what_is_missing_before_it_writes(panel: Panel, tmp_path: Path) -> None:
    from Qt import QtTest

    ui = panel.ui
    panel.load()
    ui.exportSection.collapsed = False
    ui.exportFolderEdit.currentPath = str(tmp_path)
    assert not ui.exportButton.enabled
    assert "segment" in ui.exportMissingLabel.text
    panel.click()
    panel.answer(A)
    QtTest.QTest.qWait(300)
    assert "DICOM" in ui.exportMissingLabel.text
    ui.exportFormatSelector.currentIndex = 1
    assert ui.exportButton.enabled
    panel.press(ui.exportButton)
    assert panel.logic.background.drain(30)
    assert list(tmp_path.glob("*.seg.nrrd"))
    assert "Written" in ui.statusLabel.text


# --- looks ----------------------------------------------------------------------------------------


def test_nothing_is_cut_at_a_narrow_width(panel: Panel, screenshots: Path) -> None:
    from Qt import QtWidgets

    panel.load()
    panel.click()
    panel.answer(A)
    panel.logic.stopPlacing()
    for name in SECTIONS:
        getattr(panel.ui, name).collapsed = False
    panel.frame.resize(WIDTH, 2000)
    for _ in range(5):
        panel.process()
    panel.frame.grab().save(str(screenshots / "panel-expanded.png"))
    assert panel.frame.width == WIDTH
    cut = []
    for child in panel.panel.widget.findChildren(QtWidgets.QWidget):
        if not child.isVisible() or child.name not in vars(panel.ui):
            continue
        right = child.mapTo(panel.frame, child.rect.topRight()).x()
        isButton = isinstance(child, (QtWidgets.QPushButton, QtWidgets.QToolButton))
        if right > WIDTH or (isButton and child.width < child.minimumSizeHint.width()):
            cut.append(child.name)
    assert cut == []
