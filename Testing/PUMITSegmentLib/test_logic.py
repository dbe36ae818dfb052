"""The logic on Slicer's scene: prompts become masks, steps are undone, nothing dangles."""

from typing import Any

import numpy as np
import pytest
import slicer
import vtk
from found_structures import found
from pumit.errors import PromptError
from pumit.prompts import MaskPrompt, PointPrompt
from PUMITSegmentLib.parameters import SegmentParameters
from PUMITSegmentLib.prompts.tag import PromptKind
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.provenance import provenanceOf
from PUMITSegmentLib.segments.segment_list import segmentNames
from PUMITSegmentLib.segments.writer import OverwriteMode
from scripted_worker import SHAPE, LogicScene, box

A, B = box((5, 5, 5), (12, 12, 12)), box((8, 8, 8), (16, 16, 16))
C, D = box((1, 1, 1), (4, 4, 4)), box((1, 16, 16), (4, 20, 20))


# --- from prompts to masks ------------------------------------------------------------------------


def test_an_error_loses_nothing_and_a_next_prompt_repairs_it(made):
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


def test_a_segment_is_said_to_be_made_by_the_model_with_prompts(made):
    made.click()
    made.answer(A)
    segmentation = made.logic.segmentationNode.GetSegmentation()
    provenance = provenanceOf(segmentation.GetSegment(made.logic.segmentID))
    assert (provenance.type, provenance.version) == ("SEMIAUTOMATIC", "7")
    assert provenance.name == "PUMIT fake 7"


def test_without_a_scan_the_status_says_what_to_do(slicerApp):
    made = LogicScene()
    made.logic.parameters.sourceVolume = None
    assert made.logic.newSegment() == ""
    assert "scan" in made.status
    made.logic.update()
    assert "scan" in made.status
    made.logic.close()


def test_removing_the_last_prompt_empties_the_segment(made):
    made.click()
    made.answer(A)
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    points.RemoveNthControlPoint(0)
    assert not made.mask(made.logic.segmentID).any()
    assert made.logic.undo()
    assert np.array_equal(made.mask(made.logic.segmentID), A)
    assert made.logic.promptCount(made.logic.segmentID) == 1


# --- segments -------------------------------------------------------------------------------------


def test_placing_goes_on_for_the_segment_that_is_selected(made):
    first = made.logic.newSegment("First")
    made.click()
    second = made.logic.newSegment("Second")
    assert made.logic.isPlacing
    made.click()
    assert (made.logic.promptCount(first), made.logic.promptCount(second)) == (1, 1)


def test_a_segment_stops_at_others_unless_set_otherwise(made):
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


def test_what_belongs_to_others_whole_is_said_to(made):
    made.logic.newSegment()
    made.click()
    made.answer(B)
    made.logic.newSegment()
    made.click()
    made.answer(A & B)
    assert made.status == "Segment_2 is empty: 100 % of the result belongs to Segment_1."


def test_taking_from_others_can_be_undone(made):
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


def test_removing_a_segment_removes_its_prompts_and_undo_brings_both_back(made):
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
    # The user's name: neither a term nor the next object replaces it.
    assert not segmentation.GetSegment(first).GetNameAutoGenerated()
    assert np.array_equal(made.mask(first), A)
    assert made.logic.promptCount(first) == 1


def test_a_removed_segment_returns_also_where_one_before_it_is_gone(made):
    first = made.logic.newSegment("Liver")
    segmentation = made.logic.segmentationNode.GetSegmentation()
    segmentation.AddEmptySegment("loaded")  # never selected, so it has no steps
    ids = [first, *(made.logic.newSegment(name) for name in ("Spleen", "Aorta"))]
    made.logic.removeSegment(ids[-1])
    segmentation.RemoveSegment("loaded")
    made.logic.undo()
    assert list(segmentation.GetSegmentIDs()) == ids


def test_a_segment_that_is_removed_while_computed_is_not_written(made):
    segmentID = made.logic.newSegment()
    made.click()
    made.logic.segmentationNode.GetSegmentation().RemoveSegment(segmentID)
    made.answer(A)
    assert made.logic.segmentID == ""
    assert not made.logic.isComputing


# --- steps ----------------------------------------------------------------------------------------


def test_a_step_that_was_never_answered_is_answered_when_it_is_reached_again(made):
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


def test_reset_can_be_undone(made):
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


def test_masking_set_later_does_not_keep_a_step_from_being_undone(made):
    made.click()
    made.answer(A)
    editor = segmentEditorNode()
    editor.SetMaskMode(slicer.vtkMRMLSegmentationNode.EditAllowedInsideAllSegments)
    made.logic.undo()
    made.logic.redo()
    assert np.array_equal(made.mask(made.logic.segmentID), A)
    assert editor.GetMaskMode() == slicer.vtkMRMLSegmentationNode.EditAllowedInsideAllSegments


def test_several_segments_that_are_redone_are_one_step_as_before(made):
    made.logic.newSegment()
    made.logic.addFound(found(A, B))
    made.logic.newSegment()
    for _ in range(2):
        made.logic.undo()
    for _ in range(2):
        assert made.logic.redo()
    assert list(segmentNames(made.logic.segmentationNode).values())[1:3] == ["Organ 0", "Organ 1"]
    made.logic.undo()
    made.logic.undo()
    assert made.status == "Undone: 2 new segments."
    assert len(segmentNames(made.logic.segmentationNode)) == 1


# --- edits by hand --------------------------------------------------------------------------------


def test_an_edit_by_hand_is_a_step_and_what_the_next_prompt_goes_on_from(made):
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


def test_a_mask_that_was_only_painted_is_what_the_first_prompt_goes_on_from(made):
    segmentID = made.logic.newSegment()
    made.editByHand(segmentID, A)
    made.click()
    assert [type(p) for p in made.worker.requests[-1].prompts] == [MaskPrompt, PointPrompt]


def paintLiver(made: LogicScene) -> str:
    """Segment two, and paint into the one that is not selected; return its ID."""
    liver = made.logic.newSegment("Liver")
    made.click()
    made.answer(A)
    made.logic.newSegment("Spleen")
    made.click((13, 13, 13))
    made.answer(B)
    made.logic.exit()
    made.editByHand(liver, A | C)
    made.logic.enter()
    return liver


def test_an_edit_by_hand_of_another_segment_is_a_step_of_its_own(made):
    liver = paintLiver(made)
    made.logic.undo()
    assert made.status == "Undone: edit by hand, Liver."
    assert np.array_equal(made.mask(liver), A)
    steps = 1
    while made.logic.undo():
        steps += 1
    for _ in range(steps):
        made.logic.redo()
    assert np.array_equal(made.mask(liver), A | C)


def test_undoing_a_mask_that_took_from_an_edited_one_restores_the_edit(made):
    liver = paintLiver(made)
    made.logic.parameters.overwriteMode = OverwriteMode.ALL
    made.click((12, 13, 13))
    made.editByHand(liver, A | C | D)  # while the answer is computed
    made.answer(B | C | D)
    assert np.array_equal(made.mask(liver), A & ~B)
    made.logic.undo()
    assert np.array_equal(made.mask(liver), A | C | D)
    made.logic.selectSegment(liver)
    made.click((7, 7, 7))
    assert MaskPrompt in [type(p) for p in made.worker.requests[-1].prompts]


@pytest.mark.parametrize("how", ["click", "find"])
def test_undo_returns_what_was_taken_from_a_segment_that_was_never_selected(made, how):
    made.logic.newSegment()
    loaded = made.logic.segmentationNode.GetSegmentation().AddEmptySegment("loaded")
    made.editByHand(loaded, A)
    made.logic.parameters.overwriteMode = OverwriteMode.ALL
    if how == "click":
        made.click()
        made.answer(B)
    else:
        made.logic.addFound(found(B))
    assert np.array_equal(made.mask(loaded), A & ~B)
    made.logic.undo()
    assert np.array_equal(made.mask(loaded), A)


@pytest.mark.parametrize("isPlacing", [True, False])
def test_an_answer_does_not_erase_what_was_painted_meanwhile(made, isPlacing):
    segmentID = made.logic.newSegment("Liver")
    made.click()
    if not isPlacing:
        made.logic.exit()
    made.editByHand(segmentID, C)
    assert made.status.startswith("Liver was edited by hand: its computation is cancelled.")
    made.answer(A)
    assert np.array_equal(made.mask(segmentID), C)
    made.logic.update()
    assert [type(p) for p in made.worker.requests[-1].prompts] == [PointPrompt, MaskPrompt]


def test_an_edit_counts_also_while_a_removed_segment_waits_to_be_computed(made):
    removed = made.logic.newSegment("Liver")
    made.click()
    segmentID = made.logic.newSegment("Spleen")
    made.click((13, 13, 13))
    made.logic.segmentationNode.GetSegmentation().RemoveSegment(removed)
    made.editByHand(segmentID, C)
    made.answer(A)
    assert np.array_equal(made.mask(segmentID), C)


def test_removed_segments_of_a_merged_layer_are_one_step(made):
    """Slicer empties a segment of such a layer, as a saved one is, before it removes it."""
    first = made.logic.newSegment("Liver")
    made.click()
    made.answer(A)
    made.logic.parameters.overwriteMode = OverwriteMode.ALL
    made.logic.addFound(found(B, C))
    assert made.logic.selection.isPlacing
    made.logic.segmentationNode.GetSegmentation().CollapseBinaryLabelmaps(False)
    made.logic.undo()
    assert np.array_equal(made.mask(first), A)
    made.logic.redo()
    assert made.status == "Redone: 2 new segments."
    assert np.array_equal(made.mask(first), A & ~B)
    made.logic.segmentationNode.GetSegmentation().CollapseBinaryLabelmaps(False)
    made.logic.removeSegment(first)
    made.logic.undo()
    assert np.array_equal(made.mask(first), A & ~B)


def test_steps_undone_before_an_edit_by_hand_are_not_redone_over_it(made):
    made.click()
    made.answer(A)
    made.logic.undo()
    made.logic.stopPlacing()
    made.editByHand(made.logic.segmentID, C)
    assert not made.logic.redo()
    assert np.array_equal(made.mask(made.logic.segmentID), C)
    assert not made.logic.canRedo


def test_own_writing_is_no_edit_by_hand(made):
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


def test_a_segmentation_of_surfaces_is_said_to_be_no_use_and_raises_nothing(made):
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


def test_a_scan_with_nan_is_cleaned_on_the_thread(made):
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


def test_several_structures_that_were_found_can_be_undone_and_repeated(made):
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


# --- the scene changes ----------------------------------------------------------------------------


def test_closing_the_scene_while_computing_writes_nothing_into_the_next(made):
    made.click()
    slicer.mrmlScene.Clear()
    made.worker.requests[0].answer(A)
    assert made.logic.segmentationNode is None
    assert slicer.util.getNodesByClass("vtkMRMLSegmentationNode") == []
    made.volumeNode = made.addScan()
    made.logic.parameters.sourceVolume = made.volumeNode
    made.click()
    made.answer(B)
    assert np.array_equal(made.mask(made.logic.segmentID), B)


def test_a_saved_scene_brings_everything_back(made, tmp_path):
    first = made.logic.newSegment("First")
    made.click()
    made.answer(A)
    second = made.logic.newSegment("Second")
    made.click((10, 10, 10))
    made.click((11, 10, 10))
    made.answer(B)
    made.logic.parameters.updateAutomatically = False
    folder = tmp_path / "scene"
    folder.mkdir()
    slicer.app.applicationLogic().SaveSceneToSlicerDataBundleDirectory(str(folder), None)
    slicer.mrmlScene.Clear()
    assert made.logic.segmentationNode is None
    (path,) = folder.glob("*.mrml")
    slicer.util.loadScene(str(path))
    assert made.logic.segmentID == second
    assert not made.logic.parameters.updateAutomatically
    assert (made.logic.promptCount(first), made.logic.promptCount(second)) == (1, 2)
    assert np.array_equal(made.mask(first), A)
    assert np.array_equal(made.mask(second), B & ~A)


@pytest.mark.parametrize("what", ["volume", "segmentation", "parameters", "points"])
def test_deleting_a_node_while_computing_leaves_nothing_dangling(made, what):
    made.click()
    nodes = {
        "volume": made.volumeNode,
        "segmentation": made.logic.segmentationNode,
        "parameters": made.logic.parameters.parameterNode,
        "points": slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")[0],
    }
    slicer.mrmlScene.RemoveNode(nodes[what])
    made.worker.requests[0].answer(A)
    segmentations = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")
    if what != "segmentation":
        segmentID = segmentations[0].GetSegmentation().GetNthSegmentID(0)
        array = slicer.util.arrayFromSegmentInternalBinaryLabelmap(segmentations[0], segmentID)
        assert array is None or not array.any()
    # It continues.
    made.logic.parameters.sourceVolume = made.volumeNode = made.addScan("Other")
    made.click()
    made.answer(B)
    assert np.array_equal(made.mask(made.logic.segmentID), B)


@pytest.mark.parametrize("shape", [SHAPE, (10, 12, 14)])
def test_another_frame_of_the_image_is_not_given_the_earlier_ones_mask(made, shape):
    made.click()
    slicer.util.updateVolumeFromArray(made.volumeNode, np.zeros(shape, np.int16))
    made.worker.requests[0].answer(A)
    assert not made.mask(made.logic.segmentID).any()
    assert "changed" in made.status


def otherSpacing(node: Any) -> None:
    node.SetSpacing(1.0, 1.0, 2.0)


def otherVoxels(node: Any) -> None:
    slicer.util.arrayFromVolume(node)[:] *= 2
    slicer.util.arrayFromVolumeModified(node)


@pytest.mark.parametrize("change", [otherSpacing, otherVoxels])
def test_an_answer_about_a_scan_that_was_changed_since_is_not_written(made, change):
    made.click()
    change(made.volumeNode)
    made.answer(A)
    assert not made.logic.maskOf(made.logic.segmentID).any()
    assert "press Update" in made.status
    made.logic.update()
    made.answer(A)
    assert np.array_equal(made.logic.maskOf(made.logic.segmentID), A)


def test_steps_on_another_grid_cannot_be_undone(made):
    made.click()
    made.answer(A)
    other = slicer.util.addVolumeFromArray(np.zeros((4, 5, 6), np.int16))
    made.logic.parameters.sourceVolume = other
    assert not made.logic.canUndo
    made.click((2, 2, 2))
    made.answer(np.ones((4, 5, 6), dtype=bool))
    assert made.mask(made.logic.segmentID).all()


def test_closing_leaves_no_observer_and_ends_what_computes(slicerApp):
    from harness.program.scene_state import countPythonObservers

    scene = slicer.mrmlScene
    before = countPythonObservers(scene)
    made = LogicScene()
    made.click()
    made.answer(A)
    node, volume = made.logic.segmentationNode, made.volumeNode
    parameterNode = made.logic.parameters.parameterNode
    made.logic.close()
    assert made.worker.isClosed
    assert countPythonObservers(scene) == before
    for observed in (node, volume):
        assert countPythonObservers(observed) == 0
    del parameterNode


def test_the_frame_of_a_sequence_that_is_shown_is_segmented(made):
    sequence = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceNode")
    sequence.SetIndexName("time")
    for time, level in enumerate((100, 200)):
        frame = slicer.util.addVolumeFromArray(np.full(SHAPE, level, np.int16))
        sequence.SetDataNodeAtValue(frame, str(time))
        slicer.mrmlScene.RemoveNode(frame)
    browser = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceBrowserNode")
    browser.SetAndObserveMasterSequenceNodeID(sequence.GetID())
    logic = slicer.modules.sequences.logic()
    logic.UpdateProxyNodesFromSequences(browser)
    proxy = made.volumeNode = browser.GetProxyNode(sequence)
    made.logic.parameters.sourceVolume = proxy
    made.click()
    first = made.worker.requests[-1]
    browser.SetSelectedItemNumber(1)
    logic.UpdateProxyNodesFromSequences(browser)
    first.answer(A)
    assert not made.mask(made.logic.segmentID).any()
    made.logic.update()
    assert made.worker.requests[-1] is first  # each frame has its own prompts
    made.click()
    second = made.worker.requests[-1]
    assert (int(first.volume.array.max()), int(second.volume.array.max())) == (100, 200)
    made.answer(B)
    assert np.array_equal(made.mask(made.logic.segmentID), B)


@pytest.fixture
def node(slicerApp: Any) -> Any:
    return slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScriptedModuleNode")


def test_a_label_map_or_model_cannot_be_the_segmentation(node):
    model = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLModelNode")
    with pytest.raises(Exception, match=r"egmentation|type"):
        SegmentParameters(node).segmentation = model


def test_damaged_settings_of_a_scene_become_the_usual_ones(slicerApp):
    made = LogicScene()
    node = made.logic.parameters.parameterNode
    names = [name for name in node.GetParameterNames() if node.GetParameter(name)]
    made.logic.close()
    for name in names:
        node.SetParameter(name, "nonsense")
    again = LogicScene()
    assert again.logic.parameters is not None
    assert again.logic.parameters.overwriteMode is OverwriteMode.STOP
    again.logic.close()
