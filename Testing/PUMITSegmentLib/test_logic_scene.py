"""The logic through whatever happens to the scene: nothing dangles, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
import vtk
from scripted_worker import SHAPE, LogicScene, box

A, B = box((5, 5, 5), (12, 12, 12)), box((8, 8, 8), (16, 16, 16))


# --- the scene changes ----------------------------------------------------------------------------


def test_closing_the_scene_while_computing_writes_nothing_into_the_next(made: LogicScene) -> None:
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


def test_a_saved_scene_brings_everything_back(made: LogicScene, tmp_path: Path) -> None:
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
def test_deleting_a_node_while_computing_leaves_nothing_dangling(
    made: LogicScene, what: str
) -> None:
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
def test_another_frame_of_the_image_is_not_given_the_earlier_ones_mask(
    made: LogicScene, shape: tuple[int, int, int]
) -> None:
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
def test_an_answer_about_a_scan_that_was_changed_since_is_not_written(
    made: LogicScene, change: Callable[[Any], None]
) -> None:
    made.click()
    change(made.volumeNode)
    made.answer(A)
    assert not made.logic.maskOf(made.logic.segmentID).any()
    assert "press Update" in made.status
    made.logic.update()
    made.answer(A)
    assert np.array_equal(made.logic.maskOf(made.logic.segmentID), A)


def test_steps_on_another_grid_cannot_be_undone(made: LogicScene) -> None:
    made.click()
    made.answer(A)
    other = slicer.util.addVolumeFromArray(np.zeros((4, 5, 6), np.int16))
    made.logic.parameters.sourceVolume = other
    assert not made.logic.canUndo
    made.click((2, 2, 2))
    made.answer(np.ones((4, 5, 6), dtype=bool))
    assert made.mask(made.logic.segmentID).all()


def test_closing_leaves_no_observer_and_ends_what_computes(slicerApp: Any) -> None:
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


def test_a_new_segmentation_lies_with_its_scan(made: LogicScene) -> None:
    transform = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    made.volumeNode.SetAndObserveTransformNodeID(transform.GetID())
    made.logic.newSegment()
    assert made.logic.segmentationNode.GetParentTransformNode() is transform


def test_the_frame_of_a_sequence_that_is_shown_is_segmented(made: LogicScene) -> None:
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


def test_prompts_are_given_in_the_frame_of_a_moved_scan(made: LogicScene) -> None:
    matrix = vtk.vtkMatrix4x4()
    matrix.SetElement(0, 3, 50.0)
    transform = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    transform.SetMatrixTransformToParent(matrix)
    made.volumeNode.SetAndObserveTransformNodeID(transform.GetID())
    made.logic.newSegment()
    made.click((14, 12, 10))  # in the list's own frame, which moves with the scan
    (prompt,) = made.worker.requests[-1].prompts
    # The scan's own voxels do not know of the transform; the click counts from where it was.
    selection = slicer.mrmlScene.GetNodeByID("vtkMRMLSelectionNodeSingleton")
    points = slicer.mrmlScene.GetNodeByID(selection.GetActivePlaceNodeID())
    world = points.GetNthControlPointPositionWorld(0)
    np.testing.assert_allclose(prompt.point_lps, (-(world[0] - 50), -world[1], world[2]))
