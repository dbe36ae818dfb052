"""Place mode: begun for a prompt, ended by anybody, and given back as it was."""

from __future__ import annotations

import pytest
import slicer
from prompt_scene import markups
from PUMITSegmentLib.prompts.display import displayOf


@pytest.fixture
def modes(scene):
    """Slicer's interaction node and selection node."""
    logic = slicer.app.applicationLogic()
    return logic.GetInteractionNode(), logic.GetSelectionNode()


@pytest.mark.parametrize("kind", ["POINT", "BOX_2D", "SCRIBBLE"])
def test_the_users_own_place_button_does_what_it_did(prompted, axial, modes, kind) -> None:
    interaction, selection = modes
    own = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsLineNode", "Ruler")
    slicer.modules.markups.logic().SetActiveList(own)
    interaction.SetPlaceModePersistence(0)
    interaction.SwitchToViewTransformMode()
    prompted.place(kind)
    axial.click(200, 200)
    axial.click(250, 260)
    axial.click(250, 260, button="Right")
    prompted.prompts.stopPlacing()
    assert selection.GetActivePlaceNodeID() == own.GetID()
    assert selection.GetActivePlaceNodeClassName() == "vtkMRMLMarkupsLineNode"
    assert not interaction.GetPlaceModePersistence()


def test_another_module_takes_place_mode_over(prompted, axial, modes) -> None:
    interaction, selection = modes
    prompted.place()
    axial.click(200, 200)
    own = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode", "F")
    own.CreateDefaultDisplayNodes()
    slicer.modules.markups.logic().SetActiveList(own)
    assert not prompted.prompts.isPlacing
    assert interaction.GetCurrentInteractionMode() == interaction.Place
    axial.click(250, 260)
    assert own.GetNumberOfDefinedControlPoints() == 1
    assert len(prompted.of()) == 1
    prompted.prompts.stopPlacing()  # it is not ours to end
    assert interaction.GetCurrentInteractionMode() == interaction.Place
    assert selection.GetActivePlaceNodeID() == own.GetID()


@pytest.mark.parametrize("kind", ["POINT", "BOX_3D", "BOX_2D", "SCRIBBLE", "LASSO"])
def test_deleting_what_is_being_placed_ends_place_mode(prompted, axial, modes, kind) -> None:
    interaction, _selection = modes
    prompted.place(kind)
    axial.click(200, 200)
    axial.move(240, 240)
    slicer.mrmlScene.RemoveNode(markups()[0])
    axial.move(260, 260)
    axial.click(280, 280)
    assert not prompted.prompts.isPlacing
    assert interaction.GetCurrentInteractionMode() == interaction.ViewTransform
    assert prompted.of() == []
    assert markups() == []


def test_a_change_of_polarity_goes_on_in_another_list(prompted, axial) -> None:
    for isPositive, x in ((True, 200), (False, 240), (True, 280)):
        prompted.place(isPositive=isPositive)
        axial.move(x - 5, 200)
        axial.click(x, 200)
    assert [p.is_positive for p in prompted.of()] == [True, False, True]
    assert [node.GetName() for node in markups()] == ["Liver +", "Liver -"]
    colors = [displayOf(node).GetSelectedColor() for node in markups()]
    assert colors[0][1] > 0.5 > colors[0][0]  # green
    assert colors[1][0] > 0.5 > colors[1][1]  # red
