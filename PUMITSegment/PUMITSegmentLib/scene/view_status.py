"""Scan name and status in the slice views, where the user looks while placing prompts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import slicer
import vtk
from PUMITSlicerLib.status import Activity, Status, StatusBoard

# Distinguishes our actors from Slicer's in layer 0; VTK draws in the order of adding.
_LAYER = 1
_RGB = {Activity.PROBLEM: (1.0, 0.6, 0.2), Activity.DONE: (0.5, 1.0, 0.6)}
_WHITE = (1.0, 1.0, 1.0)
_SIZE, _LONGEST = 13, 160
# Mean letter width relative to its height, and letters per line in the narrowest view.
_WIDTH, _FEWEST = 0.55, 24


@dataclass(frozen=True)
class OverlaidView:
    """Slice view with an actor of this module."""

    view: Any
    sliceNode: Any
    renderer: Any
    actor: Any

    def keepOnTop(self, caller=None, event=None) -> None:
        """Move the actor to the end: Slicer re-adds a segment's fill at each update."""
        props = self.renderer.GetViewProps()
        for index in range(props.GetNumberOfItems() - 1, -1, -1):
            prop = props.GetItemAsObject(index)
            if prop is self.actor:
                return
            if not _isOurs(prop):
                break
        self.renderer.RemoveViewProp(self.actor)
        self.renderer.AddViewProp(self.actor)


class ViewOverlay:
    """One actor in every slice view of the current layout.

    Attributes:
        views: Views with an actor; empty while closed.
    """

    def __init__(self, makeActor: Callable[[], Any]) -> None:
        self._makeActor = makeActor
        self._tags: list[tuple[Any, int]] = []
        self.views: list[OverlaidView] = []

    def open(self) -> None:
        """Add an actor to the views of the current layout."""
        self.close()
        manager = slicer.app.layoutManager()
        if manager is None:
            return
        for name in manager.sliceViewNames():
            widget = manager.sliceWidget(name)
            if widget is not None:
                view = widget.sliceView()
                renderer = view.renderWindow().GetRenderers().GetFirstRenderer()
                actor = self._makeActor()
                actor.SetLayerNumber(_LAYER)
                renderer.AddViewProp(actor)
                overlay = OverlaidView(view, widget.mrmlSliceNode(), renderer, actor)
                tag = renderer.AddObserver(vtk.vtkCommand.StartEvent, overlay.keepOnTop)
                self._tags.append((renderer, tag))
                self.views.append(overlay)

    def close(self) -> None:
        """Remove all actors and observers."""
        for renderer, tag in self._tags:
            renderer.RemoveObserver(tag)
        for each in self.views:
            each.renderer.RemoveViewProp(each.actor)
            each.view.scheduleRender()
        self._tags, self.views = [], []


def _isOurs(prop) -> bool:
    return bool(prop.IsA("vtkActor2D")) and prop.GetLayerNumber() == _LAYER


class ViewStatus:
    """Scan name and status at the top of slice views, while the module is open.

    Args:
        nameIn: Function that returns the name of the scan for clicks in a slice view; "" for
            none.
    """

    def __init__(self, board: StatusBoard, nameIn: Callable[[Any], str]) -> None:
        self._board = board
        self._nameIn = nameIn
        self._overlay = ViewOverlay(_line)

    @property
    def actors(self) -> list:
        """Text actors, one per view."""
        return [each.actor for each in self._overlay.views]

    def open(self) -> None:
        """Show the status in the views of the current layout."""
        self.close()
        self._overlay.open()
        if self._overlay.views:
            self._board.listeners.append(self.show)
            self.show(self._board.current)

    def show(self, status: Status) -> None:
        """Show a status."""
        text = status.text if len(status.text) <= _LONGEST else status.text[:_LONGEST] + "..."
        for each in self._overlay.views:
            perLine = max(_FEWEST, int(each.renderer.GetSize()[0] / (_WIDTH * _SIZE)))
            name = self._nameIn(each.sliceNode)
            lines = [textwrap.shorten(name, perLine, placeholder="...")] if name else []
            each.actor.SetInput("\n".join([*lines, textwrap.fill(text, perLine)]))
            each.actor.GetTextProperty().SetColor(*_RGB.get(status.activity, _WHITE))
            each.view.scheduleRender()

    def refresh(self) -> None:
        """Update after the views changed."""
        if self._overlay.views:
            self.show(self._board.current)

    def close(self) -> None:
        """Remove the text from the views."""
        if self.show in self._board.listeners:
            self._board.listeners.remove(self.show)
        self._overlay.close()


def _line():
    actor = vtk.vtkTextActor()
    actor.GetPositionCoordinate().SetCoordinateSystemToNormalizedViewport()
    actor.SetPosition(0.5, 0.97)
    textProperty = actor.GetTextProperty()
    textProperty.SetFontSize(_SIZE)
    textProperty.SetJustificationToCentered()
    textProperty.SetVerticalJustificationToTop()
    textProperty.SetLineOffset(_SIZE)  # below Slicer's letter of the direction
    textProperty.ShadowOn()  # visible on any image
    return actor
