"""Every test finds the scene as Slicer has it at its start."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

# Two tests of one body: the second would see what the first left.
TWICE = pytest.mark.parametrize("time", ["first", "second"])


@TWICE
def test_nothing_of_another_test_is_left(scene, time) -> None:
    import slicer

    from harness.program.scene_state import countPythonObservers

    logic = slicer.app.applicationLogic()
    interaction, selection = logic.GetInteractionNode(), logic.GetSelectionNode()
    assert scene.GetNumberOfNodesByClass("vtkMRMLVolumeNode") == 0
    assert scene.GetNumberOfNodesByClass("vtkMRMLSliceNode") == 0
    assert scene.GetNumberOfNodesByClass("vtkMRMLScriptedModuleNode") == 0
    assert interaction.GetCurrentInteractionMode() == interaction.ViewTransform
    assert not interaction.GetPlaceModePersistence()
    assert not selection.GetActivePlaceNodeID()
    assert countPythonObservers(interaction) == 0
    assert countPythonObservers(scene) == 1  # the subject hierarchy's
    # Now everything is disturbed.
    slicer.util.addVolumeFromArray(np.zeros((2, 3, 4)))
    points = scene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode")
    slicer.modules.markups.logic().SetActiveList(points)
    interaction.SetPlaceModePersistence(True)
    interaction.SetCurrentInteractionMode(interaction.Place)
    interaction.AddObserver("ModifiedEvent", lambda *_: None)
    scene.AddObserver("ModifiedEvent", lambda *_: None)
    node = slicer.vtkMRMLScriptedModuleNode()
    node.SetSingletonTag("Left")
    scene.AddNode(node)
    scene.StartState(slicer.vtkMRMLScene.BatchProcessState)


@TWICE
def test_views_are_closed(sliceView, threeDView, scene, time) -> None:
    import slicer

    logic = slicer.app.applicationLogic()
    assert logic.GetSliceLogics().GetNumberOfItems() == 0
    assert logic.GetViewLogics().GetNumberOfItems() == 0
    sliceView("Red")
    threeDView()
    assert logic.GetSliceLogics().GetNumberOfItems() == 1
    assert logic.GetViewLogics().GetNumberOfItems() == 1


@TWICE
def test_settings_and_windows_are_forgotten(slicerApp, time) -> None:
    import qt
    import slicer

    assert slicer.util.settingsValue("PUMIT/Any", "none") == "none"
    assert not [w for w in slicerApp.topLevelWidgets() if w.objectName == "left"]
    slicerApp.userSettings().setValue("PUMIT/Any", "set")
    assert slicer.util.settingsValue("PUMIT/Any", "none") == "set"
    widget = qt.QWidget()
    widget.objectName = "left"
    widget.show()


@TWICE
def test_connections_to_the_application_are_undone(slicerApp, failures, time) -> None:
    import slicer
    from slicer.packaging import pip_install

    assert slicer.packaging.calls == []
    calls = []
    slicerApp.connect("startupCompleted()", lambda: calls.append(time))
    slicerApp.startupCompleted.emit()
    assert calls == [time]
    pip_install("torch")

    def refuse() -> None:
        raise AssertionError("called by another test")

    slicerApp.connect("startupCompleted()", refuse)


def test_singletons_that_a_test_removes_come_back(scene) -> None:
    import slicer

    from harness.program.scene_state import SceneState

    state = SceneState()
    scene.Clear(1)
    state.restore()
    interaction = slicer.app.applicationLogic().GetInteractionNode()
    assert interaction is not None
    assert scene.IsNodePresent(interaction)
    assert scene.GetNodeByID("vtkMRMLSelectionNodeSingleton") is not None


def test_closing_the_scene_tells_its_observers(scene) -> None:
    import slicer

    events = []
    scene.AddObserver(scene.StartCloseEvent, lambda *_: events.append("start"))
    scene.AddObserver(scene.EndCloseEvent, lambda *_: events.append("end"))
    slicer.util.addVolumeFromArray(np.zeros((2, 3, 4)))
    scene.Clear(0)
    assert events == ["start", "end"]
    assert scene.GetNumberOfNodesByClass("vtkMRMLVolumeNode") == 0


def test_nodes_have_items_in_the_subject_hierarchy(scene) -> None:
    import slicer

    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    volume = slicer.util.addVolumeFromArray(np.zeros((2, 3, 4)))
    assert hierarchy.GetItemByDataNode(volume)


@pytest.mark.parametrize("extension", [".nrrd", ".nii.gz"])
def test_volumes_are_saved_and_loaded(scene, tmp_path, extension) -> None:
    import slicer

    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    volume = slicer.util.addVolumeFromArray(array)
    path = str(tmp_path / f"scan{extension}")
    assert slicer.util.saveNode(volume, path)
    loaded = slicer.util.loadVolume(path, {})
    assert loaded.GetName() == "scan"
    np.testing.assert_array_equal(slicer.util.arrayFromVolume(loaded), array)


def test_a_scene_is_saved_and_loaded_with_its_data(scene, tmp_path) -> None:
    import slicer

    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    slicer.util.addVolumeFromArray(array, name="scan").CreateDefaultDisplayNodes()
    points = scene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode", "points")
    points.AddControlPoint([1, 2, 3])
    path = str(tmp_path / "scene.mrb")
    assert slicer.util.saveScene(path)
    scene.Clear(0)
    slicer.util.loadScene(path)
    loaded = slicer.util.getNode("scan")
    np.testing.assert_array_equal(slicer.util.arrayFromVolume(loaded), array)
    assert slicer.util.getNode("points").GetNumberOfControlPoints() == 1


def test_terminologies_are_those_of_slicer(scene) -> None:
    import slicer
    import vtk

    # Only its files are used; it cannot be imported without what it depends on.
    if importlib.util.find_spec("trame_slicer") is None:
        pytest.skip("terminologies come with trame-slicer")
    names = vtk.vtkStringArray()
    slicer.modules.terminologies.logic().GetLoadedTerminologyNames(names)
    loaded = [names.GetValue(index) for index in range(names.GetNumberOfValues())]
    assert any("General Anatomy" in name for name in loaded)
