"""Settings of the Segment Editor under "Masking" hold, and other segments change only as chosen."""

from typing import Any

import numpy as np
import pytest
import slicer
import vtk
import writing_scene as w
from daily_panel import A
from panel_scene import Panel
from pumit.errors import PumitError
from pumit.evaluation.metrics import dice
from pumit.prompts import MaskPrompt
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.writer import OverwriteMode, SegmentWriter
from PUMITSlicerLib.mrml import orientedImage

MODES = [
    "EditAllowedEverywhere",
    "EditAllowedInsideAllSegments",
    "EditAllowedInsideVisibleSegments",
    "EditAllowedOutsideAllSegments",
    "EditAllowedOutsideVisibleSegments",
    "EditAllowedInsideSingleSegment",
]
RANGE = (85.0, 130.0)


class Edited:
    """An oblique scan, and segments A (to be written), B and C (hidden), that overlap.

    Attributes:
        masks: What each segment holds, on the scan's grid.
        new: What is to be written into A.
    """

    def __init__(self, seed: int = 0) -> None:
        self.volume = w.addScan(axes=w.turned(seed, isLeftHanded=bool(seed % 2)))
        self.segmentation = w.addSegmentation(self.volume)
        self.writer = SegmentWriter()
        self.masks = {
            "A": w.ball(centre=(5, 6, 6), radius=(4, 5, 5)),
            "B": w.ball(centre=(6, 12, 12), radius=(5, 4, 5)),
            "C": w.ball(centre=(4, 9, 14), radius=(3, 6, 6)),
        }
        for name, mask in self.masks.items():
            self.writer.write(self.segmentation, name, mask, self.volume)
        self.segmentation.GetDisplayNode().SetSegmentVisibility("C", False)
        self.new = w.ball(centre=(6, 9, 10), radius=(4, 6, 6))
        self.node = segmentEditorNode()
        self.modes = slicer.vtkMRMLSegmentationNode
        self.intensities = slicer.util.arrayFromVolume(self.volume)

    def restrict(self, mode: str, intensities: tuple[float, float] | None = None) -> np.ndarray:
        """Set the Segment Editor's masking; returns where A may change, by hand."""
        self.node.SetMaskMode(getattr(self.modes, mode))
        self.node.SetMaskSegmentID("B")
        a, b, c = (self.masks[name] for name in "ABC")
        editable = {
            "EditAllowedEverywhere": np.ones_like(a),
            "EditAllowedInsideAllSegments": a | b | c,
            "EditAllowedInsideVisibleSegments": a | b,
            "EditAllowedOutsideAllSegments": ~(b | c),
            "EditAllowedOutsideVisibleSegments": ~b,
            "EditAllowedInsideSingleSegment": b,
        }[mode]
        self.node.SetSourceVolumeIntensityMask(intensities is not None)
        if intensities is not None:
            self.node.SetSourceVolumeIntensityMaskRange(*intensities)
            editable = (
                editable
                & (self.intensities >= intensities[0])
                & (self.intensities <= intensities[1])
            )
        return editable

    def write(self, overwrite: str = "NONE", segmentID: str = "A") -> None:
        self.writer.write(
            self.segmentation, segmentID, self.new, self.volume, OverwriteMode[overwrite]
        )

    def read(self, name: str) -> np.ndarray:
        return self.writer.read(self.segmentation, name, self.volume)


@pytest.fixture
def edited(scene: Any) -> Any:
    return Edited()


@pytest.mark.parametrize("intensities", [None, RANGE], ids=["all", "range"])
@pytest.mark.parametrize("mode", MODES)
def test_segment_changes_inside_the_editable_area_alone_as_in_the_segment_editor(
    scene, edited, mode, intensities
):
    other = Edited()
    editable = edited.restrict(mode, intensities)
    edited.write()
    ours = edited.read("A")
    expected = (edited.new & editable) | (edited.masks["A"] & ~editable)
    np.testing.assert_array_equal(ours, expected)
    for name in "BC":
        np.testing.assert_array_equal(edited.read(name), edited.masks[name])

    # The same by Slicer alone, with the whole volume as the modifier.
    node = scene.AddNewNodeByClass("vtkMRMLSegmentEditorNode")
    node.Copy(edited.node)
    node.SetAndObserveSegmentationNode(other.segmentation)
    node.SetAndObserveSourceVolumeNode(other.volume)
    node.SetSelectedSegmentID("A")
    node.SetOverwriteMode(node.OverwriteNone)
    logic = slicer.vtkSlicerSegmentEditorLogic()
    logic.SetMRMLScene(scene)
    logic.SetSegmentEditorNode(node)
    modifier = orientedImage(other.new, w.gridOf(other.volume))
    set_ = logic.ModificationModeSet
    logic.ModifySegmentByLabelmap(other.segmentation, "A", modifier, set_, False, False)
    np.testing.assert_array_equal(ours, other.read("A"))


@pytest.mark.parametrize("isShared", [False, True])
@pytest.mark.parametrize("overwrite", ["NONE", "VISIBLE", "ALL"])
def test_only_those_give_way_that_are_requested_to(scene, overwrite, isShared):
    edited = Edited(seed=1)  # left-handed
    if isShared:  # B and C in one layer
        edited.masks["C"] &= ~edited.masks["B"]
        edited.writer.write(edited.segmentation, "C", edited.masks["C"], edited.volume)
        edited.segmentation.GetSegmentation().CollapseBinaryLabelmaps(False)
        assert edited.segmentation.GetSegmentation().GetNumberOfLayers() == 2
    edited.write(overwrite)
    np.testing.assert_array_equal(edited.read("A"), edited.new)
    for name, giving in (("B", ("VISIBLE", "ALL")), ("C", ("ALL",))):
        before = edited.masks[name]
        assert (before & edited.new).any()
        expected = before & ~edited.new if overwrite in giving else before
        np.testing.assert_array_equal(edited.read(name), expected)


@pytest.mark.parametrize("isShared", [False, True])
def test_a_segment_stops_at_all_others(scene, isShared):
    edited = Edited()
    if isShared:
        edited.segmentation.GetSegmentation().CollapseBinaryLabelmaps(False)
    edited.write("STOP")
    others = (edited.masks["B"] | edited.masks["C"]) & ~edited.masks["A"]
    np.testing.assert_array_equal(edited.read("A"), edited.new & ~others)
    for name in "BC":
        np.testing.assert_array_equal(edited.read(name), edited.masks[name])


@pytest.mark.parametrize("overwrite", ["VISIBLE", "ALL"])
def test_nothing_is_taken_from_others_where_the_segment_may_not_change(edited, overwrite):
    # The segment and its neighbour overlap outside the editable area.
    edited.masks["B"] |= edited.masks["A"]
    edited.writer.write(edited.segmentation, "B", edited.masks["B"], edited.volume)
    editable = edited.restrict("EditAllowedEverywhere", RANGE)
    edited.write(overwrite)
    expected = edited.masks["B"] & ~(edited.new & editable)
    np.testing.assert_array_equal(edited.read("B"), expected)


def test_segments_overlap_unless_asked_whatever_the_segment_editor_has(edited):
    for mode in (edited.node.OverwriteAllSegments, edited.node.OverwriteVisibleSegments):
        edited.node.SetOverwriteMode(mode)
        edited.write()
        for name in "BC":
            np.testing.assert_array_equal(edited.read(name), edited.masks[name])
        assert edited.node.GetOverwriteMode() == mode


def test_segment_editors_node_is_only_read(edited):
    edited.restrict("EditAllowedInsideSingleSegment", RANGE)
    edited.node.SetSelectedSegmentID("C")
    edited.node.SetActiveEffectName("Paint")
    time = edited.node.GetMTime()
    edited.write("ALL")
    assert edited.node.GetMTime() == time
    assert edited.node.GetSelectedSegmentID() == "C"
    assert edited.node.GetSegmentationNode() is None


def test_intensities_are_taken_where_voxels_lie_in_the_world(scene):
    """Volume and segmentation on different grids, and under different transforms."""
    edited = Edited()
    low = np.broadcast_to(np.arange(w.SHAPE[2]) < 11, w.SHAPE)
    edited.intensities[...] = np.where(low, 0, 1000)  # half of the scan
    edited.volume.GetImageData().Modified()
    w.moveUnder(edited.volume, w.addMatrixTransform(w.affine(5)))
    edited.masks["A"][...] = False
    edited.writer.write(edited.segmentation, "A", edited.masks["A"], edited.volume)
    edited.node.SetSourceVolumeIntensityMask(True)
    edited.node.SetSourceVolumeIntensityMaskRange(400, 2000)
    edited.write()
    found, matrix = w.stored(edited.segmentation, "A")
    nodes = (edited.volume, edited.segmentation, found.shape, matrix)
    all_ = w.expectedInScene(edited.new, *nodes)
    allowed = w.expectedInScene(edited.new & ~low, *nodes)
    assert (found & ~all_).sum() == 0
    # Interpolated intensities shift the border by part of a voxel.
    assert (found ^ allowed).sum() < 0.15 * allowed.sum()


def test_colour_volumes_first_component_counts(scene):
    array = np.random.default_rng(1).integers(0, 255, (*w.SHAPE, 3)).astype(np.uint8)
    volume = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLVectorVolumeNode")
    slicer.util.updateVolumeFromArray(volume, array)
    segmentation = w.addSegmentation(volume)
    segmentEditorNode().SetSourceVolumeIntensityMask(True)
    segmentEditorNode().SetSourceVolumeIntensityMaskRange(100, 255)
    writer = SegmentWriter()
    writer.write(segmentation, "A", w.ball(), volume)
    expected = w.ball() & (array[..., 0] >= 100)
    np.testing.assert_array_equal(writer.read(segmentation, "A", volume), expected)


@pytest.mark.parametrize("maskSegmentID", ["missing", "", None])
def test_mask_segment_that_is_not_there_is_said(edited, maskSegmentID):
    edited.restrict("EditAllowedInsideSingleSegment")
    edited.node.SetMaskSegmentID(maskSegmentID)
    with pytest.raises(PumitError, match="Masking"):
        edited.write()
    np.testing.assert_array_equal(edited.read("A"), edited.masks["A"])


def test_mask_segment_of_another_segmentation_does_not_count(edited):
    edited.restrict("EditAllowedInsideSingleSegment")
    edited.node.SetAndObserveSegmentationNode(w.addSegmentation(edited.volume))
    with pytest.raises(PumitError, match="Masking"):
        edited.write()


def test_segment_editors_node_is_made_as_slicer_makes_it(scene):
    node = segmentEditorNode()
    assert node.GetSingletonTag() == "SegmentEditor"
    assert node.GetHideFromEditors()
    assert segmentEditorNode() is node
    assert scene.GetSingletonNode("SegmentEditor", "vtkMRMLSegmentEditorNode") is node


@pytest.fixture
def dialog(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Questions, and what is answered."""
    return {"questions": [], "answer": True}


@pytest.fixture
def loaded(panel: Panel, dialog: dict[str, Any]) -> Panel:
    """The panel on a scan, with a segmentation of surfaces as an RTSTRUCT becomes one."""
    panel.load()
    node = w.addSegmentation(panel.volumeNode, (), "Contours")
    panel.liver = node.GetSegmentation().AddEmptySegment("", "Liver")
    slicer.util.updateSegmentBinaryLabelmapFromArray(
        A.astype(np.uint8), node, panel.liver, panel.volumeNode
    )
    node.CreateClosedSurfaceRepresentation()
    node.GetSegmentation().SetSourceRepresentationName("Closed surface")
    node.GetSegmentation().RemoveRepresentation("Binary labelmap")

    def confirm(question: str) -> bool:
        dialog["questions"].append(question)
        return bool(dialog["answer"])

    panel.logic.permission.confirm = confirm
    panel.logic.parameters.segmentation = node
    panel.process()
    return panel


def test_surfaces_are_converted_after_a_question_and_clicks_correct_them(loaded, dialog):
    assert dialog["questions"] == []
    assert loaded.logic.segmentID == loaded.liver
    loaded.press(loaded.ui.pointButton)
    (question,) = dialog["questions"]
    assert '"Contours"' in question
    assert '"CT abdomen"' in question
    assert loaded.ui.pointButton.checked
    assert dice(loaded.mask(loaded.liver), A) > 0.9
    loaded.click()
    prior = loaded.worker.requests[-1].prompts[0]
    assert isinstance(prior, MaskPrompt)
    assert dice(prior.mask, A) > 0.9
    loaded.answer(A)
    assert np.array_equal(loaded.mask(loaded.liver), A)


def test_a_no_leaves_surfaces_as_they_are(loaded, dialog):
    dialog["answer"] = False
    loaded.press(loaded.ui.pointButton)
    assert not loaded.ui.pointButton.checked
    assert "made of surfaces or contours" in loaded.status
    source = loaded.logic.segmentationNode.GetSegmentation().GetSourceRepresentationName()
    assert source == "Closed surface"


def contourNode(panel: Panel, squares: dict[str, list[tuple[float, float, float, float]]]) -> Any:
    """A segmentation of planar contours as an RTSTRUCT becomes one: squares on three slices.

    Each square is (from, to, first slice, distance of slices), RAS mm; of two the second is a hole.
    """
    node = w.addSegmentation(panel.volumeNode, (), "RT")
    segmentation = node.GetSegmentation()
    segmentation.SetSourceRepresentationName("Planar contour")
    for name, each in squares.items():
        contours, points, cells = vtk.vtkPolyData(), vtk.vtkPoints(), vtk.vtkCellArray()
        for low, high, first, step in each:
            for number in range(3):
                z = first + number * step
                corners = [(low, low), (high, low), (high, high), (low, high)]
                ids = [points.InsertNextPoint(x, y, z) for x, y in corners]
                cells.InsertNextCell(5)
                for corner in [*ids, ids[0]]:
                    cells.InsertCellPoint(corner)
        contours.SetPoints(points)
        contours.SetLines(cells)
        segment = slicer.vtkSegment()
        segment.SetName(name)
        segment.AddRepresentation("Planar contour", contours)
        segmentation.AddSegment(segment, name)
    panel.logic.parameters.segmentation = node
    panel.process()
    return node


def test_contours_of_an_rtstruct_are_a_start_that_clicks_correct(panel, dialog):
    panel.load()
    panel.logic.permission.confirm = lambda question: dialog["questions"].append(question) or True
    contourNode(panel, {"GTV": [(4.6, 11.4, 5, 1), (6.6, 8.4, 5, 1)], "Cord": [(1.6, 2.4, 5, 1)]})
    panel.press(panel.ui.pointButton)
    (question,) = dialog["questions"]
    assert "surfaces or contours" in question
    expected = np.zeros_like(A)
    expected[5:8, 5:12, 5:12] = True
    expected[5:8, 7:9, 7:9] = False  # a contour within another is a hole
    np.testing.assert_array_equal(panel.mask("GTV"), expected)
    assert panel.mask("Cord").sum() == 3
    panel.click((9, 9, 6))
    prior = panel.worker.requests[-1].prompts[0]
    assert isinstance(prior, MaskPrompt)
    np.testing.assert_array_equal(prior.mask, expected)
    panel.answer(A)
    np.testing.assert_array_equal(panel.mask("GTV"), A)
    panel.press(panel.ui.undoButton)
    np.testing.assert_array_equal(panel.mask("GTV"), expected)


def test_contours_of_another_scan_are_refused_and_stay(panel):
    panel.load()
    panel.logic.permission.confirm = lambda question: True
    node = contourNode(panel, {"GTV": [(400.0, 410.0, 300, 1)]})
    panel.press(panel.ui.pointButton)
    assert panel.status == (
        "No contour of RT encloses a voxel of the scan; it was probably drawn on another scan."
    )
    assert not panel.ui.pointButton.checked
    segmentation = node.GetSegmentation()
    assert segmentation.GetSourceRepresentationName() == "Planar contour"
    assert segmentation.GetSegment("GTV").GetRepresentation("Planar contour") is not None
    assert not segmentation.ContainsRepresentation("Binary labelmap")


def starts(panel: Panel) -> list[Any]:
    """Return the label maps that the menu of New offers to start from."""
    menu = panel.ui.newSegmentButton.menu()
    menu.aboutToShow.emit()
    return [action for action in menu.actions() if "label map" in action.text]


def addLabels(array: np.ndarray, name: str) -> None:
    labels = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLabelMapVolumeNode", name)
    slicer.util.updateVolumeFromArray(labels, array.astype(np.uint8))


def test_a_label_map_is_a_start_that_clicks_correct(panel):
    panel.load()
    assert [action.enabled for action in starts(panel)] == [False]
    addLabels(A, "Labels")
    (action,) = starts(panel)
    assert action.text == "From the label map Labels"
    action.trigger()
    panel.process()
    (liver,) = panel.logic.segmentationNode.GetSegmentation().GetSegmentIDs()
    assert panel.logic.segmentID == liver
    assert np.array_equal(panel.mask(liver), A)
    panel.click()
    prior = panel.worker.requests[-1].prompts[0]
    assert isinstance(prior, MaskPrompt)
    assert np.array_equal(prior.mask, A)


def test_an_empty_label_map_is_no_start(panel):
    panel.load()
    addLabels(np.zeros_like(A), "Nothing")
    starts(panel)[0].trigger()
    assert "Nothing" in panel.status
    assert panel.logic.segmentationNode is None
