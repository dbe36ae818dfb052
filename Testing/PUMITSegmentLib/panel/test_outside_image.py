"""A prompt outside the image is refused when it is placed, and blocks nothing."""

from typing import Any

import numpy as np
import slicer
from panel_scene import Viewed, opened
from scripted_worker import box

A, B = box((5, 5, 5), (12, 12, 12)), box((8, 8, 8), (16, 16, 16))
OUTSIDE = (40.0, 12.0, 10.0)  # the scan ends at R 27.5


class Aiming(Viewed):
    """The panel with a view that shows more than the image, with one answered click."""

    def __init__(self, loadModule: Any, sliceView: Any) -> None:
        super().__init__(loadModule, sliceView)
        self.view.sliceNode.SetFieldOfView(120, 120, 1)
        self.clickFirst((8, 8, 10), A)
        self.count = len(self.worker.requests)

    @property
    def said(self) -> str:
        return str(self.ui.statusLabel.text)

    def assertNothingChanged(self) -> None:
        assert len(self.worker.requests) == self.count
        assert self.logic.promptCount(self.logic.segmentID) == 1
        assert np.array_equal(self.mask(self.logic.segmentID), A)
        assert "image" in self.said
        assert "LPS" not in self.said

    def xy(self, *ras: float) -> tuple[float, float]:
        return tuple(self.view.rasToXy(ras))


aiming = opened(Aiming)


def test_a_click_outside_the_image_is_refused(aiming):
    aiming.view.clickAt(OUTSIDE)
    aiming.assertNothingChanged()
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    assert points.GetNumberOfDefinedControlPoints() == 1
    # Point stays armed, the refused click is no step, and the next one counts.
    assert aiming.ui.pointButton.checked
    aiming.view.clickAt((12, 12, 10))
    assert aiming.logic.promptCount(aiming.logic.segmentID) == 2
    aiming.answer(B)
    assert np.array_equal(aiming.mask(aiming.logic.segmentID), B)
    aiming.press(aiming.ui.undoButton)
    assert aiming.logic.promptCount(aiming.logic.segmentID) == 1


def test_a_click_off_an_image_that_was_cropped_keeps_the_earlier_ones(aiming):
    cropped = slicer.util.arrayFromVolume(aiming.volumeNode)[:, :, :20].copy()
    slicer.util.updateVolumeFromArray(aiming.volumeNode, cropped)
    aiming.process()
    aiming.view.clickAt(OUTSIDE)
    assert "outside the image" in aiming.said
    assert aiming.logic.promptCount(aiming.logic.segmentID) == 1
    aiming.view.clickAt((12, 12, 10))
    assert aiming.logic.promptCount(aiming.logic.segmentID) == 2


def test_a_click_in_an_image_that_was_cropped_is_not_refused_for_an_earlier_one(aiming):
    aiming.clickAt((26, 12, 10), B)
    cropped = slicer.util.arrayFromVolume(aiming.volumeNode)[:, :, :20].copy()
    slicer.util.updateVolumeFromArray(aiming.volumeNode, cropped)
    aiming.process()
    aiming.view.clickAt((12, 12, 10))
    assert aiming.logic.promptCount(aiming.logic.segmentID) == 3
    assert "Remove it, or move it into the image" in aiming.said


def test_prompts_of_a_segment_that_was_never_selected_are_not_removed(made, tmp_path):
    """Its earlier prompts are not known, as another module moved one off the image."""
    made.segment(A, "Liver")
    spleen = made.logic.newSegment("Spleen")
    made.click((15, 15, 15))
    made.clickFor(B, (14, 15, 15))
    made.logic.selectFollowingSegment(1)
    made.logic.stopPlacing()
    made.reopen(tmp_path / "scene.mrb")
    assert made.logic.segmentID != spleen
    slicer.util.getNode("Spleen +").SetNthControlPointPosition(0, *OUTSIDE)
    assert "outside the image" in made.status
    assert made.logic.promptCount(spleen) == 2


def test_a_point_that_is_dragged_off_the_image_goes_back(aiming):
    aiming.logic.stopPlacing()
    aiming.view.drag(aiming.xy(8, 8, 10), aiming.xy(*OUTSIDE))
    aiming.assertNothingChanged()
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    np.testing.assert_allclose(points.GetNthControlPointPositionWorld(0), (8, 8, 10), atol=0.3)


def test_a_scribble_and_a_box_outside_the_image_are_refused(aiming):
    aiming.press(aiming.ui.scribbleButton)
    for ras in ((20, 12, 10), (35, 14, 10), (45, 12, 10)):
        aiming.view.click(*aiming.xy(*ras))
    aiming.view.click(*aiming.xy(45, 12, 10), button="Right")
    aiming.assertNothingChanged()
    for button in (aiming.ui.box2dButton, aiming.ui.box3dButton):
        aiming.logic.status.waiting("Before")
        aiming.press(button)
        aiming.view.click(*aiming.xy(35, 12, 10))
        aiming.view.click(*aiming.xy(45, 20, 10))
        if button is aiming.ui.box3dButton:
            aiming.logic.stopPlacing()  # as deep as it is
        aiming.assertNothingChanged()
        aiming.press(aiming.ui.pointButton)
        assert slicer.util.getNodesByClass("vtkMRMLMarkupsROINode") == []
    # One that reaches beyond it is taken.
    aiming.press(aiming.ui.box3dButton)
    aiming.view.click(*aiming.xy(20, 12, 10))
    aiming.view.click(*aiming.xy(45, 20, 10))
    aiming.logic.stopPlacing()  # as deep as it is
    assert aiming.logic.promptCount(aiming.logic.segmentID) == 2


def test_the_first_click_of_all_outside_the_image_leaves_nothing(aiming):
    aiming.press(aiming.ui.newSegmentButton)
    aiming.view.clickAt(OUTSIDE)
    assert aiming.logic.promptCount(aiming.logic.segmentID) == 0
    assert len(aiming.worker.requests) == aiming.count
    aiming.logic.stopPlacing()
    assert len(slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")) == 1


def test_a_prompt_of_a_loaded_scene_that_lies_outside_is_named_in_ras(aiming):
    aiming.logic.stopPlacing()
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    with aiming.logic.working.prompts._watch.muted():
        points.AddControlPoint(40.0, -12.0, 10.0)
    aiming.press(aiming.ui.updateButton)
    assert len(aiming.worker.requests) == aiming.count
    assert "R 40.0, P 12.0, S 10.0" in aiming.said
