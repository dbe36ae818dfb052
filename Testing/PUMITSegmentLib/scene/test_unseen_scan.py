"""What is done in no view, and answers that arrive later, change no scan that is not shown."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from found_structures import found
from panel_scene import opened
from PUMITSegmentLib.prompts.tag import PromptKind
from PUMITSegmentLib.scene.shown_scan import isSeen, shownScans
from two_patients import FRAME, OTHER_FRAME, PLACE, A, B, TwoViews, nodes, stateDicom

patients = opened(TwoViews)


def byUpdate(patients: TwoViews) -> None:
    patients.logic.update()


def byScript(patients: TwoViews) -> None:
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    points.AddControlPoint(*PLACE)


def byMovedPoint(patients: TwoViews) -> None:
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    points.SetNthControlPointPosition(0, *PLACE)


def byClone(patients: TwoViews) -> None:
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    clone = slicer.mrmlScene.CreateNodeByClass("vtkMRMLMarkupsFiducialNode")
    clone.Copy(points)
    slicer.mrmlScene.AddNode(clone)
    clone.UnRegister(None)


def byDeletion(patients: TwoViews) -> None:
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    points.RemoveAllControlPoints()


def byRemovedNode(patients: TwoViews) -> None:
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    slicer.mrmlScene.RemoveNode(points)


def byName(patients: TwoViews) -> None:
    patients.panel.segmentSection._termEdit._assign("spleen")
    assert patients.segment().GetName() == "Liver"


def byFind(patients: TwoViews) -> None:
    patients.logic.addFound(found(B))


def byReset(patients: TwoViews) -> None:
    patients.logic.reset(patients.liver)


def byUndo(patients: TwoViews) -> None:
    patients.logic.undo()


def byRemoval(patients: TwoViews) -> None:
    patients.logic.removeSegment(patients.liver)


def byCleanUp(patients: TwoViews) -> None:
    from PUMITSegmentLib.panel.edit_by_hand import CleanUp, cleanUp

    cleanUp(patients.logic.selection, CleanUp.SMOOTH)


def byNew(patients: TwoViews) -> None:
    patients.logic.newSegment()


def byPoint(patients: TwoViews) -> None:
    patients.logic.startPlacing(PromptKind.POINT)


WAYS = (
    byUpdate,
    byScript,
    byMovedPoint,
    byDeletion,
    byFind,
    byReset,
    byUndo,
    byRemoval,
    byRemovedNode,
    byName,
    byCleanUp,
    byNew,
    byPoint,
    byClone,  # the last one: it leaves a list of points
)


def test_nothing_else_changes_a_scan_that_no_view_shows(patients):
    patients.logic.stopPlacing()
    count = len(patients.worker.requests)
    patients.loadPatient()
    for way in WAYS:
        patients.logic.status.waiting("Before")
        way(patients)
        assert len(patients.worker.requests) == count, way
        assert patients.isUntouched(), way
        assert patients.first.GetSegmentation().GetNumberOfSegments() == 1, way
        words = "These views show Second patient; PUMIT works on CT abdomen."
        assert patients.status == words, way
        assert not patients.logic.isPlacing, way


def test_an_answer_that_arrives_while_another_patient_is_shown_is_not_written(patients):
    patients.view.clickAt(PLACE)
    patients.loadPatient()
    patients.answer(B)
    assert np.array_equal(patients.logic.maskOf(patients.liver), A)
    assert patients.choices() == ["Work on Second patient", "Show CT abdomen"]
    patients.press(patients.ui.secondChoiceButton)
    patients.answer(B)
    assert np.array_equal(patients.logic.maskOf(patients.liver), B)


def test_an_answer_for_another_segmentation_of_the_scan_is_not_written(patients):
    asked = patients.logic.guard.asked()
    other = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Other")
    patients.logic.parameters.segmentation = other
    written: list[bool] = []
    assert not patients.logic.guard.allowsAnswer(asked, lambda: written.append(True))
    assert other.GetSegmentation().GetNumberOfSegments() == 0
    assert written == []
    assert "segmentation has changed" in patients.status


def test_a_segmentation_of_another_patient_is_not_even_asked_about(patients):
    questions: list[str] = []
    patients.logic.permission.confirm = lambda question: bool(questions.append(question)) or True
    stateDicom(patients.volumeNode, "P-7710", FRAME)
    second = patients.addPatient()
    stateDicom(second, "P-7711", OTHER_FRAME)
    patients.choose(second)
    patients.ui.segmentationSelector.setCurrentNode(patients.first)
    patients.press(patients.ui.pointButton)
    assert not patients.logic.isPlacing
    assert questions == []
    assert "another patient" in patients.status


def test_labels_of_another_patient_are_asked_about(patients):
    questions: list[str] = []
    patients.logic.permission.confirm = lambda question: bool(questions.append(question))
    stateDicom(patients.volumeNode, "P-7710", FRAME)
    labels = slicer.util.addVolumeFromArray(
        B.astype(np.uint8), name="Labels", nodeClassName="vtkMRMLLabelMapVolumeNode"
    )
    stateDicom(labels, "P-7711", OTHER_FRAME)
    patients.panel.segmentSection._onStart(labels)
    assert patients.logic.segmentationNode is patients.first
    assert len(nodes("vtkMRMLSegmentationNode")) == 1
    assert "P-7711 for Labels" in questions[0]
    patients.logic.permission.confirm = lambda question: True
    patients.panel.segmentSection._onStart(labels)
    assert patients.logic.segmentationNode is not patients.first


def scan(name: str, value: int) -> Any:
    node = slicer.util.addVolumeFromArray(np.full((10, 20, 20), value, np.int16), name=name)
    node.CreateDefaultDisplayNodes()
    node.GetDisplayNode().SetAutoWindowLevel(False)
    node.GetDisplayNode().SetWindowLevel(100, 50)
    return node


@pytest.mark.parametrize("mode", ["Alpha", "ReverseAlpha"])
@pytest.mark.parametrize("opacity", [0.0, 0.5, 1.0])
def test_layers_are_seen_as_they_are_drawn(sliceView, mode, opacity):
    view, white, black = sliceView("Red"), scan("White", 100), scan("Black", 0)
    view.show(white)
    layers = view.compositeNode
    layers.SetForegroundVolumeID(black.GetID())
    layers.SetForegroundOpacity(opacity)
    layers.SetCompositing(getattr(layers, mode))
    view._onLogicModified()
    share = view.image()[250, 250, 0] / 255  # of the white scan
    assert isSeen(white, view.sliceNode) == (share > 0.05)
    assert isSeen(black, view.sliceNode) == (share < 0.95)
    assert len(shownScans(view.sliceNode)) == 1 + (0 < share < 1)


def test_a_further_layer_hides_what_lies_below_it(sliceView):
    view, white, black = sliceView("Red"), scan("White", 100), scan("Black", 0)
    view.show(white)
    layers = view.compositeNode
    if not hasattr(layers, "GetNumberOfAdditionalLayers"):
        pytest.skip("this Slicer has no further layers")
    layers.SetNthLayerVolumeID(layers.Layer_Last, black.GetID())
    layers.SetNthLayerOpacity(layers.Layer_Last, 1.0)
    view._onLogicModified()
    assert view.image()[250, 250, 0] == 0
    assert shownScans(view.sliceNode) == [black]


LIBRARY = Path(__file__).resolve().parents[3] / "PUMITSegment" / "PUMITSegmentLib"
# Methods of a `SegmentBook`, and functions, that change segments.
METHODS = {"answer", "exclude", "edit", "empty", "reset", "addFound", "undo", "redo"}
METHODS |= {"removeSegment"}
FUNCTIONS = {"newSegment", "assignTerm", "segmentationFromLabelMap"}
GUARDS = {"guard", "mayWrite", "_ensureBook"}
# The writer itself is called where masks are kept, for structures that were found, and for a scan
# that another module gives to be checked: its segmentation is made with it, and not seen yet.
WRITERS = {"masks/book.py", "automatic.py", "reviewing.py"}
UNSEEN = {"reviewing.py: _add"}


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function of the library, with the file it is in."""
    for path in sorted(LIBRARY.rglob("*.py")):
        name = path.relative_to(LIBRARY).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield name, node


def names(function: ast.FunctionDef) -> set[str]:
    """Every name and attribute in a function."""
    found = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    return found | {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}


def changes(function: ast.FunctionDef) -> set[str]:
    """Return the calls of a function that change segments: of `book`, or a function by its name."""
    found = set()
    for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
        called = call.func
        if isinstance(called, ast.Attribute) and ast.unparse(called.value).endswith("book"):
            found |= {called.attr} & METHODS
        elif isinstance(called, ast.Name):
            found |= {called.id} & FUNCTIONS
    return found


def test_every_function_that_changes_segments_asks_the_guard():
    changing = [(file, each) for file, each in functions() if changes(each)]
    assert len(changing) >= 9
    unguarded = {f"{file}: {each.name}" for file, each in changing if not names(each) & GUARDS}
    assert unguarded == UNSEEN


def test_voxels_are_written_in_three_places():
    files = {
        file
        for file, function in functions()
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func).lower().endswith("writer.write")
    }
    assert files == WRITERS
