"""The panel of the unmodified module, by real clicks on its widgets and in slice views."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import slicer
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.writer import OverwriteMode
from PUMITSlicerLib.computing.availability import Availability, AvailableModel
from PUMITSlicerLib.computing.compute import ComputeState
from PUMITSlicerLib.computing.settings import ComputeMode
from scripted_worker import box

A = box((5, 5, 5), (12, 12, 12))
# --- opening --------------------------------------------------------------------------------------


def test_the_panel_opens_on_an_empty_scene_starts_nothing_and_says_why(panel):
    from Qt import QtWidgets

    ui = panel.ui
    assert "scan" in ui.statusLabel.text
    assert panel.logic.compute.state in (ComputeState.STOPPED, ComputeState.NOT_INSTALLED)
    assert not ui.progressBar.isVisible()
    for button in (ui.pointButton, ui.newSegmentButton, ui.undoButton, ui.resetSegmentButton):
        assert not button.enabled
        assert len(button.toolTip) > 10
    assert "scan" in ui.pointButton.toolTip
    controls = (
        *(QtWidgets.QAbstractButton, QtWidgets.QComboBox, QtWidgets.QLineEdit),
        QtWidgets.QPlainTextEdit,
    )
    missing = [
        child.name
        for child in panel.panel.widget.findChildren(QtWidgets.QWidget)
        if isinstance(child, controls)
        and child.name in vars(ui)
        and not child.name.endswith(("Section", "cornerbutton"))
        and not child.toolTip
    ]
    assert missing == []
    panel.load()
    assert ui.pointButton.enabled
    assert "scan first" not in ui.pointButton.toolTip


# --- clicking -------------------------------------------------------------------------------------


def test_undo_redo_and_reset_buttons(panel):
    panel.load()
    panel.clickFor(A)
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


def test_updating_by_hand_overwriting_and_3d_are_chosen_in_the_panel(panel):
    panel.load()
    # The overwrite mode is remembered in the scene.
    assert panel.logic.parameters.overwriteMode is OverwriteMode.STOP
    assert panel.ui.overwriteSelector.currentText == "Keep off other segments"
    panel.ui.overwriteSelector.currentIndex = 3
    assert panel.logic.parameters.overwriteMode is OverwriteMode.ALL
    panel.press(panel.ui.updateAutomaticallyCheckBox)
    assert not panel.logic.parameters.updateAutomatically
    panel.click()
    assert panel.worker.requests == []
    panel.press(panel.ui.updateButton)
    panel.answer(A)
    assert panel.mask(panel.logic.segmentID).any()
    panel.press(panel.ui.show3DButton)
    segmentation = panel.logic.segmentationNode.GetSegmentation()
    assert segmentation.ContainsRepresentation("Closed surface")


def test_masking_of_the_segment_editor_is_reported(panel):
    panel.load()
    assert not panel.ui.maskingLabel.isVisible()
    segmentEditorNode().SetSourceVolumeIntensityMask(True)
    segmentEditorNode().SetSourceVolumeIntensityMaskRange(80, 120)
    panel.gui.exit()
    panel.gui.enter()
    assert "80 to 120" in panel.ui.maskingLabel.text
    assert panel.ui.maskingLabel.isVisible()


# --- compute --------------------------------------------------------------------------------------


def test_remote_settings_are_shown_only_for_a_remote_machine_and_kept(panel):
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


def test_devices_and_models_of_this_computer_can_be_chosen(panel):
    ui = panel.ui
    ui.computeSection.collapsed = False
    assert panel.logic.background.drain(30)
    assert ui.deviceSelector.findData("cuda:0") > 0
    ui.deviceSelector.currentIndex = ui.deviceSelector.findData("cuda:0")
    ui.modelSelector.currentIndex = ui.modelSelector.findData("mine")
    settings = panel.logic.compute.settings
    assert (settings.device, settings.model) == ("cuda:0", "mine")
    # While Slicer is open, a model is added and others are removed, also the chosen one.
    added = Availability((), (AvailableModel("added", "promptable", "", True),))
    panel.logic.compute._readAvailability = lambda: added
    ui.computeSection.collapsed = True
    ui.computeSection.collapsed = False
    assert panel.logic.background.drain(30)
    models = [ui.modelSelector.itemData(i) for i in range(ui.modelSelector.count)]
    assert models == ["default", "added", "mine"]
    assert panel.logic.compute.settings == settings


def test_the_worker_starts_while_the_user_aims(panel):
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


# --- reload and leaving ---------------------------------------------------------------------------


def test_leaving_the_module_hides_prompts_and_closing_the_scene_empties_it(panel):
    panel.load()
    panel.click()
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    panel.gui.exit()
    assert not panel.logic.isPlacing
    assert not points.GetDisplayVisibility()
    panel.answer(A)
    assert panel.mask(panel.logic.segmentID).any()
    panel.gui.enter()
    assert points.GetDisplayVisibility()
    # A scene that is closed empties the panel.
    slicer.mrmlScene.Clear()
    panel.process()
    assert not panel.ui.pointButton.enabled
    assert panel.ui.segmentsTable.segmentationNode() is None
    assert "scan" in panel.ui.statusLabel.text


def test_a_panel_that_was_closed_lets_go_of_the_parameters(panel):
    panel.load()
    parameters = panel.logic.parameters
    assert parameters.updateAutomatically
    panel.gui.cleanup()
    panel.ui.updateAutomaticallyCheckBox.checked = False
    assert parameters.updateAutomatically


@pytest.fixture
def importedAsBefore() -> Iterator[None]:
    """Undoes what a reload imported: other tests hold classes of the modules before it."""
    before = dict(sys.modules)
    yield
    for name in [name for name in sys.modules if name.startswith("PUMIT")]:
        del sys.modules[name]
    sys.modules.update({n: m for n, m in before.items() if n.startswith("PUMIT")})


@pytest.mark.usefixtures("importedAsBefore")
def test_reloading_the_module_keeps_segments_and_prompts(panel):
    panel.load()
    panel.clickFor(A)
    segmentID = panel.logic.segmentID
    panel.gui.onReload()
    panel.process()
    gui = slicer.util.getModuleWidget("PUMITSegment")
    assert gui is not panel.gui
    assert gui.logic.segmentID == segmentID
    assert gui.logic.promptCount(segmentID) == 1
    assert np.array_equal(gui.logic.maskOf(segmentID), A)
    gui.enter()
