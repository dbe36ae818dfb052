"""A 3D box by three clicks: corners in one view, depth in another; tools stay armed after each."""

from typing import Any

import numpy as np
import pytest
import slicer
from daily_panel import A, B, Daily
from panel_scene import opened
from pumit.prompts import BoxPrompt

# RAS mm, in the axial slice at 8.
CORNERS = (6.5, 6.5, 8.0), (12.5, 12.5, 8.0)


class Boxes(Daily):
    """The panel with an axial and a coronal view, with an answered click and no tool armed."""

    def __init__(self, loadModule: Any, sliceView: Any) -> None:
        self.other = sliceView("Green", "Coronal")
        super().__init__(loadModule, sliceView)
        self.other.show(self.volumeNode)
        self.logic.stopPlacing()

    def draw(self, button: Any) -> None:
        """Press a tool, and draw two corners."""
        self.press(button)
        self.drawCorners()

    def drawCorners(self) -> None:
        self.view.sliceNode.JumpSliceByOffsetting(*CORNERS[0])
        for corner in CORNERS:
            self.view.move(*self.view.rasToXy(corner))
            self.view.click(*self.view.rasToXy(corner))
        self.other.sliceNode.JumpSliceByOffsetting(9, 9, 9)

    @property
    def status(self) -> str:
        return str(self.ui.statusLabel.text)

    @property
    def isPressed(self) -> bool:
        return bool(self.ui.box3dButton.checked)

    def askedBoxes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Least and greatest corner, RAS mm, of the boxes of the newest request."""
        boxes = [p for p in self.worker.requests[-1].prompts if isinstance(p, BoxPrompt)]
        corners = [np.array(box.corners_lps) * (-1, -1, 1) for box in boxes]
        return [(each.min(axis=0), each.max(axis=0)) for each in corners]


boxes = opened(Boxes)


def test_corners_then_depth_and_the_status_says_which_comes_next(boxes, screenshots):
    from harness.views.picture import compose

    count = len(boxes.worker.requests)
    boxes.press(boxes.ui.box3dButton)
    assert "two opposite corners" in boxes.status
    boxes.drawCorners()
    assert "set the depth of the box" in boxes.status
    assert len(boxes.worker.requests) == count  # it waits for the depth
    boxes.other.move(*boxes.other.rasToXy((9, 9, 11.5)))  # the box follows the mouse
    compose(boxes.frame, [boxes.view, boxes.other], screenshots / "box_depth.png")
    boxes.other.click(*boxes.other.rasToXy((9, 9, 11.5)))

    ((low, high),) = boxes.askedBoxes()
    np.testing.assert_allclose(low, (6.5, 6.5, 4.5), atol=0.1)
    np.testing.assert_allclose(high, (12.5, 12.5, 11.5), atol=0.1)
    boxes.answer(B)
    assert boxes.isPressed  # for the next box


def test_a_drag_from_corner_to_corner_is_a_box(boxes):
    """Of a drag Slicer places its end alone."""
    corners = [boxes.view.rasToXy(corner)[:2] for corner in CORNERS]
    boxes.view.sliceNode.JumpSliceByOffsetting(*CORNERS[0])
    boxes.press(boxes.ui.box2dButton)
    boxes.view.drag(*corners)
    ((low, high),) = boxes.askedBoxes()
    np.testing.assert_allclose((low[:2], high[:2]), ((6.5, 6.5), (12.5, 12.5)), atol=0.1)
    boxes.answer(B)
    boxes.view.click(*corners[0])  # the next one: only its second corner is dragged to
    boxes.view.drag((corners[0][0] + 20, corners[0][1]), corners[1])
    np.testing.assert_allclose(boxes.askedBoxes()[1], boxes.askedBoxes()[0])
    boxes.answer(B)
    boxes.press(boxes.ui.box3dButton)
    boxes.view.drag(*corners)
    assert "set the depth of the box" in boxes.status
    boxes.other.sliceNode.JumpSliceByOffsetting(9, 9, 9)
    boxes.other.drag(boxes.other.rasToXy((9, 9, 3)), boxes.other.rasToXy((9, 9, 10)))
    low, high = boxes.askedBoxes()[-1]
    np.testing.assert_allclose((low, high), ((6.5, 6.5, 3), (12.5, 12.5, 10)), atol=0.1)
    assert boxes.isPressed


def test_a_corner_of_a_box_that_is_dragged_asks_again(boxes):
    boxes.press(boxes.ui.box2dButton)
    boxes.view.sliceNode.JumpSliceByOffsetting(*CORNERS[0])
    for corner in CORNERS:
        boxes.view.click(*boxes.view.rasToXy(corner))
    boxes.answer(B)
    boxes.press(boxes.ui.box2dButton)  # nothing is placed now
    count = len(boxes.worker.requests)
    boxes.view.render()
    (x, y), (toX, toY) = (boxes.view.rasToXy(c)[:2] for c in (CORNERS[1], (15.5, 14.5, 8.0)))
    boxes.view.drag((x - 3, y + 3), (toX - 3, toY + 3))
    assert len(boxes.worker.requests) == count + 1
    ((low, high),) = boxes.askedBoxes()
    np.testing.assert_allclose(low[:2], (6.5, 6.5), atol=0.2)
    np.testing.assert_allclose(high[:2], (15.5, 14.5), atol=0.2)
    boxes.answer(A)
    boxes.press(boxes.ui.undoButton)
    assert np.array_equal(boxes.mask(boxes.liver), B)


def test_the_depth_may_be_given_in_another_slice_of_the_same_view(boxes):
    boxes.draw(boxes.ui.box3dButton)
    boxes.view.clickAt((9, 9, 12.0))
    ((low, high),) = boxes.askedBoxes()
    assert (low[2], high[2]) == pytest.approx((4.0, 12.0), abs=0.1)


def test_the_next_box_may_be_begun_without_a_depth(boxes):
    boxes.draw(boxes.ui.box3dButton)
    boxes.drawCorners()
    assert boxes.logic.working.prompts.isDepthNext
    ((low, high),) = boxes.askedBoxes()  # the first one, as deep as its shorter side
    assert high[2] - low[2] == pytest.approx(6.0, abs=0.1)


def test_a_tool_that_is_put_away_keeps_the_box(boxes):
    interaction = slicer.app.applicationLogic().GetInteractionNode()
    for end in (
        lambda: boxes.press(boxes.ui.box3dButton),
        interaction.SwitchToViewTransformMode,
        boxes.gui.exit,
        lambda: boxes.press(boxes.ui.pointButton),
    ):
        boxes.gui.enter()
        boxes.draw(boxes.ui.box3dButton)
        end()
        assert len(boxes.askedBoxes()) == 1
        assert not boxes.isPressed
        # The other view is Slicer's again, or the other tool's.
        count = len(boxes.worker.requests)
        boxes.other.click(*boxes.other.rasToXy((9, 9, 12)))
        assert len(boxes.worker.requests) == count + boxes.ui.pointButton.checked
        boxes.logic.undo()
        assert boxes.logic.promptCount(boxes.liver) == 1 + boxes.ui.pointButton.checked


def test_what_goes_before_the_depth_takes_the_box_along(boxes):
    boxes.draw(boxes.ui.box3dButton)
    boxes.press(boxes.ui.undoButton)
    assert boxes.isPressed
    assert boxes.logic.promptCount(boxes.liver) == 1  # of the click before, which stays
    boxes.press(boxes.ui.undoButton)
    assert boxes.logic.promptCount(boxes.liver) == 0
    boxes.press(boxes.ui.redoButton)
    assert boxes.logic.promptCount(boxes.liver) == 1
    assert np.array_equal(boxes.mask(boxes.liver), A)
    # A box that is deleted in Data.
    boxes.drawCorners()
    nodes = slicer.util.getNodesByClass("vtkMRMLMarkupsROINode")
    (drawn,) = [node for node in nodes if node.GetNumberOfControlPoints()]
    slicer.mrmlScene.RemoveNode(drawn)
    assert "two opposite corners" in boxes.status
    count = len(boxes.worker.requests)
    boxes.other.click(*boxes.other.rasToXy((9, 9, 12)))
    assert len(boxes.worker.requests) == count
    boxes.logic.stopPlacing()
    # A segment that is removed.
    boxes.draw(boxes.ui.box3dButton)
    count = len(boxes.worker.requests)
    boxes.logic.removeSegment(boxes.liver)
    assert len(boxes.worker.requests) == count
    assert not slicer.util.getNodesByClass("vtkMRMLMarkupsROINode")


def test_an_image_of_one_slice_asks_for_no_depth(boxes):
    flat = slicer.util.addVolumeFromArray(np.zeros((1, 24, 28), np.int16))
    boxes.process()
    boxes.logic.parameters.sourceVolume = flat
    boxes.view.show(flat)
    boxes.press(boxes.ui.box3dButton)
    assert "depth" not in boxes.status
    boxes.view.click(*boxes.view.rasToXy((6.5, 6.5, 0)))
    boxes.view.click(*boxes.view.rasToXy((12.5, 12.5, 0)))
    assert "depth" not in boxes.status
    assert len(boxes.askedBoxes()) == 1


def test_a_2d_box_is_drawn_in_its_own_view_only(boxes):
    """F16: while it was drawn, the other views showed a cube."""
    boxes.press(boxes.ui.box2dButton)
    boxes.view.sliceNode.JumpSliceByOffsetting(*CORNERS[0])
    boxes.other.sliceNode.JumpSliceByOffsetting(9, 9, 9)
    for corner in CORNERS:
        boxes.view.move(*boxes.view.rasToXy(corner))
        if corner is CORNERS[0]:
            before = boxes.other.image()
            boxes.view.click(*boxes.view.rasToXy(corner))
            boxes.view.move(*boxes.view.rasToXy((10, 10, 8)))
            assert np.array_equal(boxes.other.image(), before)
        else:
            boxes.view.click(*boxes.view.rasToXy(corner))
    (box,) = [
        node
        for node in slicer.util.getNodesByClass("vtkMRMLMarkupsROINode")
        if node.GetNumberOfDefinedControlPoints() > 0
    ]
    assert box.GetDisplayNode().IsDisplayableInView(boxes.other.sliceNode.GetID())


def test_a_small_box_shows_what_it_holds(boxes):
    """Friction 6: nine handles hid an adrenal gland; zoomed in they are there."""
    boxes.draw(boxes.ui.box2dButton)
    boxes.logic.stopPlacing()
    boxes.view.sliceNode.JumpSliceByOffsetting(*CORNERS[0])
    (box,) = slicer.util.getNodesByClass("vtkMRMLMarkupsROINode")
    display, sliceNode = box.GetDisplayNode(), boxes.view.sliceNode
    assert display.GetScaleHandleVisibility()
    width, height, depth = sliceNode.GetFieldOfView()
    sliceNode.SetFieldOfView(4 * width, 4 * height, depth)
    boxes.process()
    assert not display.GetScaleHandleVisibility()
    assert not display.GetTranslationHandleVisibility()
    sliceNode.SetFieldOfView(width, height, depth)
    boxes.process()
    assert display.GetScaleHandleVisibility()
