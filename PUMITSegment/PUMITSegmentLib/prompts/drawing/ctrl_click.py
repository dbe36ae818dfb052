"""Ctrl and a click give an "outside", whatever is armed, while points are placed."""

from __future__ import annotations

from collections.abc import Callable

from PUMITSegmentLib.prompts.drawing.freehand import BEFORE_SLICER, DrawnView


class CtrlClick:
    """Listens to slice views for as long as points are placed.

    Args:
        views: Where clicks count.
        onClick: Given the place, world RAS mm.
    """

    def __init__(
        self, views: list[DrawnView], onClick: Callable[[tuple[float, float, float]], None]
    ) -> None:
        self._onClick = onClick
        self._tags: list[tuple[object, int]] = []
        for view in views:
            self._observe(view)

    def close(self) -> None:
        """Leave no observer."""
        for interactor, tag in self._tags:
            interactor.RemoveObserver(tag)
        self._tags = []

    def _observe(self, view: DrawnView) -> None:
        def onPress(caller, event) -> None:
            if view.interactor.GetControlKey() and not view.interactor.GetShiftKey():
                # Slicer would turn or zoom with it.
                view.interactor.GetCommand(tag).SetAbortFlag(1)
                x, y = view.interactor.GetEventPosition()
                r, a, s, _w = view.sliceNode.GetXYToRAS().MultiplyPoint([x, y, 0.0, 1.0])
                self._onClick((r, a, s))

        tag = view.interactor.AddObserver("LeftButtonPressEvent", onPress, BEFORE_SLICER)
        self._tags.append((view.interactor, tag))
