"""Surfaces, contours and label maps are starts that clicks correct."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import slicer
import vtk
from daily_panel import A
from panel_scene import Panel
from pumit.evaluation.metrics import dice
from pumit.prompts import MaskPrompt


@pytest.fixture
def dialog(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Questions, and what is answered."""
    return {"questions": [], "answer": True}


@pytest.fixture
def loaded(panel: Panel, dialog: dict[str, Any]) -> Panel:
    """The panel on a scan, with a segmentation of surfaces as an RTSTRUCT becomes one."""
    panel.load()
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Contours")
    node.CreateDefaultDisplayNodes()
    node.SetReferenceImageGeometryParameterFromVolumeNode(panel.volumeNode)
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


def test_surfaces_are_converted_after_a_question_and_clicks_correct_them(
    loaded: Panel, dialog: dict[str, Any]
) -> None:
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


def test_a_no_leaves_surfaces_as_they_are(loaded: Panel, dialog: dict[str, Any]) -> None:
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
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "RT")
    node.CreateDefaultDisplayNodes()
    node.SetReferenceImageGeometryParameterFromVolumeNode(panel.volumeNode)
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


def test_contours_of_an_rtstruct_are_a_start_that_clicks_correct(
    panel: Panel, dialog: dict[str, Any]
) -> None:
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


def test_contours_of_another_scan_are_refused_and_stay(panel: Panel) -> None:
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
    """What the menu of New offers to start from."""
    menu = panel.ui.newSegmentButton.menu()
    menu.aboutToShow.emit()
    return [action for action in menu.actions() if "label map" in action.text]


def addLabels(array: np.ndarray, name: str) -> None:
    labels = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLabelMapVolumeNode", name)
    slicer.util.updateVolumeFromArray(labels, array.astype(np.uint8))


def test_a_label_map_is_a_start_that_clicks_correct(panel: Panel) -> None:
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


def test_an_empty_label_map_is_no_start(panel: Panel) -> None:
    panel.load()
    addLabels(np.zeros_like(A), "Nothing")
    starts(panel)[0].trigger()
    assert "Nothing" in panel.status
    assert panel.logic.segmentationNode is None
