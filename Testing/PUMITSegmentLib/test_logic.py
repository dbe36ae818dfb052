"""The logic on Slicer's scene: prompts become masks, steps are undone, nothing dangles."""

from __future__ import annotations

from typing import Any

import numpy as np
import slicer
import vtk
from found_structures import found
from pumit.errors import PromptError
from pumit.prompts import MaskPrompt, PointPrompt
from PUMITSegmentLib.prompts.tag import PromptKind
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.provenance import provenanceOf
from PUMITSegmentLib.segments.segment_list import segmentNames
from PUMITSegmentLib.segments.writer import OverwriteMode
from scripted_worker import SHAPE, LogicScene, box

A, B = box((5, 5, 5), (12, 12, 12)), box((8, 8, 8), (16, 16, 16))


# --- from prompts to masks ------------------------------------------------------------------------


def test_nothing_is_requested_while_updating_is_switched_off(made: LogicScene) -> None:
    made.logic.parameters.updateAutomatically = False
    made.click()
    assert made.worker.requests == []
    assert "Update" in made.status
    made.logic.update()
    made.answer(A)
    assert np.array_equal(made.mask(made.logic.segmentID), A)


def test_an_error_loses_nothing_and_a_next_prompt_repairs_it(made: LogicScene) -> None:
    made.click()
    made.answer(A)
    made.logic.setPositive(False)
    made.click((20, 2, 2))
    made.worker.requests[-1].onError(PromptError("The prompts contradict each other."))
    assert "contradict" in made.status
    assert made.logic.promptCount(made.logic.segmentID) == 2
    assert np.array_equal(made.mask(made.logic.segmentID), A)
    made.click((12, 12, 12))
    made.answer(B)
    assert np.array_equal(made.mask(made.logic.segmentID), B)


def test_a_segment_is_said_to_be_made_by_the_model_with_prompts(made: LogicScene) -> None:
    made.click()
    made.answer(A)
    segmentation = made.logic.segmentationNode.GetSegmentation()
    provenance = provenanceOf(segmentation.GetSegment(made.logic.segmentID))
    assert (provenance.type, provenance.version) == ("SEMIAUTOMATIC", "7")
    assert provenance.name == "PUMIT fake 7"


def test_without_a_scan_the_status_says_what_to_do(slicerApp: Any) -> None:
    made = LogicScene()
    made.logic.parameters.sourceVolume = None
    assert made.logic.newSegment() == ""
    assert "scan" in made.status
    made.logic.update()
    assert "scan" in made.status
    made.logic.close()


def test_removing_the_last_prompt_empties_the_segment(made: LogicScene) -> None:
    made.click()
    made.answer(A)
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    points.RemoveNthControlPoint(0)
    assert not made.mask(made.logic.segmentID).any()
    assert made.logic.undo()
    assert np.array_equal(made.mask(made.logic.segmentID), A)
    assert made.logic.promptCount(made.logic.segmentID) == 1


# --- segments -------------------------------------------------------------------------------------


def test_segments_have_prompts_of_their_own_and_start_positive(made: LogicScene) -> None:
    first = made.logic.newSegment()
    made.logic.setPositive(False)
    made.click((14, 12, 10))
    second = made.logic.newSegment()
    assert made.logic.parameters.isPositive
    made.click((10, 12, 10))
    made.click((9, 12, 10))
    assert made.logic.promptCount(first) == 1
    assert made.logic.promptCount(second) == 2
    assert made.worker.requests[-1].prompts[0].is_positive


def test_placing_goes_on_for_the_segment_that_is_selected(made: LogicScene) -> None:
    first = made.logic.newSegment("First")
    made.click()
    second = made.logic.newSegment("Second")
    assert made.logic.isPlacing
    made.click()
    assert (made.logic.promptCount(first), made.logic.promptCount(second)) == (1, 1)


def test_a_segment_stops_at_others_unless_set_otherwise(made: LogicScene) -> None:
    first = made.logic.newSegment()
    made.click()
    made.answer(A)
    second = made.logic.newSegment()
    made.click()
    made.answer(B)
    assert np.array_equal(made.mask(first), A)
    assert np.array_equal(made.mask(second), B & ~A)
    # A click that corrects the second one finds it as it is shown.
    made.logic.undo()
    made.logic.redo()
    assert np.array_equal(made.mask(second), B & ~A)
    made.logic.parameters.overwriteMode = OverwriteMode.NONE
    made.logic.update()
    made.answer(B)
    assert np.array_equal(made.mask(second), B)
    assert np.array_equal(made.mask(first), A)


def test_what_belongs_to_others_whole_is_said_to(made: LogicScene) -> None:
    made.logic.newSegment()
    made.click()
    made.answer(B)
    made.logic.newSegment()
    made.click()
    made.answer(A & B)
    assert made.status == "Segment_2 is empty: 100 % of the result belongs to Segment_1."


def test_taking_from_others_can_be_undone(made: LogicScene) -> None:
    first = made.logic.newSegment()
    made.click()
    made.answer(A)
    second = made.logic.newSegment()
    made.click()
    made.answer(B)
    made.logic.parameters.overwriteMode = OverwriteMode.ALL
    made.click((13, 13, 13))
    made.answer(B)
    assert np.array_equal(made.mask(first), A & ~B)
    made.logic.undo()
    assert np.array_equal(made.mask(first), A)
    assert np.array_equal(made.mask(second), B & ~A)
    made.logic.redo()
    assert np.array_equal(made.mask(first), A & ~B)


def test_removing_a_segment_removes_its_prompts_and_undo_brings_both_back(
    made: LogicScene,
) -> None:
    first = made.logic.newSegment("Liver")
    made.click()
    made.answer(A)
    made.logic.stopPlacing()
    second = made.logic.newSegment("Spleen")
    made.logic.removeSegment(first)
    assert made.logic.segmentID == second
    assert slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode") == []
    made.logic.undo()
    segmentation = made.logic.segmentationNode.GetSegmentation()
    assert segmentation.GetSegment(first).GetName() == "Liver"
    assert segmentation.GetNthSegmentID(0) == first
    assert np.array_equal(made.mask(first), A)
    assert made.logic.promptCount(first) == 1


def test_a_segment_that_is_removed_while_computed_is_not_written(made: LogicScene) -> None:
    segmentID = made.logic.newSegment()
    made.click()
    made.logic.segmentationNode.GetSegmentation().RemoveSegment(segmentID)
    made.answer(A)
    assert made.logic.segmentID == ""
    assert not made.logic.isComputing


def test_following_and_preceding_segments_are_selected_round_the_end(made: LogicScene) -> None:
    ids = [made.logic.newSegment() for _ in range(3)]
    made.logic.selectFollowingSegment(1)
    assert made.logic.segmentID == ids[0]
    made.logic.selectFollowingSegment(-1)
    assert made.logic.segmentID == ids[2]


# --- steps ----------------------------------------------------------------------------------------


def test_every_step_over_two_segments_can_be_undone_and_repeated(made: LogicScene) -> None:
    masks = [box((2, 2, 2), (5 + i, 6, 7)) for i in range(5)]
    first = made.logic.newSegment("First")
    states = []

    def remember() -> None:
        ids = [made.logic.segmentationNode.GetSegmentation().GetNthSegmentID(0)]
        states.append([(made.logic.promptCount(i), made.mask(i).sum()) for i in ids])

    remember()
    for i, mask in enumerate(masks):
        made.click((5 + i, 5, 5))
        made.answer(mask)
        remember()
    for expected in states[-2::-1]:
        assert made.logic.undo()
        assert [(made.logic.promptCount(first), made.mask(first).sum())] == expected
    for expected in states[1:]:
        assert made.logic.redo()
        assert [(made.logic.promptCount(first), made.mask(first).sum())] == expected
    assert not made.logic.canRedo


def test_a_step_that_was_never_answered_is_answered_when_it_is_reached_again(
    made: LogicScene,
) -> None:
    made.click((5, 5, 5))
    made.click((6, 5, 5))
    made.answer(B)
    count = len(made.worker.requests)
    made.logic.undo()
    assert len(made.worker.requests) == count + 1
    assert len(made.worker.requests[-1].prompts) == 1
    made.answer(A)
    assert np.array_equal(made.mask(made.logic.segmentID), A)
    made.logic.redo()
    assert np.array_equal(made.mask(made.logic.segmentID), B)
    assert len(made.worker.requests) == count + 1


def test_reset_can_be_undone(made: LogicScene) -> None:
    first = made.logic.newSegment()
    made.click()
    made.answer(A)
    second = made.logic.newSegment()
    made.click()
    made.answer(B)
    made.logic.reset(second)
    assert not made.mask(second).any()
    assert np.array_equal(made.mask(first), A)
    made.logic.undo()
    assert np.array_equal(made.mask(second), B & ~A)
    made.logic.reset()
    assert not made.mask(first).any()
    assert made.logic.promptCount(first) == made.logic.promptCount(second) == 0
    made.logic.undo()
    assert np.array_equal(made.mask(first), A)
    assert np.array_equal(made.mask(second), B & ~A)


def test_masking_set_later_does_not_keep_a_step_from_being_undone(made: LogicScene) -> None:
    made.click()
    made.answer(A)
    editor = segmentEditorNode()
    editor.SetMaskMode(slicer.vtkMRMLSegmentationNode.EditAllowedInsideAllSegments)
    made.logic.undo()
    made.logic.redo()
    assert np.array_equal(made.mask(made.logic.segmentID), A)
    assert editor.GetMaskMode() == slicer.vtkMRMLSegmentationNode.EditAllowedInsideAllSegments


# --- edits by hand --------------------------------------------------------------------------------


def test_an_edit_by_hand_is_a_step_and_what_the_next_prompt_goes_on_from(made: LogicScene) -> None:
    made.click()
    made.answer(A)
    made.logic.exit()
    made.editByHand(made.logic.segmentID, A | B)
    made.logic.enter()
    made.logic.undo()
    assert np.array_equal(made.mask(made.logic.segmentID), A)
    made.logic.redo()
    assert np.array_equal(made.mask(made.logic.segmentID), A | B)
    made.click((12, 12, 12))
    prompts = made.worker.requests[-1].prompts
    assert [type(prompt) for prompt in prompts] == [PointPrompt, MaskPrompt, PointPrompt]
    assert np.array_equal(prompts[1].mask, A | B)


def test_a_mask_that_was_only_painted_is_what_the_first_prompt_goes_on_from(
    made: LogicScene,
) -> None:
    segmentID = made.logic.newSegment()
    made.editByHand(segmentID, A)
    made.click()
    assert [type(p) for p in made.worker.requests[-1].prompts] == [MaskPrompt, PointPrompt]


def test_own_writing_is_no_edit_by_hand(made: LogicScene) -> None:
    first = made.logic.newSegment()
    made.click()
    made.answer(A)
    second = made.logic.newSegment()
    made.click()
    made.answer(B)
    made.logic.selectSegment(first)
    made.click((7, 7, 7))
    assert all(isinstance(p, PointPrompt) for p in made.worker.requests[-1].prompts)
    assert made.logic.promptCount(second) == 1


def test_a_segmentation_of_surfaces_is_said_to_be_no_use_and_raises_nothing(
    made: LogicScene,
) -> None:
    sphere = vtk.vtkSphereSource()
    sphere.SetCenter(10, 10, 10)
    sphere.SetRadius(4)
    sphere.Update()
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode")
    node.CreateDefaultDisplayNodes()
    node.AddSegmentFromClosedSurfaceRepresentation(sphere.GetOutput(), "Sphere")
    node.GetSegmentation().SetSourceRepresentationName("Closed surface")
    made.logic.parameters.segmentation = node

    made.logic.startPlacing(PromptKind.POINT)
    assert made.status
    made.logic.parameters.segmentation = None
    made.click()
    made.answer(A)
    assert np.array_equal(made.mask(made.logic.segmentID), A)


def test_a_scan_with_nan_is_cleaned_on_the_thread(made: LogicScene) -> None:
    array = np.full(SHAPE, 50, dtype=np.float32)
    array[0] = np.nan
    array[1, 0] = np.inf
    made.volumeNode = slicer.util.addVolumeFromArray(array)
    made.logic.parameters.sourceVolume = made.volumeNode
    made.logic.newSegment("Liver")
    made.click()
    made.answer(box((5, 5, 5), (12, 12, 12)))
    assert np.isfinite(made.worker.volume.array).all()
    assert np.isnan(slicer.util.arrayFromVolume(made.volumeNode)[0]).all()


def test_several_structures_that_were_found_can_be_undone_and_repeated(made: LogicScene) -> None:
    """The one that is selected goes first; the next one must not count as removed by hand."""
    made.logic.addFound(found(box((2, 2, 2), (5, 5, 5)), box((8, 8, 8), (12, 12, 12))))
    names = list(segmentNames(made.logic.segmentationNode))
    made.logic.startPlacing(PromptKind.POINT)
    assert made.logic.undo()
    assert made.status == "Undone: 2 new segments."
    assert segmentNames(made.logic.segmentationNode) == {}
    assert made.logic.redo()
    assert list(segmentNames(made.logic.segmentationNode)) == names  # their order numbers labels
    assert not made.logic.canRedo
