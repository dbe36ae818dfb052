"""Ctrl and a click give an "outside", whatever is armed, while points are placed."""

from __future__ import annotations

from collections.abc import Callable

from PUMITSegmentLib.prompts.drawing.freehand import DrawnView, ViewEvents


class CtrlClick:
    """Observer of Ctrl-clicks in slice views while points are placed.

    Args:
        views: Slice views to observe.
        onClick: Callback with the place, world RAS mm.
    """

    def __init__(
        self, views: list[DrawnView], onClick: Callable[[tuple[float, float, float]], None]
    ) -> None:
        self._onClick = onClick
        self._events = ViewEvents()
        for view in views:
            self._events.observe(view, "LeftButtonPressEvent", self._onPress)

    def close(self) -> None:
        """Leave no observer."""
        self._events.close()

    def _onPress(self, view: DrawnView) -> bool:
        if not view.interactor.GetControlKey() or view.interactor.GetShiftKey():
            return False
        x, y = view.interactor.GetEventPosition()
        r, a, s, _w = view.sliceNode.GetXYToRAS().MultiplyPoint([x, y, 0.0, 1.0])
        self._onClick((r, a, s))
        return True  # Slicer would turn or zoom with it
