"""The status in the slice views, where the hand is while prompts are placed."""

from __future__ import annotations

import textwrap

import vtk
from PUMITSlicerLib.status import Activity, Status, StatusBoard

from PUMITSegmentLib.scene.view_overlay import ViewOverlay

_RGB = {Activity.PROBLEM: (1.0, 0.6, 0.2), Activity.DONE: (0.5, 1.0, 0.6)}
_WHITE = (1.0, 1.0, 1.0)
_SIZE, _LONGEST = 13, 160
# Mean width of a letter, as a share of its height; and letters of a line in the narrowest view.
_WIDTH, _FEWEST = 0.55, 24


class ViewStatus:
    """One line at the top of every slice view, for as long as the module is open.

    Args:
        board: Status board to show.
    """

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._overlay = ViewOverlay(_line)

    @property
    def actors(self) -> list:
        """The lines, one for each view."""
        return [each.actor for each in self._overlay.views]

    def open(self) -> None:
        """Show the status in the views of the present layout."""
        self.close()
        self._overlay.open()
        if self._overlay.views:
            self._board.listeners.append(self.show)
            self.show(self._board.current)

    def show(self, status: Status) -> None:
        """Show one status."""
        text = status.text if len(status.text) <= _LONGEST else status.text[:_LONGEST] + "..."
        for each in self._overlay.views:
            perLine = max(_FEWEST, int(each.renderer.GetSize()[0] / (_WIDTH * _SIZE)))
            each.actor.SetInput(textwrap.fill(text, perLine))
            each.actor.GetTextProperty().SetColor(*_RGB.get(status.activity, _WHITE))
            each.view.scheduleRender()

    def close(self) -> None:
        """Leave nothing in the views."""
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
    textProperty.ShadowOn()  # seen on any image
    return actor
