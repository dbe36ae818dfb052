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
        self._views: list[Any] = []

    def refresh(self) -> None:
        """Follow what clicks place now, also where Slicer has set its own pointer meanwhile."""
        placed, manager = self._logic.placed, slicer.app.layoutManager()
        if placed is None or manager is None:
            self.close()
            return
        widgets = [manager.sliceWidget(name) for name in manager.sliceViewNames()]
        views = [
            widget.sliceView()
            for widget in widgets
            if widget is not None and self._logic.guard.nameIn(widget.mrmlSliceNode())
        ]
        self._set([view for view in self._views if view not in views], qt.QCursor())
        self._views = views
        self._set(views, pointer(placed.isPositive))

    def close(self) -> None:
        """Give the views their usual pointer."""
        views, self._views = self._views, []
        self._set(views, qt.QCursor())

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
