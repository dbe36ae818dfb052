"""Drawing of a box: two clicks or a drag in a view, and for a 3D box its depth in another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import slicer

from PUMITSegmentLib.prompts.box_on_slice import (
    alignToSlice,
    flatten,
    normalInNode,
    setDepth,
    sliceAt,
)
from PUMITSegmentLib.prompts.display import displayOf
from PUMITSegmentLib.prompts.drawing.freehand import DrawnView, ViewEvents, removePreview
from PUMITSegmentLib.prompts.geometry import definedPointsWorld
from PUMITSegmentLib.prompts.tag import PromptKind

# A view whose slice is closer than this shows the slice in which the box was drawn.
_SAME_MM = 1e-2
_PARALLEL = 1e-3
# Pixels: press and release within this distance are a click.
_CLICK = 6.0


class BoxDrawing:
    """Drawing of a box, aligned with its slice after the first click; 2D boxes end up flat.

    Args:
        kind: BOX_3D or BOX_2D.

    Attributes:
        sliceNode: Slice in which it is drawn; None before the first click, or in a 3D view.
    """

    def __init__(self, roiNode, kind: PromptKind) -> None:
        self._roiNode = roiNode
        self._kind = kind
        self.sliceNode = None
        self._begin: list[float] | None = None

    def follow(self) -> None:
        """Check the box; call this whenever the box changes."""
        if self._begin is not None or self._roiNode.GetNumberOfDefinedControlPoints() != 1:
            return
        self._begin = definedPointsWorld(self._roiNode)[0].tolist()
        self.sliceNode = sliceAt(self._begin, self._candidates())
        if self.sliceNode is not None:
            alignToSlice(self._roiNode, self.sliceNode)
            if self._kind is PromptKind.BOX_2D:  # Slicer draws a cube until it has both corners
                displayOf(self._roiNode).SetViewNodeIDs([self.sliceNode.GetID()])

    def finish(self) -> None:
        """Finish a box that has both corners."""
        if self._kind is PromptKind.BOX_3D:
            setDepth(self._roiNode)
        elif self.sliceNode is not None:
            flatten(self._roiNode, self.sliceNode, self._begin)
            displayOf(self._roiNode).RemoveAllViewNodeIDs()

    def _candidates(self) -> list:
        """Return slice views that may have been clicked, the one under the mouse first."""
        scene = self._roiNode.GetScene()
        crosshair = scene.GetFirstNodeByClass("vtkMRMLCrosshairNode")
        underMouse = crosshair.GetCursorPositionXYZ([0.0, 0.0, 0.0]) if crosshair else None
        count = scene.GetNumberOfNodesByClass("vtkMRMLSliceNode")
        others = [scene.GetNthNodeByClass(i, "vtkMRMLSliceNode") for i in range(count)]
        return [underMouse, *others]


class BoxDrag:
    """Drag from corner to corner, in which Slicer places only the second one, at its end."""

    def __init__(self, roiNode, views: list[DrawnView]) -> None:
        self._roiNode = roiNode
        self._pressed: tuple[DrawnView, tuple[int, int]] | None = None
        self._events = ViewEvents()
        self._events.observeDrag(views, self._onPress, self._onMove, self._onRelease)

    def close(self) -> None:
        """Remove all observers."""
        self._events.close()

    def _onPress(self, view: DrawnView) -> bool:
        isOther = view.interactor.GetShiftKey() or view.interactor.GetControlKey()
        if not isOther and self._roiNode.GetNumberOfDefinedControlPoints() == 0:
            self._pressed = (view, view.interactor.GetEventPosition())
        return False

    def _onMove(self, view: DrawnView) -> bool:
        if self._pressed is not None and self._pressed[0] is view:
            begin, here = self._pressed[1], view.interactor.GetEventPosition()
            if np.linalg.norm(np.subtract(here, begin)) >= _CLICK:
                self._pressed = None
                removePreview(self._roiNode)
                world = view.sliceNode.GetXYToRAS().MultiplyPoint([*begin, 0.0, 1.0])[:3]
                self._roiNode.AddControlPointWorld(list(world))
        return False

    def _onRelease(self, view: DrawnView) -> bool:
        self._pressed = None
        return False


class BoxDepth:
    """Depth of a box, set by the next click or drag.

    A click in another view, or in another slice, sets one end; the box extends equally far to the
    other side. A drag sets both ends. A click in the slice of the box leaves its depth as it is.

    Args:
        roiNode: The box, with both corners.
        views: Slice views that accept its depth.
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
        self._events = ViewEvents()
        self._events.observeDrag(views, self._onPress, self._onMove, self._onRelease)

    def close(self) -> None:
        """Remove all observers."""
        self._events.close()

    def _onPress(self, view: DrawnView) -> bool:
        if view.interactor.GetShiftKey() or view.interactor.GetControlKey():
            return False  # Slicer's own actions: crosshair, panning
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
        """Set the depth of the box from the mouse position."""
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
        """Return the distance of a position from the centre of the drawn box, along its normal."""
        world = view.sliceNode.GetXYToRAS().MultiplyPoint([*xy, 0.0, 1.0])[:3]
        point = [0.0, 0.0, 0.0]
        self.roiNode.TransformPointFromWorld(list(world), point)
        return float(self._normal @ (np.array(point) - self._matrix[:3, 3]))
