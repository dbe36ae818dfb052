"""The clicked view decides: no scan changes that the view does not show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from found_structures import found
from two_patients import A, B, TwoPatients, stateDicom

PLACE = (9, 9, 9)
FRAME, OTHER_FRAME = "1.2.840.99.1.2.3", "1.2.840.99.1.2.4"


class TwoViews(TwoPatients):
    """Two patients, and what must hold of the first one's liver."""

    def isUntouched(self) -> bool:
        """Whether nothing was asked of the first patient's liver, and nothing written into it."""
        isKept = np.array_equal(self.logic.maskOf(self.liver), A)
        return isKept and self.logic.promptCount(self.liver) == 1

    def choices(self) -> list[str]:
        """Texts of the buttons under the status."""
        buttons = (self.ui.firstChoiceButton, self.ui.secondChoiceButton)
        return [button.text for button in buttons if button.isVisible()]

    def fuse(self, opacity: float) -> Any:
        """Lay another scan over the first one in the view."""
        other = self.addPatient("PET")
        self.view.compositeNode.SetForegroundVolumeID(other.GetID())
        self.view.compositeNode.SetForegroundOpacity(opacity)
        return other

    def clickAndAnswer(self) -> bool:
        """Click in the view; whether that asked for a mask."""
        count = len(self.worker.requests)
        self.view.clickAt(PLACE)
        return len(self.worker.requests) > count


@pytest.fixture
def patients(loadModule: Any, sliceView: Any) -> Iterator[TwoViews]:
    made = TwoViews(loadModule, sliceView)
    yield made
    made.close()


# --- a scan that the view does not show -----------------------------------------------------------


def test_a_click_on_the_patient_that_is_shown_leaves_the_other_one_alone(
    patients: TwoViews,
) -> None:
    patients.loadPatient()
    assert not patients.clickAndAnswer()
    assert patients.isUntouched()
    assert patients.status == "These views show Second patient; PUMIT works on CT abdomen."
    assert patients.choices() == ["Work on Second patient", "Show CT abdomen"]


def test_work_on_it_changes_over_to_the_patient_that_is_shown(patients: TwoViews) -> None:
    second = patients.loadPatient()
    patients.view.clickAt(PLACE)
    patients.press(patients.ui.firstChoiceButton)
    assert patients.logic.volumeNode is second
    assert patients.ui.sourceVolumeSelector.currentNode() is second
    assert patients.choices() == []
    patients.press(patients.ui.pointButton)
    patients.view.clickAt(PLACE)
    patients.answer(B)
    assert patients.logic.segmentationNode is not patients.first
    assert np.array_equal(patients.liverVoxels().astype(bool).sum(), A.sum())


def test_show_it_brings_the_scan_that_is_worked_on_back(patients: TwoViews) -> None:
    patients.loadPatient()
    patients.view.clickAt(PLACE)
    patients.press(patients.ui.secondChoiceButton)
    assert patients.view.compositeNode.GetBackgroundVolumeID() == patients.volumeNode.GetID()
    assert patients.choices() == []
    assert patients.clickAndAnswer()


def test_it_is_asked_as_soon_as_the_views_show_another_patient(patients: TwoViews) -> None:
    second = patients.loadPatient()
    assert patients.choices() == ["Work on Second patient", "Show CT abdomen"]
    patients.view.show(patients.volumeNode)
    patients.process()
    assert patients.choices() == []
    patients.view.show(second)
    patients.process()
    assert patients.choices() != []


@pytest.mark.parametrize("opacity", [0.0, 0.01])
def test_a_scan_that_is_laid_over_without_being_seen_gets_no_click(
    patients: TwoViews, opacity: float
) -> None:
    second = patients.addPatient()
    patients.view.show(second)
    patients.view.compositeNode.SetForegroundVolumeID(patients.volumeNode.GetID())
    patients.view.compositeNode.SetForegroundOpacity(opacity)
    assert not patients.clickAndAnswer()
    assert patients.isUntouched()
    assert "Second patient" in patients.status


def test_a_scan_under_an_opaque_one_gets_no_click(patients: TwoViews) -> None:
    patients.fuse(1.0)
    assert not patients.clickAndAnswer()
    assert patients.isUntouched()
    assert patients.status == "This view shows PET; PUMIT works on CT abdomen."


def test_an_empty_view_takes_no_click(patients: TwoViews) -> None:
    patients.view.compositeNode.SetBackgroundVolumeID(None)
    assert not patients.clickAndAnswer()
    assert patients.status == "This view does not show CT abdomen."
    assert patients.choices() == ["Show CT abdomen"]


# --- several scans in one view --------------------------------------------------------------------


def test_fused_scans_of_one_patient_and_position_take_clicks(patients: TwoViews) -> None:
    for node in (patients.volumeNode, patients.fuse(0.5)):
        stateDicom(node, "P-7710", FRAME)
    assert patients.clickAndAnswer()
    lines = [actor.GetInput() for actor in patients.panel.viewStatus.actors]
    assert any(line.startswith("CT abdomen\n") for line in lines)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("", FRAME), ("", FRAME)),
        (("Anonymous", FRAME), ("Anonymous", FRAME)),
        (("0000", FRAME), ("0000", FRAME)),
        (("UNKNOWN", FRAME), ("UNKNOWN", FRAME)),
        (("P-7710", ""), ("P-7710", "")),
        (("P-7710", FRAME), ("P-7710", OTHER_FRAME)),
        (("P-7710", FRAME), ("", FRAME)),
    ],
)
def test_fused_scans_of_unknown_patients_take_no_click_before_the_user_says_so(
    patients: TwoViews, first: tuple[str, str], second: tuple[str, str]
) -> None:
    stateDicom(patients.volumeNode, *first)
    stateDicom(patients.fuse(0.5), *second)
    assert not patients.clickAndAnswer()
    assert patients.isUntouched()
    words = "Are PET and CT abdomen of the same patient, in the same position?"
    assert patients.status == words
    assert patients.choices() == ["Yes, work on CT abdomen", "Show CT abdomen alone"]
    patients.press(patients.ui.firstChoiceButton)
    assert patients.clickAndAnswer()


def test_a_scan_with_one_of_another_patient_is_shown_alone_before_it_takes_a_click(
    patients: TwoViews,
) -> None:
    stateDicom(patients.volumeNode, "P-7710", FRAME, "Miller^Ann")
    stateDicom(patients.fuse(0.5), "P-7711", FRAME, "Smith^Bo")
    assert not patients.clickAndAnswer()
    assert patients.isUntouched()
    assert "PET (Smith Bo) with CT abdomen (Miller Ann), of another patient" in patients.status
    patients.press(patients.ui.firstChoiceButton)
    assert not patients.view.compositeNode.GetForegroundVolumeID()
    assert patients.clickAndAnswer()


def test_what_pumit_made_from_a_scan_may_lie_over_it(patients: TwoViews) -> None:
    from PUMITSlicerLib.mrml import addVolumeNode, readVolume

    made = addVolumeNode("Reconstruction", readVolume(patients.volumeNode), patients.volumeNode)
    patients.view.compositeNode.SetForegroundVolumeID(made.GetID())
    patients.view.compositeNode.SetForegroundOpacity(0.5)
    assert patients.clickAndAnswer()


# --- several views --------------------------------------------------------------------------------


def test_of_two_views_side_by_side_only_that_of_the_scan_takes_clicks(
    patients: TwoViews, sliceView: Any
) -> None:
    second, other = patients.addPatient(), sliceView("Yellow", "Axial")
    other.show(second)
    patients.process()
    count = len(patients.worker.requests)
    other.clickAt(PLACE)
    assert len(patients.worker.requests) == count
    assert patients.isUntouched()
    assert patients.status == "This view shows Second patient; PUMIT works on CT abdomen."
    assert patients.clickAndAnswer()


def test_a_prompt_that_is_dragged_in_the_view_of_another_patient_stays(
    patients: TwoViews, sliceView: Any
) -> None:
    second, other = patients.addPatient(), sliceView("Yellow", "Axial")
    other.show(second)
    patients.logic.stopPlacing()
    count = len(patients.worker.requests)
    other.sliceNode.JumpSliceByOffsetting(14, 12, 10)
    other.drag(other.rasToXy((14, 12, 10)), other.rasToXy((6, 6, 10)))
    assert len(patients.worker.requests) == count
    assert patients.isUntouched()
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    np.testing.assert_allclose(points.GetNthControlPointPosition(0), (14, 12, 10), atol=0.6)
    assert "Second patient" in patients.status


def test_a_view_that_a_script_opened_in_a_window_is_guarded_too(
    patients: TwoViews, sliceView: Any
) -> None:
    second, other = patients.addPatient(), sliceView("Elsewhere", "Axial")
    other.show(second)
    count = len(patients.worker.requests)
    other.clickAt(PLACE)
    assert len(patients.worker.requests) == count
    assert patients.isUntouched()


def test_a_layout_that_comes_later_is_guarded_too(patients: TwoViews) -> None:
    import slicer
    from harness.views import open_views

    second = patients.addPatient()
    manager = slicer.app.layoutManager()
    manager.setLayout(slicer.vtkMRMLLayoutNode.SlicerLayoutCompareView)
    patients.process()
    name = next(each for each in manager.sliceViewNames() if each.startswith("Compare"))
    view = open_views.sliceView(name)
    view.show(second)
    count = len(patients.worker.requests)
    view.clickAt(PLACE)
    assert len(patients.worker.requests) == count
    assert patients.isUntouched()


def test_a_3d_view_that_does_not_show_the_scan_takes_no_click(patients: TwoViews) -> None:
    from harness.views import open_views

    solid = open_views.threeDView("1")
    solid.resetFocalPoint()
    solid.render()  # which gives it a camera
    count = len(patients.worker.requests)
    solid.click(250, 250)
    assert len(patients.worker.requests) == count
    assert patients.status == "This view does not show CT abdomen."
    patients.first.CreateClosedSurfaceRepresentation()
    patients.first.GetDisplayNode().SetVisibility3D(True)
    assert patients.logic.guard.allows(viewNode=solid.viewNode)


# --- what comes from no view ----------------------------------------------------------------------


def byUpdate(patients: TwoViews) -> None:
    patients.logic.update()


def byScript(patients: TwoViews) -> None:
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    points.AddControlPoint(*PLACE)


def byMovedPoint(patients: TwoViews) -> None:
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    points.SetNthControlPointPosition(0, *PLACE)


def byClone(patients: TwoViews) -> None:
    import slicer

    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    clone = slicer.mrmlScene.CreateNodeByClass("vtkMRMLMarkupsFiducialNode")
    clone.Copy(points)
    slicer.mrmlScene.AddNode(clone)
    clone.UnRegister(None)


def byDeletion(patients: TwoViews) -> None:
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    points.RemoveAllControlPoints()


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
    from PUMITSegmentLib.segments.clean_up import CleanUp

    cleanUp(patients.logic, CleanUp.SMOOTH)


def byNew(patients: TwoViews) -> None:
    patients.logic.newSegment()


def byPoint(patients: TwoViews) -> None:
    from PUMITSegmentLib.prompts.kinds import PromptKind

    patients.logic.startPlacing(PromptKind.POINT)


WAYS = (byUpdate, byScript, byMovedPoint, byClone, byDeletion, byFind, byReset, byUndo, byRemoval)


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
    import slicer

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


def nodes(className: str) -> list[Any]:
    import slicer

    return slicer.util.getNodesByClass(className)
