"""Selecting a segment by a click in a slice view, while nothing is placed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PUMITSegmentLib.prompts.drawing.freehand import DrawnView, openSliceViews
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.at_place import segmentsAt

# Pixels: press and release farther apart are a drag, which adjusts the window or pans.
_CLICK = 3


class SegmentPicking:
    """Selection of segments by clicks in slice views; Slicer still gets every event."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._pressed: tuple[Any, tuple[int, int]] | None = None
        self._tags: list[tuple[Any, int]] = []

    def open(self) -> None:
        """Observe the views of the current layout."""
        self.close()
        for view in openSliceViews():
            for event, react in (
                ("LeftButtonPressEvent", self._onPress),
                ("LeftButtonReleaseEvent", self._onRelease),
            ):
                observer = _observer(react, view)
                self._tags.append((view.interactor, view.interactor.AddObserver(event, observer)))

    def close(self) -> None:
        """Remove all observers."""
        for interactor, tag in self._tags:
            interactor.RemoveObserver(tag)
        self._tags = []

    def _onPress(self, view: DrawnView) -> None:
        interactor = view.interactor
        isPlain = not (interactor.GetShiftKey() or interactor.GetControlKey())
        canPick = isPlain and not self._selection.isPlacing
        self._pressed = (interactor, interactor.GetEventPosition()) if canPick else None

    def _onRelease(self, view: DrawnView) -> None:
        pressed, self._pressed = self._pressed, None
        node = self._selection.segmentationNode
        if pressed is None or pressed[0] is not view.interactor or node is None:
            return
        x, y = view.interactor.GetEventPosition()
        if (
            max(abs(x - pressed[1][0]), abs(y - pressed[1][1])) > _CLICK
            or self._selection.isPlacing
        ):
            return
        if not self._selection.guard.nameIn(view.sliceNode):
            return  # another scan is shown here
        found = segmentsAt(node, view.sliceNode.GetXYToRAS().MultiplyPoint([x, y, 0, 1])[:3])
        if found:
            self._selection.selectSegment(found[0])


def _observer(react: Callable[[DrawnView], None], view: DrawnView) -> Callable[..., None]:
    return lambda caller, event: react(view)
