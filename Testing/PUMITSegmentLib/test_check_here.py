"""Check here: leads to uncertain regions with a mark that is no prompt and never outlives them."""

import os
from pathlib import Path

import numpy as np
import pytest
import slicer
from pumit.errors import ServiceError
from pumit.segmentation import UncertainRegion
from PUMITSegmentLib.prompts.tag import promptNodesOf
from scripted_worker import LogicScene, box
from writing_scene import addMatrixTransform, moveUnder, rigid

A = box((5, 5, 5), (12, 12, 12))
PLACES = (
    UncertainRegion((-5.0, -8.0, 9.0), 0.4, 2.0, 0.5),  # RAS (5, 8, 9)
    UncertainRegion((-11.0, -8.0, 7.0), 0.3, 2.0, 0.4),
)


@pytest.fixture
def answered(made: LogicScene) -> LogicScene:
    """A segment whose click is answered."""
    made.clickFor(A)
    made.logic.stopPlacing()
    return made


def marks() -> list[tuple[float, float, float]]:
    """What is marked, RAS mm."""
    nodes = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    shown = [node for node in nodes if node.GetHideFromEditors()]
    return [tuple(node.GetNthControlPointPositionWorld(0)) for node in shown]


def check(made: LogicScene) -> None:
    made.logic.checkHere.showNext()


def showPlaces(made: LogicScene) -> None:
    """Check, and let both places be the answer."""
    check(made)
    made.worker.requests[-1].answer(A, PLACES)


def test_places_are_requested_only_when_requested_and_shown_one_after_another(answered):
    assert [request.placeCount for request in answered.worker.requests] == [0]
    check(answered)
    request = answered.worker.requests[-1]
    assert request.placeCount == 5
    assert request.segmentID == answered.logic.segmentID
    request.answer(~A, PLACES)
    assert marks() == [(5, 8, 9)]
    assert "1 of 2" in answered.status
    check(answered)
    assert marks() == [(11, 8, 7)]
    assert "2 of 2" in answered.status
    check(answered)
    assert marks() == [(5, 8, 9)]
    assert len(answered.worker.requests) == 2


def test_slices_go_to_the_place(answered, sliceView):
    axial, sagittal = sliceView("Red", "Axial"), sliceView("Yellow", "Sagittal")
    for view in (axial, sagittal):
        view.show(answered.volumeNode)
    showPlaces(answered)
    assert axial.sliceNode.GetSliceToRAS().GetElement(2, 3) == pytest.approx(9)
    assert sagittal.sliceNode.GetSliceToRAS().GetElement(0, 3) == pytest.approx(5)


def test_a_place_that_a_view_does_not_show_is_brought_to_its_middle(answered, sliceView):
    axial = sliceView("Red", "Axial")
    axial.show(answered.volumeNode)
    axial.sliceNode.SetFieldOfView(4, 4, 1)
    axial.sliceNode.JumpSliceByCentering(25, 22, 2)
    showPlaces(answered)
    toRAS = axial.sliceNode.GetSliceToRAS()
    assert [toRAS.GetElement(i, 3) for i in range(3)] == pytest.approx([5, 8, 9])


@pytest.mark.parametrize(
    "leave",
    [
        lambda made: made.click((12, 12, 12)),
        lambda made: made.logic.newSegment(),
        lambda made: made.logic.undo(),
        lambda made: made.logic.removeSegment(made.logic.segmentID),
        lambda made: made.logic.reset(),
        lambda made: made.logic.exit(),
        lambda made: made.logic.close(),
        lambda made: setattr(made.logic.parameters, "sourceVolume", made.addScan("Other")),
        lambda made: setattr(made.logic.parameters, "segmentation", None),
    ],
    ids=["click", "new", "undo", "remove", "reset", "exit", "close", "scan", "segmentation"],
)
def test_the_mark_goes_with_what_it_is_about(answered, leave):
    showPlaces(answered)
    assert marks()
    leave(answered)
    assert marks() == []


def test_after_the_next_answer_the_places_are_new(answered):
    showPlaces(answered)
    answered.clickFor(A, (12, 12, 12))
    check(answered)
    assert answered.worker.requests[-1].placeCount == 5
    answered.worker.requests[-1].answer(A, PLACES[1:])
    assert marks() == [(11, 8, 7)]


def test_places_that_arrive_too_late_are_not_shown(answered):
    answered.logic.parameters.updateAutomatically = False
    check(answered)
    late = answered.worker.requests[-1]
    answered.click((12, 12, 12))
    late.answer(A, PLACES)
    assert marks() == []
    assert not answered.logic.status.isWorking


def test_checking_waits_for_the_answer_and_never_displaces_it(made):
    made.click()
    check(made)
    assert len(made.worker.requests) == 1
    made.answer(A)
    assert made.mask(made.logic.segmentID).any()
    places = made.worker.requests[-1]
    assert places.placeCount == 5
    check(made)
    assert len(made.worker.requests) == 2
    places.answer(A, PLACES)
    assert marks() == [(5, 8, 9)]


@pytest.mark.parametrize("cancelled", [False, True])
def test_what_was_to_be_checked_is_not_once_it_changed(made, cancelled):
    made.click()
    check(made)
    if cancelled:
        made.logic.cancel()
        made.logic.update()
    else:
        made.click((12, 12, 12))
    made.answer(A)
    assert [request.placeCount for request in made.worker.requests if request.placeCount] == []


def test_places_of_an_answer_that_failed_are_not_asked_for(made):
    made.click()
    check(made)
    made.worker.requests[-1].onError(ServiceError("The server is gone."))
    assert "gone" in made.status
    assert len(made.worker.requests) == 1


def test_nothing_to_check_is_said(made):
    check(made)
    assert "prompt first" in made.status
    made.click()
    made.answer()
    check(made)
    made.worker.requests[-1].answer(None, ())
    assert "no border" in made.status
    assert marks() == []


def test_an_error_is_said_and_can_be_tried_again(answered):
    check(answered)
    answered.worker.requests[-1].onError(ServiceError("The server is gone."))
    assert "gone" in answered.status
    showPlaces(answered)
    assert marks() == [(5, 8, 9)]


def test_looking_changes_no_segment_prompt_or_step_and_the_mark_is_not_saved(answered):
    logic = answered.logic
    before = len(promptNodesOf(logic.segmentationNode))
    check(answered)
    answered.worker.requests[-1].answer(~A, PLACES)
    node = logic.checkHere.mark.node
    assert not node.GetSaveWithScene()
    assert node.GetLocked()
    assert len(promptNodesOf(logic.segmentationNode)) == before
    selection = slicer.mrmlScene.GetNodeByID("vtkMRMLSelectionNodeSingleton")
    assert selection.GetActivePlaceNodeID() != node.GetID()
    assert np.array_equal(answered.mask(logic.segmentID), A)
    assert logic.promptCount(logic.segmentID) == 1
    assert logic.undo()
    assert not logic.canUndo or logic.promptCount(logic.segmentID) == 0


def test_a_scan_under_a_transform_is_checked_where_it_is_shown(answered):
    moveUnder(answered.volumeNode, addMatrixTransform(rigid((30, 0, 0))))
    answered.answer(A)  # the prompts have moved with the scan
    showPlaces(answered)
    assert marks() == [(35, 8, 9)]


def test_the_mark_is_seen_in_the_view(answered, sliceView, tmp_path):
    axial = sliceView("Red", "Axial")
    axial.show(answered.volumeNode)

    def yellow() -> int:
        axial.render()
        red, green, blue = (axial.image()[..., i].astype(int) for i in range(3))
        return int(((red > 200) & (green > 140) & (blue < 90)).sum())

    assert yellow() == 0
    showPlaces(answered)
    assert yellow() > 20
    axial.save(Path(os.environ.get("PUMIT_SCREENSHOTS", tmp_path)) / "check-here.png")
    answered.logic.checkHere.forget()
    assert yellow() == 0
