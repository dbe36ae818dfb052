"""Masks are written where they lie in the world, and nothing else changes."""

from typing import Any

import numpy as np
import pytest
import slicer
import vtk
import writing_scene as w
from pumit.errors import PumitError, VolumeError
from PUMITSegmentLib.segments.packed_mask import prepare
from PUMITSegmentLib.segments.writer import OverwriteMode
from PUMITSlicerLib import labelmap_grid
from PUMITSlicerLib.mrml import orientedImageArray


def assertWritten(w: Any, mask: np.ndarray, volumeNode: Any, segmentationNode: Any, segmentID="A"):
    """A segment holds exactly the mask, voxel by voxel of the segmentation, in world space."""
    found, matrix = w.stored(segmentationNode, segmentID)
    inside = w.expectedInScene(mask, volumeNode, segmentationNode, found.shape, matrix)
    np.testing.assert_array_equal(found, inside)
    # A voxel further out on every side, to see that nothing is missing.
    matrix = matrix.copy()
    matrix[:3, 3] -= matrix[:3, :3].sum(axis=1)
    shape = tuple(s + 2 for s in found.shape)
    around = w.expectedInScene(mask, volumeNode, segmentationNode, shape, matrix)
    assert around.sum() == found.sum() > 0


@pytest.fixture
def volume(w: Any) -> Any:
    return w.addScan()


@pytest.fixture
def segmentation(w: Any, volume: Any) -> Any:
    return w.addSegmentation(volume)


@pytest.mark.parametrize("isLeftHanded", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_mask_on_the_volumes_grid_is_stored_voxel_by_voxel(w, writer, seed, isLeftHanded):
    volume = w.addScan(axes=w.turned(seed, isLeftHanded))
    segmentation = w.addSegmentation(volume)
    mask = np.random.default_rng(seed).random(w.SHAPE) < 0.1
    writer.write(segmentation, "A", mask, volume)
    assertWritten(w, mask, volume, segmentation)
    np.testing.assert_array_equal(writer.read(segmentation, "A", volume), mask)
    bySlicer = slicer.util.arrayFromSegmentBinaryLabelmap(segmentation, "A", volume)
    np.testing.assert_array_equal(bySlicer > 0, mask)


@pytest.mark.parametrize("kind", ["affine", "bent"])
@pytest.mark.parametrize("parents", ["volume", "segmentation", "same", "different"])
def test_mask_lies_right_in_the_world_under_transforms(w, writer, kind, parents):
    volume = w.addScan(axes=w.turned(4))
    segmentation = w.addSegmentation(volume)
    first = w.addMatrixTransform(w.affine(5)) if kind == "affine" else w.addBendingTransform()
    second = w.addMatrixTransform(w.affine(2))
    if parents != "segmentation":
        w.moveUnder(volume, first)
    if parents != "volume":
        w.moveUnder(segmentation, second if parents == "different" else first)
    under = segmentation.GetTransformNodeID()
    mask = w.ball()
    writer.write(segmentation, "A", mask, volume)
    assertWritten(w, mask, volume, segmentation)
    assert segmentation.GetTransformNodeID() == under
    read = writer.read(segmentation, "A", volume)
    np.testing.assert_array_equal(read, w.expectedOnVolume(segmentation, "A", volume))
    if parents == "same":
        np.testing.assert_array_equal(read, mask)


@pytest.mark.parametrize(
    "grid",
    [
        {"spacing_dhw": (5.0, 2.3, 2.1), "origin": (-19.7, 10.2, 4.6)},
        {"spacing_dhw": (1.3, 0.7, 0.6), "origin": (-19.7, 10.2, 4.6)},
        {"origin": (-25.3, 5.1, 2.2), "turn": 5},
    ],
    ids=["coarser", "finer", "rotated"],
)
def test_segmentation_keeps_its_own_grid(w, writer, grid):
    volume = w.addScan()
    grid = dict(grid)
    axes = w.turned(grid.pop("turn")) if "turn" in grid else None
    segmentation = w.addSegmentation(w.addScan(np.zeros(w.SHAPE, np.int16), axes=axes, **grid))
    _shape, matrix = w.referenceGrid(segmentation)
    writer.write(segmentation, "A", w.ball(), volume)
    assertWritten(w, w.ball(), volume, segmentation)
    np.testing.assert_allclose(
        w.stored(segmentation, "A")[1][:3, :3], matrix[:3, :3], rtol=1e-6, atol=1e-9
    )
    np.testing.assert_array_equal(
        writer.read(segmentation, "A", volume), w.expectedOnVolume(segmentation, "A", volume)
    )


def test_mask_outside_a_cropped_reference_geometry_is_kept(w, writer):
    volume = w.addScan(axes=w.turned(0))
    matrix = w.gridOf(volume)
    corner = (matrix @ [5, 4, 3, 1])[:3]
    cropped = w.addScan(np.zeros((4, 5, 6), np.int16), axes=w.turned(0), origin=corner)
    segmentation = w.addSegmentation(cropped)
    writer.write(segmentation, "A", w.ball(), volume)
    np.testing.assert_array_equal(writer.read(segmentation, "A", volume), w.ball())


def test_segmentation_without_geometry_takes_the_volumes(scene, w, writer):
    volume = w.addScan(axes=w.turned(7))
    w.moveUnder(volume, w.addMatrixTransform(w.affine(3)))
    segmentation = w.addSegmentation()
    writer.write(segmentation, "B", w.ball(), volume)
    assert segmentation.GetTransformNodeID() == volume.GetTransformNodeID()
    role = segmentation.GetReferenceImageGeometryReferenceRole()
    assert segmentation.GetNodeReference(role) is volume
    assertWritten(w, w.ball(), volume, segmentation, "B")
    np.testing.assert_array_equal(writer.read(segmentation, "B", volume), w.ball())


def test_new_segmentation_is_counted_too_the_volume_in_its_study(scene, w, writer):
    volume, segmentation = w.addScan(), w.addSegmentation()
    study = w.addStudy(volume)
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    writer.write(segmentation, "A", w.ball(), volume)
    assert hierarchy.GetItemParent(hierarchy.GetItemByDataNode(segmentation)) == study


def test_segmentation_with_content_but_no_geometry_keeps_its_grid(w, writer):
    other = w.addScan(np.zeros(w.SHAPE, np.int16), spacing_dhw=(3.0, 2.0, 2.0))
    segmentation = w.addSegmentation(other)
    writer.write(segmentation, "B", w.ball(), other)
    parameter = slicer.vtkSegmentationConverter.GetReferenceImageGeometryParameterName()
    segmentation.GetSegmentation().SetConversionParameter(parameter, "")
    before = w.stored(segmentation, "B")[0]
    volume = w.addScan()
    writer.write(segmentation, "A", w.ball(), volume)
    assertWritten(w, w.ball(), volume, segmentation)
    np.testing.assert_array_equal(w.stored(segmentation, "B")[0], before)


def test_write_tells_whether_the_segment_is_the_mask_now(w, writer):
    volume, mask = w.addScan(), w.ball()
    segmentation = w.addSegmentation(volume)
    assert writer.write(segmentation, "A", mask, volume, OverwriteMode.STOP)
    assert not writer.write(segmentation, "B", mask, volume, OverwriteMode.STOP)
    assert writer.write(segmentation, "B", mask, volume, OverwriteMode.ALL)
    coarse = w.addSegmentation(w.addScan(np.zeros(w.SHAPE, np.int16), spacing_dhw=(3.0, 2.0, 2.0)))
    assert not writer.write(coarse, "A", mask, volume)


def test_what_two_segments_share_stays_in_both(w, writer):
    """A DICOM-SEG of another program has the tumour in the liver too: a click lost it there."""
    volume = w.addScan()
    segmentation = w.addSegmentation(volume, names=("Liver", "Tumour", "Kidney"))
    liver, tumour = w.ball(), w.ball(radius=(2, 2, 2))
    kidney = ~liver & w.ball(radius=(9, 9, 9))
    for name, mask in (("Liver", liver), ("Tumour", tumour), ("Kidney", kidney)):
        writer.write(segmentation, name, mask, volume)
    assert (liver & tumour).any()
    corrected = liver.copy()
    corrected[:, :, : liver.shape[2] // 2] = True  # into the kidney
    writer.write(segmentation, "Liver", corrected, volume, OverwriteMode.STOP)
    np.testing.assert_array_equal(writer.read(segmentation, "Liver", volume), corrected & ~kidney)
    np.testing.assert_array_equal(writer.read(segmentation, "Tumour", volume), tumour)
    # What the segment gave up and another one has is not taken again.
    writer.write(segmentation, "Liver", liver & ~tumour, volume, OverwriteMode.STOP)
    writer.write(segmentation, "Liver", liver, volume, OverwriteMode.STOP)
    np.testing.assert_array_equal(writer.read(segmentation, "Liver", volume), liver & ~tumour)


@pytest.mark.parametrize("isShared", [False, True])
def test_a_segment_grows_in_the_one_that_it_is_in(w, writer, isShared):
    """A GTV is in its PTV: no click could enlarge it, and small ones failed without a word."""
    volume = w.addScan()
    segmentation = w.addSegmentation(volume, names=("GTV", "PTV", "Cord"))
    gtv, ptv = w.ball(radius=(2, 2, 2)), w.ball()
    cord = ~ptv & w.ball(radius=(9, 9, 9))
    cord |= gtv & (np.arange(gtv.shape[2]) == 8)  # contours of neighbours share voxels
    for name, mask in (("GTV", gtv), ("PTV", ptv), ("Cord", cord)):
        writer.write(segmentation, name, mask, volume)
    if isShared:
        segmentation.GetSegmentation().CollapseBinaryLabelmaps(False)
    for name, mask in (("GTV", w.ball(radius=(8, 8, 8))), ("PTV", np.ones_like(ptv))):
        before = writer.read(segmentation, name, volume)
        writer.write(segmentation, name, mask, volume, OverwriteMode.STOP)
        expected = mask & (~cord | before)
        np.testing.assert_array_equal(writer.read(segmentation, name, volume), expected)


def test_a_neighbour_with_larger_voxels_is_not_counted_as_nested(w, writer):
    fine = w.addScan(np.zeros((20, 20, 20), np.int16), spacing_dhw=(1, 1, 1), origin=(0, 0, 0))
    coarse = w.addScan(np.zeros((10, 10, 10), np.int16), spacing_dhw=(2, 2, 2), origin=[0.5] * 3)
    segmentation = w.addSegmentation(coarse)
    large = np.zeros((10, 10, 10), dtype=bool)
    large[2:7, 2:6, 2:7] = True  # 100 voxels, 800 of the fine scan
    writer.write(segmentation, "B", large, coarse)
    segmentation.SetReferenceImageGeometryParameterFromVolumeNode(fine)
    neighbour, before = large.repeat(2, 0).repeat(2, 1).repeat(2, 2), np.zeros((20,) * 3, bool)
    before[4:14, 11:20, 8:14] = True
    assert np.count_nonzero(neighbour & before) == 60
    writer.write(segmentation, "A", before, fine)
    writer.write(segmentation, "A", np.ones_like(before), fine, OverwriteMode.STOP)
    np.testing.assert_array_equal(writer.read(segmentation, "A", fine), ~neighbour | before)
    np.testing.assert_array_equal(writer.read(segmentation, "B", fine), neighbour)


@pytest.mark.parametrize("axis", [0, 2])
def test_planar_volume(w, writer, axis):
    shape = [13, 14, 15]
    shape[axis] = 1
    volume = w.addScan(np.zeros(shape, np.int16), axes=w.turned(9))
    segmentation = w.addSegmentation(volume)
    mask = w.ball(shape, centre=[s // 2 for s in shape], radius=(4, 4, 4))
    writer.write(segmentation, "A", mask, volume)
    np.testing.assert_array_equal(writer.read(segmentation, "A", volume), mask)


def test_shrinking_and_emptying_a_segment(w, writer, volume, segmentation):
    writer.write(segmentation, "A", w.ball(), volume)
    small = w.ball(centre=(3, 4, 5), radius=(1, 1, 1))
    writer.write(segmentation, "A", small, volume)
    np.testing.assert_array_equal(writer.read(segmentation, "A", volume), small)
    for _ in range(2):
        writer.write(segmentation, "A", np.zeros(w.SHAPE, bool), volume)
        assert not writer.read(segmentation, "A", volume).any()
    writer.write(segmentation, "A", w.ball(), volume)
    np.testing.assert_array_equal(writer.read(segmentation, "A", volume), w.ball())


def sharedLayer(w: Any, volume: Any, segmentation: Any) -> dict[str, np.ndarray]:
    """Put three segments, side by side, into one layer; returns their masks."""
    labels = np.zeros(w.SHAPE, np.uint8)
    labels[2:9, 2:8, 2:8], labels[2:9, 8:15, 2:8], labels[2:9, 2:15, 8:18] = 1, 2, 3
    labelNode = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLabelMapVolumeNode")
    slicer.util.updateVolumeFromArray(labelNode, labels)
    labelNode.CopyOrientation(volume)
    logic = slicer.modules.segmentations.logic()
    ids = vtk.vtkStringArray()
    for name in "ABC":
        ids.InsertNextValue(name)
    logic.ImportLabelmapToSegmentationNode(labelNode, segmentation, ids)
    slicer.mrmlScene.RemoveNode(labelNode)
    assert segmentation.GetSegmentation().GetNumberOfLayers() == 1
    return {name: labels == number for number, name in enumerate("ABC", start=1)}


def test_writing_a_segment_of_a_shared_layer_touches_no_other(w, writer):
    volume = w.addScan(axes=w.turned(2))
    segmentation = w.addSegmentation(volume)
    masks = sharedLayer(w, volume, segmentation)
    new = w.ball()
    assert (new & masks["A"]).any()
    assert (new & masks["C"]).any()
    writer.write(segmentation, "B", new, volume)
    np.testing.assert_array_equal(writer.read(segmentation, "B", volume), new)
    for name in "AC":
        np.testing.assert_array_equal(writer.read(segmentation, name, volume), masks[name])
    # Nothing of it is left behind for a segment that gets its label there.
    segmentation.GetSegmentation().AddEmptySegment("D", "D")
    assert not writer.read(segmentation, "D", volume).any()


@pytest.mark.parametrize("isShared", [False, True])
def test_edits_by_hand_are_still_noticed_after_a_write(w, writer, isShared, volume, segmentation):
    if isShared:
        sharedLayer(w, volume, segmentation)
    writer.write(segmentation, "B", w.ball(), volume)
    seen: list[bool] = []
    event = slicer.vtkSegmentation.SourceRepresentationModified
    segmentation.AddObserver(event, lambda caller, event: seen.append(writer.isWriting))
    for name in "ABC":
        segmentation.GetBinaryLabelmapInternalRepresentation(name).Modified()
        assert seen.pop() is False


def test_neighbour_on_another_grid_keeps_every_voxel(w, writer):
    fine = w.addScan(np.zeros((20, 30, 30), np.int16), spacing_dhw=(1.1, 0.6, 0.6))
    segmentation = w.addSegmentation(fine)
    masks = {"A": w.ball((20, 30, 30)), "B": w.ball((20, 30, 30), (9, 20, 20))}
    for name, mask in masks.items():
        writer.write(segmentation, name, mask, fine)
    before = {name: w.stored(segmentation, name) for name in masks}
    volume = w.addScan()
    segmentation.SetReferenceImageGeometryParameterFromVolumeNode(volume)
    writer.write(segmentation, "A", w.ball(), volume)
    assertWritten(w, w.ball(), volume, segmentation)
    np.testing.assert_array_equal(w.stored(segmentation, "B")[0], before["B"][0])
    np.testing.assert_array_equal(w.stored(segmentation, "B")[1], before["B"][1])


@pytest.mark.parametrize("isShared", [False, True])
def test_surfaces_of_all_segments_stay_and_follow(w, writer, isShared, volume, segmentation):
    if isShared:
        sharedLayer(w, volume, segmentation)
    else:
        for name, z in (("A", 3), ("B", 8)):
            writer.write(segmentation, name, w.ball(centre=(z, 8, 10), radius=(2, 3, 3)), volume)
    segmentation.CreateClosedSurfaceRepresentation()

    def points(name: str) -> int:
        segment = segmentation.GetSegmentation().GetSegment(name)
        surface = segment.GetRepresentation("Closed surface")
        return surface.GetNumberOfPoints() if surface else -1

    before = {name: points(name) for name in "AB"}
    assert min(before.values()) > 0
    writer.write(segmentation, "A", w.ball(), volume)
    assert points("A") > 0
    assert points("A") != before["A"]
    assert points("B") == before["B"]
    writer.write(segmentation, "A", np.zeros(w.SHAPE, bool), volume)
    assert points("A") == 0
    assert points("B") == before["B"]


def test_observers_can_tell_writes_from_edits_and_see_the_final_voxels(
    w, writer, volume, segmentation
):
    seen = []

    def onModified(caller: Any, event: str) -> None:
        seen.append((writer.isWriting, int(writer.read(segmentation, "A", volume).sum())))

    event = slicer.vtkSegmentation.SourceRepresentationModified
    segmentation.AddObserver(event, onModified)
    mask = w.ball()
    writer.write(segmentation, "A", mask, volume)
    assert seen[-1] == (True, mask.sum())
    assert not writer.isWriting
    with pytest.raises(PumitError):
        writer.write(segmentation, "missing", mask, volume)
    assert not writer.isWriting


def test_segment_is_in_progress_once_written(w, writer, volume, segmentation):
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    segment = segmentation.GetSegmentation().GetSegment("A")
    assert logic.GetSegmentStatus(segment) == logic.NotStarted
    writer.write(segmentation, "A", w.ball(), volume)
    assert logic.GetSegmentStatus(segment) == logic.InProgress


def test_prepared_mask_is_written_as_the_mask_itself(w, writer, volume, segmentation):
    prepared = prepare(w.ball())
    assert prepared.voxels.size < w.ball().size
    assert prepared.voxels.flags.c_contiguous
    writer.write(segmentation, "A", prepared, volume)
    np.testing.assert_array_equal(writer.read(segmentation, "A", volume), w.ball())


def test_nothing_is_left_in_the_scene_but_what_the_segment_editor_makes(
    scene, w, writer, volume, segmentation
):
    before = {scene.GetNthNode(i).GetID() for i in range(scene.GetNumberOfNodes())}
    writer.write(segmentation, "A", w.ball(), volume)
    added = [scene.GetNthNode(i) for i in range(scene.GetNumberOfNodes())]
    added = [node for node in added if node.GetID() not in before]
    assert [node.GetSingletonTag() for node in added] in ([], ["SegmentEditor"])


def test_what_cannot_be_written_is_said_in_a_sentence(w, writer, volume, segmentation):
    with pytest.raises(PumitError, match="no longer there"):
        writer.write(segmentation, "missing", w.ball(), volume)
    with pytest.raises(PumitError, match="no segmentation"):
        writer.read(None, "A", volume)
    with pytest.raises(VolumeError, match="does not fit"):
        writer.write(segmentation, "A", np.zeros((2, 3, 4), bool), volume)
    with pytest.raises(VolumeError, match="bool"):
        writer.write(segmentation, "A", w.ball().astype(np.uint8), volume)
    empty = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")
    with pytest.raises(VolumeError, match="no voxels"):
        writer.write(segmentation, "A", w.ball(), empty)
    writer.write(segmentation, "A", w.ball(), volume)
    segmentation.CreateClosedSurfaceRepresentation()
    segmentation.GetSegmentation().SetSourceRepresentationName("Closed surface")
    for call in (writer.write, lambda *a: writer.read(a[0], a[1], a[3])):
        with pytest.raises(PumitError, match="surfaces"):
            call(segmentation, "A", w.ball(), volume)


def test_mask_on_a_far_finer_grid_is_refused_and_changes_nothing(w, writer):
    # Such as a scan's organ in the segmentation of a small surface. VTK would end the program.
    volume, fine = w.addScan(), w.addScan(spacing_dhw=(1e-3, 1e-3, 1e-3))
    segmentation = w.addSegmentation(fine)
    small = np.zeros(w.SHAPE, dtype=bool)
    small[2:5, 3:6, 4:7] = True
    writer.write(segmentation, "A", small, fine)
    with pytest.raises(PumitError, match="far smaller"):
        writer.write(segmentation, "A", w.ball(), volume)
    assert np.array_equal(writer.read(segmentation, "A", fine), small)


def test_slicer_joins_the_layers_of_segments_where_it_saves_them(
    w, writer, tmp_path, volume, segmentation
):
    masks = {name: w.ball(centre=(6, 8, x), radius=(3, 3, 2)) for name, x in (("A", 4), ("B", 14))}
    for name, mask in masks.items():
        writer.write(segmentation, name, mask, volume)
    assert segmentation.GetSegmentation().GetNumberOfLayers() == 3
    segmentation.AddDefaultStorageNode()
    segmentation.GetStorageNode().SetFileName(str(tmp_path / "saved.seg.nrrd"))
    assert segmentation.GetStorageNode().WriteData(segmentation)
    assert segmentation.GetSegmentation().GetNumberOfLayers() == 1
    for name, mask in masks.items():
        np.testing.assert_array_equal(writer.read(segmentation, name, volume), mask)


def heard(segmentationNode: Any, segmentID: str, change: Any) -> list[str]:
    """Names of a segmentation's events about one segment while something changes."""
    names = ("SourceRepresentationModified", "RepresentationModified", "SegmentModified")
    found: list[str] = []
    segmentation = segmentationNode.GetSegmentation()
    tags = []
    for name in names:

        @vtk.calldata_type(vtk.VTK_STRING)
        def note(_caller: Any, _event: Any, which: Any = None, name: str = name) -> None:
            assert which in (segmentID, None)
            found.append(name)

        tags.append(segmentation.AddObserver(getattr(slicer.vtkSegmentation, name), note))
    change()
    for tag in tags:
        segmentation.RemoveObserver(tag)
    return found


def test_a_mask_is_handed_over_as_it_is(w, writer, monkeypatch, volume, segmentation):
    """No pass of the Segment Editor's logic, and no voxel more than the mask's own box."""
    mask = w.ball()
    monkeypatch.setattr(writer, "_logic", None)
    prepared = prepare(mask)
    writer.write(segmentation, "A", prepared, volume)
    events = heard(segmentation, "A", lambda: writer.write(segmentation, "A", prepared, volume))
    once = ["RepresentationModified", "SegmentModified", "SourceRepresentationModified"]
    assert sorted(events) == once
    image = segmentation.GetSegmentation().GetSegment("A").GetRepresentation(w.LABELMAP)
    assert image.GetNumberOfPoints() == prepared.voxels.size
    writer.write(segmentation, "A", np.zeros_like(mask), volume)
    assert not writer.read(segmentation, "A", volume).any()


def test_what_is_painted_into_a_written_segment_is_noticed_and_stays_its_own(
    w, writer, volume, segmentation
):
    prepared = prepare(w.ball())
    writer.write(segmentation, "A", prepared, volume)
    image = segmentation.GetSegmentation().GetSegment("A").GetRepresentation(w.LABELMAP)
    before = prepared.voxels.copy()
    orientedImageArray(image)[...] = 0
    assert "SourceRepresentationModified" in heard(segmentation, "A", image.Modified)
    np.testing.assert_array_equal(prepared.voxels, before)
    assert not writer.read(segmentation, "A", volume).any()


def isColoured(view: Any, ras: np.ndarray) -> bool:
    """Whether a segment's colour is seen at a position, over a grey scan."""
    view.jumpTo(ras)
    view.render()
    x, y = view.rasToXy(ras)
    image = view.image()
    colours = image[image.shape[0] - 1 - round(y), round(x)].astype(int)
    return bool(colours.max() - colours.min() > 20)


def worldOf(grid: np.ndarray, index_dhw: tuple[int, int, int]) -> np.ndarray:
    return (grid @ [*index_dhw[::-1], 1.0])[:3]


def test_slice_view_shows_each_write(sliceView, writer):
    volume = w.addScan(np.full(w.SHAPE, 100, np.int16))
    segmentation = w.addSegmentation(volume, names=("A", "B"))
    for name, colour in (("A", (1, 0, 0)), ("B", (0, 0, 1))):
        segmentation.GetSegmentation().GetSegment(name).SetColor(*colour)
    view = sliceView("Red", "Axial")
    view.show(volume)
    left, right = (6, 8, 4), (6, 8, 16)

    def isSeen(index_dhw: tuple[int, int, int]) -> bool:
        return isColoured(view, worldOf(w.gridOf(volume), index_dhw))

    assert not isSeen(left)
    for _ in range(2):
        writer.write(segmentation, "A", w.ball(centre=left, radius=(3, 3, 3)), volume)
        assert isSeen(left)
        assert not isSeen(right)
        writer.write(segmentation, "A", w.ball(centre=right, radius=(3, 3, 3)), volume)
        assert not isSeen(left)
        assert isSeen(right)
    writer.write(segmentation, "B", w.ball(centre=left, radius=(3, 3, 3)), volume)
    assert isSeen(left)
    writer.write(segmentation, "A", np.zeros(w.SHAPE, bool), volume)
    writer.write(segmentation, "B", np.zeros(w.SHAPE, bool), volume)
    assert not isSeen(left)
    assert not isSeen(right)


@pytest.mark.parametrize("moved", ["volume", "segmentation", "both"])
def test_slice_view_shows_the_mask_over_the_voxels_it_means(sliceView, writer, moved):
    volume = w.addScan(np.full(w.SHAPE, 100, np.int16))
    segmentation = w.addSegmentation(volume, names=("A",))
    segmentation.GetSegmentation().GetSegment("A").SetColor(1, 0, 0)
    shift = w.rigid((12, -9, 15), w.turned(2))
    transform = w.addMatrixTransform(shift)
    if moved != "segmentation":
        w.moveUnder(volume, transform)
    if moved != "volume":
        w.moveUnder(segmentation, transform)
    centre = (6, 8, 10)
    writer.write(segmentation, "A", w.ball(centre=centre, radius=(3, 4, 4)), volume)
    view = sliceView("Red", "Axial")
    view.show(volume)

    grid = w.gridOf(volume) if moved == "segmentation" else shift @ w.gridOf(volume)
    assert isColoured(view, worldOf(grid, centre))
    for outside in ((6, 8, 15), (6, 13, 10), (10, 8, 10)):
        assert not isColoured(view, worldOf(grid, outside))


@pytest.fixture
def grid(scene: Any) -> Any:
    return labelmap_grid


def addWave() -> Any:
    """A transform that bends between a box's corners and is straight at them."""
    moves = [(0, 12 * np.sin(x / 3.8), 0) for x in range(-100, 101, 5)] * 25
    return w.addGridTransform((41, 5, 5), (-100, -100, -100), (5, 50, 50), moves)


def affine(seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    matrix = np.eye(4)
    matrix[:3, :3] = np.linalg.qr(random.normal(size=(3, 3)))[0] * random.uniform(0.5, 3, 3)
    matrix[:3, 3] = random.uniform(-20, 20, 3)
    return matrix


@pytest.mark.parametrize("isBent", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_covering_box_holds_every_point_of_a_box(grid, seed, isBent):
    box = grid.Box((2, 3, 4), (14, 25, 38))
    nodes = (addWave(), None) if isBent else (None, None)
    way = grid.GridMap(affine(seed), affine(seed + 10), *nodes)
    covering = way.covering(box)
    i, i2, j, j2, k, k2 = box.extent
    low, high = np.array([i, j, k]) - 0.5, np.array([i2, j2, k2]) + 0.5
    points = np.random.default_rng(seed).uniform(low, high, (3000, 3))
    found = np.array([way.transform.TransformPoint(p) for p in points])[:, ::-1]
    assert (found >= np.array(covering.start) - 0.5).all()
    assert (found <= np.array(covering.stop) - 0.5).all()
    if not isBent:  # and no more than that
        slack = np.array(covering.shape) - np.ptp(found, axis=0)
        assert (slack < np.ptp(found, axis=0) * 0.5 + 3).all()


def test_grids_that_differ_by_whole_voxels_need_no_resampling(grid):
    matrix = affine(1)
    moved = matrix.copy()
    moved[:3, 3] += matrix[:3, :3] @ [3, -2, 5]
    box = grid.Box((10, 10, 10), (20, 21, 22))
    assert grid.GridMap(matrix, moved, None, None).shiftOver(box) == (-5, 2, -3)
    moved[:3, 3] += matrix[:3, :3] @ [0, 0.1, 0]
    assert grid.GridMap(matrix, moved, None, None).shiftOver(box) is None
    # A step that is off by little adds up along the way.
    stretched = matrix.copy()
    stretched[:3, 0] *= 1.0005
    assert grid.GridMap(matrix, stretched, None, None).shiftOver(box) is None
