"""Overlay in every slice view, drawn above everything of Slicer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import slicer
import vtk

# Distinguishes our actors from Slicer's in layer 0; VTK draws in the order of adding.
_LAYER = 1


@dataclass(frozen=True)
class OverlaidView:
    """Slice view with an actor of this module.

    Attributes:
        sliceNode: Slice node of the view.
        renderer: Renderer that holds the actor.
        actor: The vtkActor2D.
    """

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

    Args:
        makeActor: Factory of a view's actor.

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
