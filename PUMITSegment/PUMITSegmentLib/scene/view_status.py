"""Scan name and status in the slice views, where the user looks while placing prompts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import vtk
from PUMITSlicerLib.status import Activity, Status, StatusBoard

from PUMITSegmentLib.scene.view_overlay import ViewOverlay

_RGB = {Activity.PROBLEM: (1.0, 0.6, 0.2), Activity.DONE: (0.5, 1.0, 0.6)}
_WHITE = (1.0, 1.0, 1.0)
_SIZE, _LONGEST = 13, 160
# Mean letter width relative to its height, and letters per line in the narrowest view.
_WIDTH, _FEWEST = 0.55, 24


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
    textProperty.ShadowOn()  # visible on any image
    return actor
