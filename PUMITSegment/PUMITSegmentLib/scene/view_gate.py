"""Observer of the user's actions in views, which refuses prompts before Slicer places them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import slicer
import vtk
from PUMITSlicerLib.single_shot import singleShot
from slicer.i18n import tr as _
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.prompts.drawing.freehand import BEFORE_SLICER, DrawnView, ViewEvents
from PUMITSegmentLib.scene.segment_actions import SegmentActions
from PUMITSegmentLib.scene.selection import Selection

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
    slices = [manager.sliceWidget(name) for name in manager.sliceViewNames()]
    views = [(each.sliceView(), each.mrmlSliceNode()) for each in slices if each is not None]
    solids = [manager.threeDWidget(index) for index in range(manager.threeDViewCount)]
    views += [(each.threeDView(), each.mrmlViewNode()) for each in solids if each is not None]
    return [DrawnView(view.interactorStyle().GetInteractor(), node) for view, node in views]
