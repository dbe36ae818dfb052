"""The mouse pointer in slice views: a cross with a plus inside a segment, with a minus outside."""

from __future__ import annotations

from typing import Any

import qt
import slicer

_SIZE, _MIDDLE, _GAP = 32, 15, 4
_SIGN = (21, 31)  # lower right of the cross
# The colours of points, and black around them, seen on any image.
_INSIDE_RGB, _OUTSIDE_RGB = (60, 220, 90), (255, 70, 60)


class ViewCursor:
    """Pointer of the slice views while prompts are placed.

    Args:
        logic: The module's logic.
    """

    def __init__(self, logic) -> None:
        self._logic = logic
        # Views with their slice nodes, and those of them that have a pointer of ours.
        self._views: list[tuple[Any, Any]] = []
        self._pointed: list[Any] = []

    def open(self) -> None:
        """Take up the views of the present layout."""
        self.close()
        manager = slicer.app.layoutManager()
        if manager is not None:
            widgets = [manager.sliceWidget(name) for name in manager.sliceViewNames()]
            self._views = [(w.sliceView(), w.mrmlSliceNode()) for w in widgets if w is not None]
        self.refresh()

    def refresh(self) -> None:
        """Follow what clicks place now, also where Slicer has set its own pointer since."""
        placed = self._logic.placed
        pointed = []
        if placed is not None:
            pointed = [view for view, node in self._views if self._logic.guard.nameIn(node)]
        self._set([view for view in self._pointed if view not in pointed], qt.QCursor())
        self._pointed = pointed
        if pointed:
            self._set(pointed, pointer(placed.isPositive))

    def close(self) -> None:
        """Give the views their usual pointer."""
        self._set(self._pointed, qt.QCursor())
        self._views, self._pointed = [], []

    @staticmethod
    def _set(views: list[Any], cursor: Any) -> None:
        for view in views:
            # As Slicer itself: the one of now, and the one after something was pointed at.
            view.setViewCursor(cursor)
            view.setDefaultViewCursor(cursor)


def pointer(isPositive: bool) -> Any:
    """Return a cross, open in its middle, whose sign and colour tell the side."""
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
