"""What is done in no view, and answers that arrive later, change no scan that is not shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import slicer
from found_structures import found
from PUMITSegmentLib.panel.edit_by_hand import CleanUp
from PUMITSegmentLib.prompts.tag import PromptKind
from two_patients import FRAME, OTHER_FRAME, PLACE, A, B, TwoViews, nodes, stateDicom


@pytest.fixture
def patients(loadModule: Any, sliceView: Any) -> Iterator[TwoViews]:
    made = TwoViews(loadModule, sliceView)
    yield made
    made.close()


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
    from PUMITSegmentLib.panel.edit_by_hand import cleanUp

    cleanUp(patients.logic.selection, CleanUp.SMOOTH)


def byNew(patients: TwoViews) -> None:
    patients.logic.newSegment()


def byPoint(patients: TwoViews) -> None:
    patients.logic.startPlacing(PromptKind.POINT)


WAYS = (
    byUpdate,
    byScript,
    byMovedPoint,
    byClone,
    byDeletion,
    byFind,
    byReset,
    byUndo,
    byRemoval,
    byRemovedNode,
    byName,
)


@pytest.mark.parametrize("way", [*WAYS, byCleanUp, byNew, byPoint])
def test_nothing_else_changes_a_scan_that_no_view_shows(
    patients: TwoViews, way: Callable[[TwoViews], None]
) -> None:
    patients.logic.stopPlacing()
    count = len(patients.worker.requests)
    patients.loadPatient()
    patients.logic.status.waiting("Before")
    way(patients)
    assert len(patients.worker.requests) == count
    assert patients.isUntouched()
    assert patients.first.GetSegmentation().GetNumberOfSegments() == 1
    assert patients.status == "These views show Second patient; PUMIT works on CT abdomen."
    assert not patients.logic.isPlacing


def test_what_was_refused_is_done_once_the_scan_is_shown(patients: TwoViews) -> None:
    patients.loadPatient()
    byFind(patients)
    patients.press(patients.ui.secondChoiceButton)
    assert patients.first.GetSegmentation().GetNumberOfSegments() == 2


def test_an_answer_that_arrives_while_another_patient_is_shown_is_not_written(
    patients: TwoViews,
) -> None:
    patients.view.clickAt(PLACE)
    patients.loadPatient()
    patients.answer(B)
    assert np.array_equal(patients.logic.maskOf(patients.liver), A)
    assert patients.choices() == ["Work on Second patient", "Show CT abdomen"]
    patients.press(patients.ui.secondChoiceButton)
    patients.answer(B)
    assert np.array_equal(patients.logic.maskOf(patients.liver), B)


def test_an_answer_for_another_segmentation_of_the_scan_is_not_written(
    patients: TwoViews,
) -> None:
    asked = patients.logic.guard.asked()
    other = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Other")
    patients.logic.parameters.segmentation = other
    written: list[bool] = []
    assert not patients.logic.guard.allowsAnswer(asked, lambda: written.append(True))
    assert other.GetSegmentation().GetNumberOfSegments() == 0
    assert written == []
    assert "segmentation has changed" in patients.status


def test_a_segmentation_of_another_patient_is_not_even_asked_about(patients: TwoViews) -> None:
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
