"""A scripted module runs as in Slicer: from its .ui file to a click that counts."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import numpy as np
import pytest

SAMPLE = Path(__file__).parent.parent / "sample_module"


@pytest.fixture
def volume(scene):
    import slicer

    array = np.zeros((4, 5, 6), np.int16)
    array[1:3, 1:4, 1:5] = 100
    return slicer.util.addVolumeFromArray(array, name="scan")


@pytest.fixture
def path(tmp_path) -> Path:
    shutil.copytree(SAMPLE, tmp_path / "sample")
    return tmp_path / "sample" / "BrightVoxels.py"


@pytest.fixture
def panel(loadModule, path):
    import slicer

    loadModule(path).widgetRepresentation()
    return slicer.util.getModuleWidget("BrightVoxels")


def click(widget) -> None:
    from Qt import QtCore, QtTest

    QtTest.QTest.mouseClick(widget, QtCore.Qt.LeftButton)


def test_the_module_tells_slicer_about_itself(loadModule, path) -> None:
    import slicer

    module = loadModule(path)
    assert module.title == "Bright voxels"
    assert slicer.util.modulePath("BrightVoxels") == str(path)
    assert slicer.modules.BrightVoxelsInstance.moduleName == "BrightVoxels"


def test_an_unknown_property_of_the_module_is_refused(slicerApp, path) -> None:
    from harness.program import modules

    path.write_text(path.read_text().replace("parent.title", "parent.titel"))
    with pytest.raises(AttributeError, match="titel"):
        modules.loadModule(path)


def test_widgets_and_parameters_follow_each_other(panel, volume) -> None:
    assert not panel.ui.countButton.enabled
    panel.ui.volumeSelector.setCurrentNode(volume)
    assert panel.parameters.volume is volume
    assert panel.ui.countButton.enabled
    panel.ui.thresholdSlider.value = 99
    assert panel.parameters.threshold == 99.0
    panel.parameters.threshold = 120.0
    assert panel.ui.thresholdSlider.value == 120
    click(panel.ui.invertCheckBox)
    assert panel.parameters.isInverted


def test_a_click_counts(panel, volume) -> None:
    panel.parameters.volume = volume
    panel.parent.show()
    click(panel.ui.countButton)
    assert panel.ui.countLabel.text == "24"


def test_a_point_is_placed_through_the_panel(panel, volume, sliceView, scene) -> None:
    points = panel.ui.pointsSelector.addNode()
    points.CreateDefaultDisplayNodes()
    view = sliceView()
    view.show(volume)
    panel.parent.show()
    click(panel.ui.placeWidget.placeButton())
    assert panel.ui.placeWidget.placeModeEnabled
    view.click(250, 250)
    assert points.GetNumberOfDefinedControlPoints() == 1
    assert not panel.ui.placeWidget.placeModeEnabled  # one point at a time
    assert not panel.ui.placeWidget.placeButton().checked


def test_closing_the_scene_leaves_an_empty_panel(panel, volume, scene) -> None:
    panel.parameters.volume = volume
    scene.Clear(0)
    assert panel.parameters.volume is None
    assert panel.ui.volumeSelector.currentNode() is None
    assert not panel.ui.countButton.enabled
    assert panel.parameters.threshold == 80.0


def test_reloading_takes_the_new_code(panel, path) -> None:
    import slicer

    path.write_text(path.read_text().replace('_("Counting failed.")', '_("No luck.")'))
    path.write_text(path.read_text().replace("str(self.logic.count", "'n=' + str(self.logic.count"))
    slicer.util.reloadScriptedModule("BrightVoxels")
    again = slicer.util.getModuleWidget("BrightVoxels")
    assert again is not panel
    assert panel.parameters is None  # cleaned up
    again.parameters.volume = slicer.util.addVolumeFromArray(np.full((2, 2, 2), 100.0))
    again.onCount()
    assert again.ui.countLabel.text == "n=8"


def test_unloading_leaves_no_observer(loadModule, path, scene) -> None:
    import slicer

    from harness.program import modules
    from harness.program.scene_state import countPythonObservers

    before = countPythonObservers(scene)
    loadModule(path).widgetRepresentation()
    node = slicer.util.getModuleWidget("BrightVoxels").parameters.parameterNode
    assert countPythonObservers(scene) > before
    modules.unloadModule("BrightVoxels")
    assert countPythonObservers(scene) == before
    gc.collect()  # the parameters' own observer goes with them
    assert countPythonObservers(node) == 0
    assert not hasattr(slicer.modules, "brightvoxels")


def test_the_modules_own_test_runs(panel) -> None:
    import slicer

    slicer.modules.BrightVoxelsInstance.runTest(msec=0)
    slicer.selfTests["BrightVoxels"](msec=0)


def test_a_modules_own_test_can_fail(panel) -> None:
    import slicer

    panel.logic.__class__.count = lambda self, parameters: -1
    with pytest.raises(AssertionError):
        slicer.modules.BrightVoxelsInstance.runTest(msec=0)


def test_selecting_the_module_enters_and_leaves_it(mainWindow, panel, loadModule, path) -> None:
    import slicer

    other = path.with_name("Other.py")
    other.write_text(path.read_text().replace("BrightVoxels", "Other"))
    ui = path.parent / "Resources" / "UI"
    (ui / "Other.ui").write_text((ui / "BrightVoxels.ui").read_text())
    loadModule(other)
    slicer.util.selectModule("BrightVoxels")
    assert slicer.util.selectedModule() == "BrightVoxels"
    assert mainWindow.centralWidget() is panel.parent
    slicer.util.selectModule("Other")
    assert panel.visits == ["enter", "exit"]


def test_a_shortcut_answers_its_key(mainWindow, panel, volume, slicerApp) -> None:
    import slicer
    from Qt import QtCore, QtTest

    panel.parameters.volume = volume
    slicer.util.selectModule("BrightVoxels")
    mainWindow.activateWindow()
    slicerApp.processEvents()
    QtTest.QTest.keyClick(mainWindow, QtCore.Qt.Key_K, QtCore.Qt.ControlModifier)
    assert panel.ui.countLabel.text == "24"


def test_the_status_bar_shows_messages(mainWindow) -> None:
    import slicer

    assert slicer.util.showStatusMessage("Ready", 1000)
    assert mainWindow.statusBar().currentMessage() == "Ready"


def test_without_a_main_window_there_is_none(slicerApp) -> None:
    import slicer

    assert slicer.util.mainWindow() is None
    assert not slicer.util.showStatusMessage("Ready")


def test_layout_that_a_test_without_qt_requested_is_closed(slicerApp):
    import slicer

    from harness.program.scene_state import SceneState

    state = SceneState()
    assert slicer.app.layoutManager().sliceWidget("Red") is not None
    state.restore()
    assert slicer.app._layoutManager is None
