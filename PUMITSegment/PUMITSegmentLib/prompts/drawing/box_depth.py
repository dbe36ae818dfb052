"""The depth of a box: given in another view, after its corners were clicked in one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import slicer

from PUMITSegmentLib.prompts.drawing.box_on_slice import normalInNode
from PUMITSegmentLib.prompts.drawing.freehand import BEFORE_SLICER, DrawnView

# A view whose slice lies nearer to the drawn one than this shows the drawn one.
_SAME_MM = 1e-2
_PARALLEL = 1e-3
# Pixels: a press and release nearer than this are a click.
_CLICK = 6.0


class BoxDepth:
    """Lets the next click or drag say how deep a box is.

    A click in another view, or in another slice, is where the box ends; it ends as far on the
    other side. A drag reaches from one end to the other. A click in the slice that the box was
    drawn in is none of this, and leaves the box as deep as it is.

    Args:
        roiNode: The box, with both corners.
        sliceNode: The slice that it was drawn in.
        views: Where its depth can be given.
        onGiven: Called once the box has its depth.
    """

    def __init__(
        self, roiNode, sliceNode, views: list[DrawnView], onGiven: Callable[[], None]
    ) -> None:
        self.roiNode = roiNode
        self._onGiven = onGiven
        self._normal = normalInNode(roiNode, sliceNode)
        self._drawn = slicer.util.arrayFromVTKMatrix(sliceNode.GetSliceToRAS()).copy()
        self._matrix = slicer.util.arrayFromVTKMatrix(roiNode.GetObjectToNodeMatrix()).copy()
        self._across = int(np.abs(self._normal @ self._matrix[:3, :3]).argmax())
        self._size = np.array(roiNode.GetSize())
        self._pressed: tuple[DrawnView, tuple[int, int]] | None = None
        self._tags: list[tuple[object, int]] = []
        for view in views:
            self._observe(view, "LeftButtonPressEvent", self._onPress)
            self._observe(view, "MouseMoveEvent", self._onMove)
            self._observe(view, "LeftButtonReleaseEvent", self._onRelease)

    def close(self) -> None:
        """Leave no observer."""
        for interactor, tag in self._tags:
            interactor.RemoveObserver(tag)
        self._tags = []

    def _observe(self, view: DrawnView, event: str, react: Callable[[DrawnView], bool]) -> None:
        def onEvent(caller, name) -> None:
            command = view.interactor.GetCommand(tag)
            if self._tags and react(view):
                command.SetAbortFlag(1)

        tag = view.interactor.AddObserver(event, onEvent, BEFORE_SLICER)
        self._tags.append((view.interactor, tag))

    def _onPress(self, view: DrawnView) -> bool:
        if view.interactor.GetShiftKey() or view.interactor.GetControlKey():
            return False  # Slicer's own: the crosshair, panning
        if self._isDrawnIn(view):
            self._give()
            return False  # the first corner of the next box
        self._pressed = (view, view.interactor.GetEventPosition())
        self._follow(view)
        return True

    def _onMove(self, view: DrawnView) -> bool:
        if view.interactor.GetShiftKey() or self._isDrawnIn(view):
            return False
        self._follow(view)
        return True

    def _onRelease(self, view: DrawnView) -> bool:
        if self._pressed is None or self._pressed[0] is not view:
            return False
        self._follow(view)
        self._give()
        return True

    def _give(self) -> None:
        self.close()
        self._onGiven()

    def _isDrawnIn(self, view: DrawnView) -> bool:
        shown = slicer.util.arrayFromVTKMatrix(view.sliceNode.GetSliceToRAS())
        isParallel = abs(abs(shown[:3, 2] @ self._drawn[:3, 2]) - 1) < _PARALLEL
        offset = self._drawn[:3, 2] @ (shown[:3, 3] - self._drawn[:3, 3])
        return bool(isParallel and abs(offset) < _SAME_MM)

    def _follow(self, view: DrawnView) -> None:
        """Make the box as deep as the mouse says."""
        end = self._distance(view, view.interactor.GetEventPosition())
        begin = -end
        if self._pressed is not None:
            xy = self._pressed[1]
            if np.linalg.norm(np.subtract(view.interactor.GetEventPosition(), xy)) >= _CLICK:
                begin = self._distance(view, xy)
        if abs(end - begin) < _SAME_MM:
            return
        size, matrix = self._size.copy(), self._matrix.copy()
        size[self._across] = abs(end - begin)
        matrix[:3, 3] += self._normal * (begin + end) / 2
        modified = self.roiNode.StartModify()
        self.roiNode.SetAndObserveObjectToNodeMatrix(slicer.util.vtkMatrixFromArray(matrix))
        self.roiNode.SetSize(*size)
        self.roiNode.EndModify(modified)

    def _distance(self, view: DrawnView, xy: tuple[int, int]) -> float:
        """How far from the middle of the box, as it was drawn, a place lies across its slice."""
        world = view.sliceNode.GetXYToRAS().MultiplyPoint([*xy, 0.0, 1.0])[:3]
        point = [0.0, 0.0, 0.0]
        self.roiNode.TransformPointFromWorld(list(world), point)
        return float(self._normal @ (np.array(point) - self._matrix[:3, 3]))
