"""Prompts in a scene that is closed, moved and edited by others."""

import numpy as np
import pytest
import slicer
import vtk
from prompt_frames import KINDS, assertSame, lps
from prompt_scene import SPLEEN, addScan, markups, rotation
from pumit.prompts import MaskPrompt, PointPrompt
from PUMITSegmentLib.prompts.box_on_slice import planeOf
from PUMITSegmentLib.prompts.geometry import boxCornersWorld
from writing_scene import addMatrixTransform, rigid

MOVE = rigid((30, -20, 10), rotation(33, 0) @ rotation(10, 2))
CLICKS = [(220, 260), (300, 240), (260, 200)]


def test_prompts_of_all_kinds_come_in_the_order_they_were_given(prompted, axial):
    prompted.placeOneOfEach(axial)
    assert [type(p) for p in prompted.of()] == KINDS


def test_a_moved_prompt_keeps_its_place_and_a_deleted_one_vanishes(prompted, axial):
    prompted.placeOneOfEach(axial)
    before = prompted.of()
    first = slicer.util.getNode("Liver +")
    first.SetNthControlPointPositionWorld(0, *axial.xyToRas(230, 270))
    moved = prompted.of()
    assert moved[0].point_lps == pytest.approx(lps(axial.xyToRas(230, 270)), abs=1e-3)
    assertSame(moved[1:], before[1:])
    slicer.mrmlScene.RemoveNode(slicer.util.getNode("Liver scribble +"))
    assertSame(prompted.of(), moved[:2] + moved[3:])
    assert prompted.changed[-2:] == ["liver", "liver"]


def test_removing_a_segment_removes_its_prompts_only(prompted, axial):
    prompted.placeOneOfEach(axial)
    prompted.place(segmentID=SPLEEN)
    axial.click(200, 200)
    prompted.segmentationNode.GetSegmentation().RemoveSegment("liver")
    assert [node.GetName() for node in markups()] == ["Spleen +"]
    assert prompted.of("liver") == []
    assert prompted.prompts.isPlacing  # into the other segment
    prompted.segmentationNode.GetSegmentation().RemoveSegment(SPLEEN)
    assert markups() == []
    assert not prompted.prompts.isPlacing


def test_removing_the_segmentation_removes_all_prompts_while_placing(prompted, axial):
    prompted.placeOneOfEach(axial)
    prompted.place("LASSO")
    axial.click(200, 200)
    prompted.changed.clear()
    slicer.mrmlScene.RemoveNode(prompted.segmentationNode)
    assert markups() == []
    interaction = slicer.app.applicationLogic().GetInteractionNode()
    assert interaction.GetCurrentInteractionMode() == interaction.ViewTransform
    assert prompted.changed == []
    assert folders() == []


@pytest.mark.parametrize("kind", ["POINT", "BOX_3D", "LASSO"])
def test_closing_the_scene_while_placing_leaves_nothing(prompted, axial, kind):
    from harness.program.scene_state import countPythonObservers

    observers = countPythonObservers(slicer.mrmlScene)
    prompted.placeOneOfEach(axial)
    prompted.place(kind)
    axial.click(200, 200)
    prompted.changed.clear()
    slicer.mrmlScene.Clear(0)
    assert prompted.changed == []
    assert countPythonObservers(slicer.mrmlScene) < observers


def test_close_leaves_no_observer(prompted, axial):
    from harness.program.scene_state import countPythonObservers

    prompted.placeOneOfEach(axial)
    prompted.prompts.close()
    observed = [slicer.mrmlScene, *slicer.util.getNodesByClass("vtkMRMLNode")]
    # The harness observes the scene three times, for the subject hierarchy.
    assert sum(map(countPythonObservers, observed)) <= 3
    slicer.util.getNode("Liver +").RemoveAllControlPoints()
    assert prompted.changed == ["liver"] * 6


def test_prompts_are_watched_again_after_one_that_cannot_be_read(prompted, axial, monkeypatch):
    def fail(node, tag):
        raise ValueError

    prompted.placeOneOfEach(axial)
    prompted.changed.clear()
    with monkeypatch.context() as broken:
        broken.setattr("PUMITSegmentLib.prompts.watch.signatureOf", fail)
        with pytest.raises(ValueError), prompted.prompts._watch.muted():
            pass
    slicer.util.getNode("Liver +").RemoveAllControlPoints()
    assert prompted.changed == ["liver"]


def test_renaming_a_segment_renames_its_nodes(prompted, axial):
    prompted.placeOneOfEach(axial)
    markups()[0].SetName("My points")
    prompted.segmentationNode.GetSegmentation().GetSegment("liver").SetName("Kidney")
    names = {node.GetName() for node in markups()}
    assert names == {
        "My points",
        "Kidney -",
        "Kidney slice box",
        "Kidney scribble +",
        "Kidney lasso -",
        "Kidney box",
    }


def test_a_copied_segment_has_no_prompts(prompted, axial, failures):
    prompted.placeOneOfEach(axial)
    segmentation = prompted.segmentationNode.GetSegmentation()
    with failures.expected("Generate a new unique segment ID"):
        segmentation.CopySegmentFromSegmentation(segmentation, "liver")
    (copy,) = set(segmentation.GetSegmentIDs()) - {"liver", "spleen"}
    assert prompted.of(copy) == []
    assert len(prompted.of("liver")) == len(KINDS)


def test_prompts_of_other_segments_are_hidden_and_locked(prompted, axial):
    prompted.placeOneOfEach(axial)
    prompted.place(segmentID="spleen")
    axial.click(200, 200)
    prompted.prompts.stopPlacing()
    prompted.changed.clear()
    for shown in ("liver", "spleen", None):
        prompted.prompts.showOnly(shown)
        for node in markups():
            isShown = shown is not None and node.GetName().lower().startswith(shown)
            assert bool(node.GetDisplayNode().GetVisibility()) == isShown
            assert bool(node.GetLocked()) != isShown
    assert prompted.changed == []


def folders() -> list[str]:
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    items = vtk.vtkIdList()
    hierarchy.GetItemChildren(hierarchy.GetSceneItemID(), items, True)
    ids = [items.GetId(i) for i in range(items.GetNumberOfIds())]
    return [
        hierarchy.GetItemName(item)
        for item in ids
        if hierarchy.GetItemAttribute(item, "PUMITSegment.PromptFolder")
    ]


def test_prompts_lie_in_one_folder_that_goes_with_the_last(prompted, axial):
    prompted.placeOneOfEach(axial)
    assert folders() == ["S prompts"]
    prompted.prompts.clear("liver")
    assert folders() == []


def test_points_pasted_or_moved_at_once_are_noticed(prompted, axial):
    prompted.place()
    for xy in CLICKS:
        axial.click(*xy)
    prompted.prompts.stopPlacing()
    prompted.changed.clear()
    node = slicer.util.getNode("Liver +")
    positions = slicer.util.arrayFromMarkupsControlPoints(node) + 5.0
    slicer.util.updateMarkupsControlPointsFromArray(node, positions)
    assert prompted.changed == ["liver"]
    np.testing.assert_allclose([p.point_lps for p in prompted.of()], positions * (-1, -1, 1))
    prompted.changed.clear()
    modified = node.StartModify()
    for k in range(3):
        node.AddControlPoint([k, 0, 0])
    node.EndModify(modified)
    assert prompted.changed == ["liver"]
    assert [p.point_lps[0] for p in prompted.of()[3:]] == [0, -1, -2]


def test_a_cloned_list_counts_as_further_prompts(prompted, axial):
    prompted.place()
    for xy in CLICKS[:2]:
        axial.click(*xy)
    prompted.prompts.stopPlacing()
    before = prompted.of()
    node = slicer.util.getNode("Liver +")
    clone = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode", "Copy")
    clone.Copy(node)
    prompts = prompted.of()
    assertSame(prompts[:2], before)
    assertSame(prompts[2:], before)
    assert len(prompted.prompts.snapshot("liver").nodes) == 2


def test_prompts_follow_a_scan_that_is_moved(prompted, axial):
    transform = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    prompted.volumeNode.SetAndObserveTransformNodeID(transform.GetID())
    axial.show(prompted.volumeNode)
    prompted.placeOneOfEach(axial)
    before = prompted.of()
    slicer.util.updateTransformMatrixFromArray(transform, MOVE)
    after = prompted.of()
    assertSame(after[:-1], before[:-1], tolerance=0.01)
    # The middle of a lasso is found on cells, which may lie otherwise.
    assertSame(after[-1:], before[-1:], tolerance=1.5)


@pytest.mark.parametrize("then", ["moved", "hardened", "taken out", "deleted"])
def test_prompts_stay_on_a_scan_that_is_put_under_a_transform(prompted, axial, then):
    prompted.placeOneOfEach(axial)
    before = prompted.of()
    (box,) = (n for n in slicer.util.getNodesByClass("vtkMRMLMarkupsROINode") if planeOf(n))
    flat = boxCornersWorld(box, isFlat=False)
    transform = addMatrixTransform(MOVE)
    prompted.volumeNode.SetAndObserveTransformNodeID(transform.GetID())
    world = slicer.util.getNode("Liver +").GetNthControlPointPositionWorld(0)
    expected = MOVE @ [*axial.xyToRas(220, 260), 1]
    np.testing.assert_allclose(world, expected[:3], atol=1e-3)
    if then == "hardened":
        prompted.volumeNode.HardenTransform()
        world = slicer.util.getNode("Liver +").GetNthControlPointPositionWorld(0)
        np.testing.assert_allclose(world, expected[:3], atol=1e-3)
        (box,) = (n for n in slicer.util.getNodesByClass("vtkMRMLMarkupsROINode") if planeOf(n))
        corners = boxCornersWorld(box, isFlat=False)
        box.Modified()
        np.testing.assert_allclose(boxCornersWorld(box, isFlat=False), corners, atol=1e-3)
        np.testing.assert_allclose(corners, flat @ MOVE[:3, :3].T + MOVE[:3, 3], atol=1e-3)
        return  # other LPS coordinates, for the scan has others too
    if then == "taken out":
        prompted.volumeNode.SetAndObserveTransformNodeID(None)
    if then == "deleted":
        slicer.mrmlScene.RemoveNode(transform)
    after = prompted.of()
    assertSame(after[:-1], before[:-1], tolerance=0.01)
    assertSame(after[-1:], before[-1:], tolerance=1.5)


def test_a_later_mask_prior_replaces_an_earlier_one_and_comes_last(prompted, axial):
    prompted.prompts.setMaskPrior("liver", prompted.blob(), prompted.volumeNode)
    prompted.place()
    axial.click(220, 260)
    first = prompted.of()
    assert [type(p) for p in first] == [MaskPrompt, PointPrompt]
    np.testing.assert_array_equal(prompted.of()[0].mask, first[0].mask)
    second = ~prompted.blob()
    prompted.prompts.setMaskPrior("liver", second, prompted.volumeNode)
    point, mask = prompted.of()
    assert isinstance(point, PointPrompt)
    np.testing.assert_array_equal(mask.mask, second)
    prompted.prompts.setMaskPrior("liver", np.zeros_like(second), prompted.volumeNode)
    assert [type(p) for p in prompted.of()] == [PointPrompt]


def test_a_mask_prior_is_brought_onto_another_grid(prompted):
    prompted.prompts.setMaskPrior("liver", prompted.blob(), prompted.volumeNode)
    other = addScan(shape=(80, 60, 35), spacing_dhw=(1.25, 1.1, 1.8))
    matrix = slicer.util.vtkMatrixFromArray(np.eye(4))
    prompted.volumeNode.GetIJKToRASMatrix(matrix)
    own = slicer.util.arrayFromVTKMatrix(matrix)
    fine = own.copy()
    fine[:3, 2] /= 2
    fine[:3, 0] *= 2
    fine[:3, 3] += 0.5 * (fine[:3, 0] - own[:3, 0]) + 0.5 * (fine[:3, 2] - own[:3, 2])
    other.SetIJKToRASMatrix(slicer.util.vtkMatrixFromArray(fine))
    prompted.segmentationNode.SetReferenceImageGeometryParameterFromVolumeNode(other)
    (prompt,) = prompted.of()
    # Each slice twice, every second column.
    repeated = np.repeat(prompted.blob(), 2, axis=0)
    assert prompt.mask.shape == repeated[:, :, ::2].shape
    changed = prompt.mask != repeated[:, :, ::2]
    assert changed.sum() < 0.01 * prompt.mask.sum()
