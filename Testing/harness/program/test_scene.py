"""Every test finds the scene as Slicer has it at its start."""

from __future__ import annotations

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
    assert countPythonObservers(scene) == 3  # the subject hierarchy's
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


def test_a_removed_node_leaves_no_item_to_the_next_at_its_address(scene, failures) -> None:
    import slicer

    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    count = hierarchy.GetNumberOfItems()
    for number in range(50):
        node = scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", f"Scan {number}")
        assert hierarchy.GetItemDataNode(hierarchy.GetItemByDataNode(node)) is node
        scene.RemoveNode(node)
        del node
    assert hierarchy.GetNumberOfItems() == count
    assert not failures.take()
