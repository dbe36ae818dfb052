"""The status in the slice views, where the hand is while prompts are placed."""

from __future__ import annotations

import textwrap

import slicer
import vtk
from PUMITSlicerLib.status import Activity, Status, StatusBoard

_RGB = {Activity.PROBLEM: (1.0, 0.6, 0.2), Activity.DONE: (0.5, 1.0, 0.6)}
_WHITE = (1.0, 1.0, 1.0)
_SIZE, _LONGEST = 13, 160
# Mean width of a letter, as a share of its height; and letters of a line in the narrowest view.
_WIDTH, _FEWEST = 0.55, 24


class ViewStatus:
    """One line at the top of every slice view, for as long as the module is open.

    Args:
        board: What is shown.
    """

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._shown: list[tuple[object, object, object]] = []

    @property
    def actors(self) -> list:
        """The lines, one for each view."""
        return [actor for _view, _renderer, actor in self._shown]

    def open(self) -> None:
        """Show the status in the views of the present layout."""
        self.close()
        manager = slicer.app.layoutManager()
        if manager is None:
            return
        for name in manager.sliceViewNames():
            widget = manager.sliceWidget(name)
            if widget is not None:
                view = widget.sliceView()
                renderer = view.renderWindow().GetRenderers().GetFirstRenderer()
                actor = _line()
                renderer.AddViewProp(actor)
                self._shown.append((view, renderer, actor))
        self._board.listeners.append(self.show)
        self.show(self._board.current)

    def show(self, status: Status) -> None:
        """Show one status."""
        text = status.text if len(status.text) <= _LONGEST else status.text[:_LONGEST] + "..."
        for view, renderer, actor in self._shown:
            perLine = max(_FEWEST, int(renderer.GetSize()[0] / (_WIDTH * _SIZE)))
            actor.SetInput(textwrap.fill(text, perLine))
            actor.GetTextProperty().SetColor(*_RGB.get(status.activity, _WHITE))
            view.scheduleRender()

    def close(self) -> None:
        """Leave nothing in the views."""
        if self.show in self._board.listeners:
            self._board.listeners.remove(self.show)
        for view, renderer, actor in self._shown:
            renderer.RemoveViewProp(actor)
            view.scheduleRender()
        self._shown = []


def _line():
    actor = vtk.vtkTextActor()
    actor.GetPositionCoordinate().SetCoordinateSystemToNormalizedViewport()
    actor.SetPosition(0.5, 0.97)
    look = actor.GetTextProperty()
    look.SetFontSize(_SIZE)
    look.SetJustificationToCentered()
    look.SetVerticalJustificationToTop()
    look.ShadowOn()  # seen on any image
    return actor
