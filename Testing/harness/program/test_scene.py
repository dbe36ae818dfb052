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
