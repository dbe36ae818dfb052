"""A box outside takes its voxels out of the segment, and nothing else."""

from typing import Any

import numpy as np
import slicer
from panel_scene import Viewed, opened
from prompt_scene import OBLIQUE, addScan, rotation
from pumit.prompts import PointPrompt
from pumit.segmentation import UncertainRegion
from PUMITSegmentLib.prompts.display import displayOf
from PUMITSegmentLib.prompts.segment_prompts import excludedBox, withoutBoxes
from PUMITSegmentLib.segments.writer import OverwriteMode
from PUMITSlicerLib.mrml import ijkToRas
from scripted_worker import SHAPE, box

A, B = box((4, 4, 4), (12, 14, 20)), box((8, 8, 8), (16, 16, 16))


class Drawing(Viewed):
    """The panel with a view, with one answered click."""

    def __init__(self, loadModule: Any, sliceView: Any) -> None:
        super().__init__(loadModule, sliceView)
        self.clickFirst((8, 8, 8), A)

    def draw(self, button: Any, first: tuple[float, ...], second: tuple[float, ...]) -> None:
        """Draw a box by two clicks in the slice through its first corner, RAS mm."""
        self.press(button)
        self.view.sliceNode.JumpSliceByOffsetting(*first)
        self.view.click(*self.view.rasToXy(first))
        self.view.move(*self.view.rasToXy(second))
        self.view.click(*self.view.rasToXy(second))
        if self.logic.working.prompts.isDepthNext:
            self.logic.stopPlacing()  # as deep as it is

    def outside(self, button: Any) -> None:
        self.press(self.ui.negativeButton)
        self.draw(button, (7.5, 5.5, 8), (11.5, 9.5, 8))

    @property
    def segment(self) -> np.ndarray:
        return self.mask(self.logic.segmentID)


drawing = opened(Drawing)


def without(mask: np.ndarray, d: slice, h: slice, w: slice) -> np.ndarray:
    left = mask.copy()
    left[d, h, w] = False
    return left


CUT_2D = (slice(8, 9), slice(6, 10), slice(8, 12))
CUT_3D = (slice(6, 11), slice(6, 10), slice(8, 12))


def test_a_2d_box_outside_takes_its_slice_out_asks_nobody_and_is_undone(drawing):
    count = len(drawing.worker.requests)
    drawing.outside(drawing.ui.box2dButton)
    assert len(drawing.worker.requests) == count
    assert np.array_equal(drawing.segment, without(A, *CUT_2D))
    drawing.press(drawing.ui.undoButton)
    assert np.array_equal(drawing.segment, A)
    drawing.press(drawing.ui.redoButton)
    assert np.array_equal(drawing.segment, without(A, *CUT_2D))
    drawing.press(drawing.ui.undoButton)
    drawing.press(drawing.ui.undoButton)
    assert not drawing.segment.any()


def test_a_3d_box_outside_is_red_and_keeps_its_voxels_out_of_what_is_found_later(drawing):
    drawing.outside(drawing.ui.box3dButton)
    assert drawing.ui.negativeButton.checked
    rois = slicer.util.getNodesByClass("vtkMRMLMarkupsROINode")
    red, green, _blue = displayOf(rois[0]).GetSelectedColor()
    assert red > 0.5 > green
    gone = A & ~drawing.segment
    assert gone.any()
    assert not (gone & ~(A & ~without(A, *CUT_3D))).any()  # none outside of the box
    assert not drawing.segment[7:10, 6:10, 8:12].any()  # about 4 mm deep around the slice
    drawing.press(drawing.ui.positiveButton)
    drawing.press(drawing.ui.pointButton)
    drawing.view.clickAt((16, 12, 10))
    request = drawing.worker.requests[-1]
    assert [type(prompt) for prompt in request.prompts] == [PointPrompt, PointPrompt]
    request.answer(A | B)
    assert not drawing.segment[7:10, 6:10, 8:12].any()
    assert drawing.segment[15, 15, 15]


def test_a_painted_segment_loses_only_what_the_box_holds(drawing):
    painted = drawing.logic.newSegment()
    drawing.logic.stopPlacing()
    drawing.editByHand(painted, A | B)
    count = len(drawing.worker.requests)
    drawing.outside(drawing.ui.box2dButton)
    assert len(drawing.worker.requests) == count
    assert np.array_equal(drawing.mask(painted), without(A | B, *CUT_2D))


def test_a_box_outside_alone_asks_for_a_prompt_inside(drawing):
    drawing.logic.parameters.overwriteMode = OverwriteMode.NONE
    drawing.press(drawing.ui.newSegmentButton)
    drawing.outside(drawing.ui.box2dButton)
    assert "inside" in drawing.ui.statusLabel.text
    drawing.press(drawing.ui.positiveButton)
    drawing.clickFirst((5, 5, 8), A)
    assert np.array_equal(drawing.segment, without(A, *CUT_2D))


def test_while_an_answer_is_awaited_the_box_waits_with_it(drawing):
    drawing.view.clickAt((12, 12, 10))
    drawing.outside(drawing.ui.box2dButton)
    drawing.answer(B)
    assert np.array_equal(drawing.segment, without(B, *CUT_2D))


def test_nothing_is_taken_out_before_update_where_updating_is_off(drawing):
    drawing.logic.parameters.updateAutomatically = False
    drawing.outside(drawing.ui.box2dButton)
    assert np.array_equal(drawing.segment, A)
    drawing.press(drawing.ui.updateButton)
    drawing.answer(A)
    assert np.array_equal(drawing.segment, without(A, *CUT_2D))


def test_a_saved_box_outside_is_one_when_it_is_loaded(drawing, tmp_path):
    drawing.outside(drawing.ui.box2dButton)
    drawing.reopen(tmp_path / "scene.mrb")
    drawing.logic.update()
    drawing.answer(A)
    assert np.array_equal(drawing.segment, without(A, *CUT_2D))


def test_places_in_the_box_are_not_to_be_checked_and_it_gives_its_voxels_back(drawing):
    drawing.outside(drawing.ui.box2dButton)
    drawing.press(drawing.ui.checkHereButton)
    places = (
        UncertainRegion((-9.0, -8.0, 8.0), 0.4, 2.0, None),
        UncertainRegion((-5.0, -5.0, 6.0), 0.4, 2.0, None),
    )
    drawing.worker.requests[-1].answer(A, places)
    assert "1 of 1" in drawing.ui.statusLabel.text
    nodes = slicer.util.getNodesByClass("vtkMRMLMarkupsROINode")
    (roi,) = [node for node in nodes if node.GetNumberOfControlPoints()]
    slicer.mrmlScene.RemoveNode(roi)
    drawing.answer(A)
    assert np.array_equal(drawing.segment, A)


def test_an_oblique_box_holds_the_voxels_whose_centres_lie_in_it(scene):
    volumeNode = addScan(SHAPE, axes=OBLIQUE)
    roi = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsROINode")
    matrix = np.eye(4)
    matrix[:3, :3] = rotation(40, 1) @ rotation(15, 0)
    matrix[:3, 3] = volume_middle(volumeNode)
    roi.SetAndObserveObjectToNodeMatrix(slicer.util.vtkMatrixFromArray(matrix))
    roi.SetSize(9.0, 7.0, 12.0)
    left = withoutBoxes(np.ones(SHAPE, bool), [excludedBox(roi, volumeNode)])
    toBox = np.linalg.inv(matrix) @ ijkToRas(volumeNode)
    for d, h, w in np.ndindex(*SHAPE):
        inBox = np.abs((toBox @ [w, h, d, 1])[:3]) <= np.array([9, 7, 12]) / 2
        assert left[d, h, w] != inBox.all()


def volume_middle(volumeNode: Any) -> np.ndarray:
    bounds = [0.0] * 6
    volumeNode.GetRASBounds(bounds)
    return np.array(bounds).reshape(3, 2).mean(axis=1)
