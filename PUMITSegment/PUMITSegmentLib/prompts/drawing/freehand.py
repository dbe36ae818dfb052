"""Freehand drawing of a curve in one stroke; Slicer itself places it click by click."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import slicer

# Observer priority above Slicer's own, whose handling a stroke suppresses.
BEFORE_SLICER = 10.0
# Pixels: press and release within this distance are a click; spacing of a stroke's points.
_CLICK = 6.0
_STEP = 4.0


@dataclass(frozen=True)
class DrawnView:
    """Slice view to draw in: its vtkRenderWindowInteractor and its slice node."""

    interactor: Any
    sliceNode: Any


def openSliceWidgets() -> list:
    """Return the slice widgets of Slicer's current layout; none without a layout."""
    manager = slicer.app.layoutManager()
    if manager is None:
        return []
    widgets = (manager.sliceWidget(name) for name in manager.sliceViewNames())
    return [widget for widget in widgets if widget is not None]


def openSliceViews() -> list[DrawnView]:
    """Return the slice views of Slicer's current layout in which a curve can be drawn."""
    views = [
        DrawnView(widget.sliceView().interactorStyle().GetInteractor(), widget.mrmlSliceNode())
        for widget in openSliceWidgets()
    ]
    # With several slices in one view, each would need its own matrix.
    return [
        view
        for view in views
        if view.sliceNode.GetLayoutGridRows() * view.sliceNode.GetLayoutGridColumns() == 1
    ]


class ViewEvents:
    """Observers of view events, called before Slicer's own.

    Args:
        priority: Observers with a higher priority are called first.
    """

    def __init__(self, priority: float = BEFORE_SLICER) -> None:
        self._priority = priority
        self._tags: list[tuple[Any, int]] = []

    def observe(self, view: DrawnView, event: str, react: Callable[[DrawnView], bool]) -> None:
        """Call a function on an event; if it returns True, Slicer does not get the event."""

        def onEvent(caller, name) -> None:
            command = view.interactor.GetCommand(tag)
            if self._tags and react(view):
                command.SetAbortFlag(1)

        tag = view.interactor.AddObserver(event, onEvent, self._priority)
        self._tags.append((view.interactor, tag))

    def observeDrag(
        self,
        views: list[DrawnView],
        onPress: Callable[[DrawnView], bool],
        onMove: Callable[[DrawnView], bool],
        onRelease: Callable[[DrawnView], bool],
    ) -> None:
        """Call functions when the left button is pressed, moved and released."""
        for view in views:
            self.observe(view, "LeftButtonPressEvent", onPress)
            self.observe(view, "MouseMoveEvent", onMove)
            self.observe(view, "LeftButtonReleaseEvent", onRelease)

    def close(self) -> None:
        """Remove all observers."""
        for interactor, tag in self._tags:
            interactor.RemoveObserver(tag)
        self._tags = []


class Freehand:
    """Freehand drawing of a curve that is being placed, in one stroke.

    Args:
        curveNode: Curve in Slicer's place mode. Points clicked before the stroke are kept.

    Attributes:
        isRightClick: Whether the right button was pressed, which ends the curve in Slicer.
    """

    def __init__(self, curveNode, views: list[DrawnView], onStroke: Callable[[], None]) -> None:
        self._curveNode = curveNode
        self._onStroke = onStroke
        self._pressed: DrawnView | None = None
        self._last = np.zeros(2)
        self._isStroke = False
        self.isRightClick = False
        self._events = ViewEvents()
        self._events.observeDrag(views, self._onPress, self._onMove, self._onRelease)
        for view in views:
            self._events.observe(view, "RightButtonPressEvent", self._onRightPress)

    def close(self) -> None:
        """Remove all observers."""
        self._events.close()

    def _onPress(self, view: DrawnView) -> bool:
        # Shift moves the crosshair or pans.
        if not view.interactor.GetShiftKey() and not view.interactor.GetControlKey():
            self._pressed, self._isStroke = view, False
            self._last = _position(view)
        return False

    def _onRightPress(self, view: DrawnView) -> bool:
        self.isRightClick = True
        return False

    def _onMove(self, view: DrawnView) -> bool:
        if self._pressed is not view:
            return False
        here = _position(view)
        if not self._isStroke and np.linalg.norm(here - self._last) >= _CLICK:
            self._isStroke = True
            removePreview(self._curveNode)
            self._add(view, self._last)
        if self._isStroke and np.linalg.norm(here - self._last) >= _STEP:
            self._add(view, here)
        return self._isStroke

    def _onRelease(self, view: DrawnView) -> bool:
        isStroke = self._isStroke and self._pressed is view
        if isStroke and (_position(view) != self._last).any():
            self._add(view, _position(view))
        self._pressed, self._isStroke = None, False
        if isStroke:
            self._onStroke()
        return isStroke

    def _add(self, view: DrawnView, position: np.ndarray) -> None:
        world = view.sliceNode.GetXYToRAS().MultiplyPoint([*position.tolist(), 0.0, 1.0])[:3]
        self._curveNode.AddControlPointWorld(list(world))
        self._last = position


def removePreview(node) -> None:
    """Remove the point under the mouse that Slicer shows before it is placed."""
    preview = slicer.vtkMRMLMarkupsNode.PositionPreview
    for index in reversed(range(node.GetNumberOfControlPoints())):
        if node.GetNthControlPointPositionStatus(index) == preview:
            node.RemoveNthControlPoint(index)


def _position(view: DrawnView) -> np.ndarray:
    return np.array(view.interactor.GetEventPosition(), dtype=float)
