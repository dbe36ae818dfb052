"""The mouse in the views: its pointer, segments that it picks, and prompts that are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import qt
import slicer
import vtk
from PUMITSlicerLib.single_shot import singleShot
from slicer.i18n import tr as _
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.prompts.drawing.freehand import (
    BEFORE_SLICER,
    DrawnView,
    ViewEvents,
    openSliceViews,
    openSliceWidgets,
)
from PUMITSegmentLib.scene.segment_actions import SegmentActions
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.at_place import segmentsAt

# Pixels: press and release farther apart are a drag, which adjusts the window or pans.
_CLICK = 3


class SegmentPicking:
    """Selection of segments by clicks in slice views; Slicer still gets every event."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._pressed: tuple[Any, tuple[int, int]] | None = None
        self._events = ViewEvents(0.0)

    def open(self) -> None:
        """Observe the views of the current layout."""
        self.close()
        for view in openSliceViews():
            self._events.observe(view, "LeftButtonPressEvent", self._onPress)
            self._events.observe(view, "LeftButtonReleaseEvent", self._onRelease)

    def close(self) -> None:
        """Remove all observers."""
        self._events.close()

    def _onPress(self, view: DrawnView) -> bool:
        interactor = view.interactor
        isPlain = not (interactor.GetShiftKey() or interactor.GetControlKey())
        canPick = isPlain and not self._selection.isPlacing
        self._pressed = (interactor, interactor.GetEventPosition()) if canPick else None
        return False

    def _onRelease(self, view: DrawnView) -> bool:
        self._pick(view)
        return False

    def _pick(self, view: DrawnView) -> None:
        pressed, self._pressed = self._pressed, None
        node = self._selection.segmentationNode
        if pressed is None or pressed[0] is not view.interactor or node is None:
            return
        x, y = view.interactor.GetEventPosition()
        isDragged = max(abs(x - pressed[1][0]), abs(y - pressed[1][1])) > _CLICK
        if isDragged or self._selection.isPlacing:
            return
        if not self._selection.guard.nameIn(view.sliceNode):
            return  # another scan is shown here
        found = segmentsAt(node, view.sliceNode.GetXYToRAS().MultiplyPoint([x, y, 0, 1])[:3])
        if found:
            self._selection.selectSegment(found[0])


_SIZE, _MIDDLE, _GAP = 32, 15, 4
_SIGN = (21, 31)  # lower right of the cross
# The colours of points, outlined in black to be visible on any image.
_INSIDE_RGB, _OUTSIDE_RGB = (60, 220, 90), (255, 70, 60)


class ViewCursor:
    """Mouse pointer of the slice views while prompts are placed."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        # Views with their slice nodes, and the views that have our pointer.
        self._views: list[tuple[Any, Any]] = []
        self._pointed: list[Any] = []

    def open(self) -> None:
        """Use the views of the current layout."""
        self.close()
        self._views = [(w.sliceView(), w.mrmlSliceNode()) for w in openSliceWidgets()]
        self.refresh()

    def refresh(self) -> None:
        """Update the pointer, also if Slicer has replaced it."""
        placed = self._selection.placed
        pointed = []
        if placed is not None:
            pointed = [view for view, node in self._views if self._selection.guard.nameIn(node)]
        self._set([view for view in self._pointed if view not in pointed], qt.QCursor())
        self._pointed = pointed
        if pointed:
            self._set(pointed, pointer(placed.isPositive))

    def close(self) -> None:
        """Restore the views' usual pointer."""
        self._set(self._pointed, qt.QCursor())
        self._views, self._pointed = [], []

    @staticmethod
    def _set(views: list[Any], cursor: Any) -> None:
        for view in views:
            # As Slicer does: the current pointer, and the one after hovering over an object.
            view.setViewCursor(cursor)
            view.setDefaultViewCursor(cursor)


def pointer(isPositive: bool) -> Any:
    """Return a cross with an open centre; sign and colour show the polarity."""
    picture = qt.QPixmap(_SIZE, _SIZE)
    picture.fill(qt.QColor(0, 0, 0, 0))
    rgb = _INSIDE_RGB if isPositive else _OUTSIDE_RGB
    first, last = _SIGN
    half = (first + last) // 2
    lines = [
        (_MIDDLE, 0, _MIDDLE, _MIDDLE - _GAP),
        (_MIDDLE, _MIDDLE + _GAP, _MIDDLE, 2 * _MIDDLE),
        (0, _MIDDLE, _MIDDLE - _GAP, _MIDDLE),
        (_MIDDLE + _GAP, _MIDDLE, 2 * _MIDDLE, _MIDDLE),
        (first, half, last, half),
    ]
    if isPositive:
        lines.append((half, first, half, last))
    painter = qt.QPainter(picture)
    for colour, width in ((qt.QColor(0, 0, 0), 3), (qt.QColor(*rgb), 1)):
        pen = qt.QPen(colour)
        pen.setWidth(width)
        painter.setPen(pen)
        for line in lines:
            painter.drawLine(*line)
    painter.end()
    return qt.QCursor(picture, _MIDDLE, _MIDDLE)


_ACTS = (
    *("LeftButtonPressEvent", "LeftButtonDoubleClickEvent", "LeftButtonReleaseEvent"),
    *("RightButtonPressEvent", "RightButtonReleaseEvent", "KeyPressEvent"),
)


# Pixels within which a click hits a point.
_REACH = 8


class ViewGate(VTKObservationMixin):
    """Observer of the user's actions in all slice and 3D views, called before all others."""

    def __init__(
        self, selection: Selection, actions: SegmentActions, onViewsChanged: Callable[[], None]
    ) -> None:
        super().__init__()
        self._selection = selection
        self._actions = actions
        self._status = selection.status
        self._events: ViewEvents | None = None
        self._refused: Any = None
        # The event is handled completely when the event loop continues.
        self._done = singleShot(self._forgetView)
        # Slicer changes the layers of several views in sequence.
        self._changed = singleShot(onViewsChanged)

    def open(self) -> None:
        """Observe the views of the current layout."""
        self.close()
        self._events = ViewEvents(3 * BEFORE_SLICER)
        for view in _openViews():
            for event in _ACTS:
                self._events.observe(view, event, partial(self._onAct, event=event))
        for node in slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode"):
            self.addObserver(node, vtk.vtkCommand.ModifiedEvent, self._onLayersModified)
        self._changed.start()

    def close(self) -> None:
        """Remove all observers."""
        self.removeObservers()
        if self._events is not None:
            self._events.close()
        self._events = None
        self._changed.stop()
        self._forgetView()

    def _onAct(self, view: DrawnView, event: str) -> bool:
        self._selection.guard.eventView = view.sliceNode
        self._done.start()
        isLeft = event.startswith("LeftButton")
        if event == "LeftButtonPressEvent":
            self._selection.guard.clickedView = view.sliceNode
            isMoved = bool(view.interactor.GetShiftKey())  # moves the crosshair or the slice
            isTaken = isMoved or not self._selection.isPlacing or self._selection.guard.allows()
            self._refused = None if isTaken else view.interactor
            isPlain = isTaken and not isMoved and not view.interactor.GetControlKey()
            if isPlain and self._actions.isNextObjectWanted:
                self._beginNextObject(view)
        return isLeft and self._refused is view.interactor

    def _beginNextObject(self, view: DrawnView) -> None:
        if _isOnPoint(view, self._selection.book.prompts.pointsRas(self._selection.segmentID)):
            self._refused = view.interactor
            self._status.note(_("This object has its point already; click on another one."))
        elif self._actions.beginNextObject():
            # Slicer places the point previewed under the mouse, now that of the new node.
            view.interactor.InvokeEvent("MouseMoveEvent")

    def _forgetView(self) -> None:
        self._done.stop()
        self._selection.guard.eventView = None

    def _onLayersModified(self, caller: Any, event: str) -> None:
        self._changed.start()


def _isOnPoint(view: DrawnView, points: list[tuple[float, float, float]]) -> bool:
    """Return whether the mouse is on one of the points, world RAS mm, in the current slice."""
    if not view.sliceNode.IsA("vtkMRMLSliceNode"):
        return False
    toXy = vtk.vtkMatrix4x4()
    vtk.vtkMatrix4x4.Invert(view.sliceNode.GetXYToRAS(), toXy)
    mouse = view.interactor.GetEventPosition()
    for point in points:
        x, y, slices, _one = toXy.MultiplyPoint((*point, 1.0))
        if abs(slices) < 0.5 and math.dist((x, y), mouse) <= _REACH:
            return True
    return False


def _openViews() -> list[DrawnView]:
    """Return the slice and 3D views of the current layout, in all windows."""
    manager = slicer.app.layoutManager()
    if manager is None:
        return []
    views = [(each.sliceView(), each.mrmlSliceNode()) for each in openSliceWidgets()]
    solids = [manager.threeDWidget(index) for index in range(manager.threeDViewCount)]
    views += [(each.threeDView(), each.mrmlViewNode()) for each in solids if each is not None]
    return [DrawnView(view.interactorStyle().GetInteractor(), node) for view, node in views]
