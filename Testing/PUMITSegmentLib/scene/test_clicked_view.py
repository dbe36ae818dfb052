"""The clicked view decides: no scan changes that the view does not show."""

from typing import Any

import numpy as np
import pytest
import slicer
from harness.views import open_views
from panel_scene import Panel, opened
from PUMITSlicerLib.mrml import addVolumeNode, readVolume
from scripted_worker import SHAPE
from two_patients import FRAME, OTHER_FRAME, PLACE, A, B, TwoViews, nodes, stateDicom

patients = opened(TwoViews)


# --- a scan that the view does not show -----------------------------------------------------------


def test_a_click_on_the_patient_that_is_shown_leaves_the_other_one_alone(patients):
    patients.loadPatient()
    assert not patients.clickAndAnswer()
    assert patients.isUntouched()
    assert patients.status == "These views show Second patient; PUMIT works on CT abdomen."
    assert patients.choices() == ["Work on Second patient", "Show CT abdomen"]
    assert not patients.first.GetDisplayVisibility()
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    assert not points.GetDisplayVisibility()


def test_work_on_it_changes_over_to_the_patient_that_is_shown(patients):
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


def test_show_it_brings_the_scan_that_is_worked_on_back(patients):
    second = patients.loadPatient()
    for node in (patients.volumeNode, second):  # it is asked as soon as another one is shown
        patients.view.show(node)
        patients.process()
        assert bool(patients.choices()) == (node is second)
    patients.view.clickAt(PLACE)
    patients.press(patients.ui.secondChoiceButton)
    assert patients.view.compositeNode.GetBackgroundVolumeID() == patients.volumeNode.GetID()
    assert patients.choices() == []
    assert patients.first.GetDisplayVisibility()
    (points,) = nodes("vtkMRMLMarkupsFiducialNode")
    assert points.GetDisplayVisibility()
    assert patients.clickAndAnswer()


def test_a_scan_that_is_laid_over_without_being_seen_gets_no_click(patients):
    patients.view.show(patients.addPatient())
    patients.view.compositeNode.SetForegroundVolumeID(patients.volumeNode.GetID())
    for opacity in (0.0, 0.01):
        patients.logic.status.waiting("Before")
        patients.view.compositeNode.SetForegroundOpacity(opacity)
        assert not patients.clickAndAnswer()
        assert patients.isUntouched()
        assert "Second patient" in patients.status


def test_a_scan_under_an_opaque_one_and_an_empty_view_get_no_click(patients):
    patients.fuse(1.0)
    assert not patients.clickAndAnswer()
    assert patients.isUntouched()
    assert patients.status == "These views show PET; PUMIT works on CT abdomen."
    patients.view.compositeNode.SetForegroundVolumeID(None)
    patients.view.compositeNode.SetBackgroundVolumeID(None)
    assert not patients.clickAndAnswer()
    assert patients.status == "This view does not show CT abdomen."
    assert patients.choices() == ["Show CT abdomen"]


def test_the_status_is_in_the_view_that_was_clicked(patients):
    slicer.app.layoutManager().setLayout(slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView)
    other, third = (open_views.sliceView(name) for name in ("Green", "Yellow"))
    for view in (other, third):
        view.show(patients.volumeNode)
    for view in (patients.view, other, patients.view):
        view.clickAt(PLACE)
        patients.logic.status.note("Liver: good.")
        overlaid = patients.panel.viewStatus._overlay.views
        texts = {each.sliceNode: each.actor.GetInput() for each in overlaid}
        assert texts.pop(view.sliceNode) == "CT abdomen\nLiver: good."
        assert set(texts.values()) == {"CT abdomen"}
        patients.logic.status.waiting("")


# --- several scans in one view --------------------------------------------------------------------


def test_fused_scans_of_one_patient_and_position_take_clicks(patients):
    for node in (patients.volumeNode, patients.fuse(0.5)):
        stateDicom(node, "P-7710", FRAME)
    assert patients.clickAndAnswer()
    lines = [actor.GetInput() for actor in patients.panel.viewStatus.actors]
    assert any(line.startswith("CT abdomen\n") for line in lines)


def test_fused_scans_of_unknown_patients_take_no_click_before_the_user_says_so(patients):
    for first, second in (
        (("", FRAME), ("", FRAME)),
        (("Anonymous", FRAME), ("Anonymous", FRAME)),
        (("0000", FRAME), ("0000", FRAME)),
        (("UNKNOWN", FRAME), ("UNKNOWN", FRAME)),
        (("P-7710", ""), ("P-7710", "")),
        (("P-7710", FRAME), ("P-7710", OTHER_FRAME)),
        (("P-7710", FRAME), ("", FRAME)),
    ):
        stateDicom(patients.volumeNode, *first)
        other = patients.fuse(0.5)
        stateDicom(other, *second)
        assert not patients.clickAndAnswer(), (first, second)
        assert patients.isUntouched()
        words = "Are PET and CT abdomen of the same patient, in the same position?"
        assert patients.status == words
        assert patients.choices() == ["Yes, work on CT abdomen", "Show CT abdomen alone"]
        patients.press(patients.ui.firstChoiceButton)
        assert patients.clickAndAnswer(), (first, second)
        patients.press(patients.ui.undoButton)
        slicer.mrmlScene.RemoveNode(other)
        patients.process()


def test_a_scan_with_one_of_another_patient_is_shown_alone_before_it_takes_a_click(patients):
    stateDicom(patients.volumeNode, "P-7710", FRAME, "Miller^Ann")
    stateDicom(patients.fuse(0.5), "P-7711", FRAME, "Smith^Bo")
    assert not patients.clickAndAnswer()
    assert patients.isUntouched()
    assert "PET (Smith Bo) with CT abdomen (Miller Ann), of another patient" in patients.status
    patients.press(patients.ui.firstChoiceButton)
    assert not patients.view.compositeNode.GetForegroundVolumeID()
    assert patients.clickAndAnswer()


def test_what_pumit_made_from_a_scan_may_lie_over_it(patients):
    made = addVolumeNode("Reconstruction", readVolume(patients.volumeNode), patients.volumeNode)
    patients.view.compositeNode.SetForegroundVolumeID(made.GetID())
    patients.view.compositeNode.SetForegroundOpacity(0.5)
    assert patients.clickAndAnswer()


# --- several views --------------------------------------------------------------------------------


def test_of_two_views_side_by_side_only_that_of_the_scan_takes_clicks(patients, sliceView):
    second, other = patients.addPatient(), sliceView("Yellow", "Axial")
    elsewhere = sliceView("Elsewhere", "Axial")  # which a script opened in a window
    count = len(patients.worker.requests)
    for view in (other, elsewhere):
        view.show(second)
        patients.process()
        view.clickAt(PLACE)
        assert len(patients.worker.requests) == count
        assert patients.isUntouched()
        assert patients.status == "This view shows Second patient; PUMIT works on CT abdomen."
    assert patients.clickAndAnswer()


def test_a_prompt_that_is_dragged_in_the_view_of_another_patient_stays(patients, sliceView):
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


def test_a_layout_that_comes_later_is_guarded_too(patients):
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


def test_a_3d_view_that_does_not_show_the_scan_takes_no_click(patients):
    slicer.app.layoutManager().setLayout(slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView)
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


def test_a_button_counts_for_the_views_together_once_the_mouse_left_them(patients, sliceView):
    second, other = patients.addPatient(), sliceView("Yellow", "Axial")
    other.show(second)
    patients.process()
    other.enter()
    other.move(200, 200)
    patients.press(patients.ui.updateButton)
    assert "Second patient" in patients.status
    other.leave()
    count = len(patients.worker.requests)
    patients.press(patients.ui.updateButton)
    assert len(patients.worker.requests) == count + 1


def test_a_panel_that_is_opened_late_works_on_the_scan_that_is_seen(loadModule, sliceView):
    view = sliceView("Red", "Axial")
    first, second = (slicer.util.addVolumeFromArray(np.zeros(SHAPE, np.int16)) for _ in range(2))
    view.show(second)
    panel = Panel(loadModule)
    assert panel.logic.volumeNode is second
    view.show(first)
    panel.gui.exit()
    panel.gui.enter()
    panel.process()
    assert "PUMIT works on" in panel.status
    panel.close()


def test_an_outline_is_drawn_in_the_views_of_its_own_scan(patients, sliceView):
    """In compare layouts the one patient's liver lay over the other patient."""
    other = sliceView("Green", "Axial")
    second = patients.addPatient()
    other.show(second)
    other.jumpTo((9, 9, 9))
    patients.view.show(patients.volumeNode)
    patients.process()
    hidden = other.image()
    patients.first.SetDisplayVisibility(False)
    for points in nodes("vtkMRMLMarkupsFiducialNode"):
        points.SetDisplayVisibility(False)
    assert np.array_equal(other.image(), hidden)
    before = patients.view.image()
    patients.first.SetDisplayVisibility(True)
    assert not np.array_equal(patients.view.image(), before)
    # Both views show it again, and where another module is open.
    display, green = patients.first.GetDisplayNode(), other.sliceNode.GetID()
    assert not display.IsDisplayableInView(green)
    assert not points.GetDisplayNode().IsDisplayableInView(green)
    other.show(patients.volumeNode)
    patients.process()
    assert display.IsDisplayableInView(green)
    other.show(second)
    patients.process()
    patients.gui.exit()
    assert display.IsDisplayableInView(green)
    patients.gui.enter()


def test_views_that_the_user_chose_for_a_segmentation_stay(patients, sliceView):
    other = sliceView("Green", "Axial")
    display = patients.first.GetDisplayNode()
    display.AddViewNodeID(other.sliceNode.GetID())
    other.show(patients.addPatient())
    patients.process()
    assert list(display.GetViewNodeIDs()) == [other.sliceNode.GetID()]


@pytest.mark.parametrize("isOpen", [True, False])
def test_a_compare_layout_that_was_saved_draws_each_outline_over_its_own_scan(
    patients, sliceView, tmp_path, isOpen
):
    other = sliceView("Green", "Axial")
    names = {"Red": patients.volumeNode.GetName(), "Green": "Second patient"}
    other.show(patients.addPatient())
    patients.view.show(patients.volumeNode)
    patients.process()
    display = patients.first.GetDisplayNode()
    assert not display.IsDisplayableInView(other.sliceNode.GetID())

    scene = str(tmp_path / "compared.mrb")
    assert slicer.util.saveScene(scene)
    slicer.mrmlScene.Clear(0)
    patients.process()
    if not isOpen:
        patients.gui.exit()
    slicer.util.loadScene(scene)
    patients.process()
    (first,) = [node for node in nodes("vtkMRMLSegmentationNode") if "Liver" in segmentNames(node)]
    views = {name: open_views.sliceView(name).sliceNode.GetID() for name in names}
    drawn = {name: first.GetDisplayNode().IsDisplayableInView(i) for name, i in views.items()}
    assert drawn == {"Red": True, "Green": not isOpen}
    if not isOpen:
        patients.gui.enter()
        patients.process()
    drawn = {name: first.GetDisplayNode().IsDisplayableInView(i) for name, i in views.items()}
    assert drawn == {"Red": True, "Green": False}
    # The other scan takes the outline's view over, and nothing stays limited to what is gone.
    open_views.sliceView("Green").show(scanNamed(names["Red"]))
    patients.process()
    assert first.GetDisplayNode().IsDisplayableInView(views["Green"])


def segmentNames(node: Any) -> list[str]:
    segmentation = node.GetSegmentation()
    return [segmentation.GetSegment(each).GetName() for each in segmentation.GetSegmentIDs()]


def scanNamed(name: str) -> Any:
    return next(n for n in nodes("vtkMRMLScalarVolumeNode") if n.GetName() == name)
