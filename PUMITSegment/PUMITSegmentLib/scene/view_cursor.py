"""Mouse pointer in slice views: a cross with a plus or a minus for the polarity of prompts."""

from __future__ import annotations

from typing import Any

import qt
import slicer

from PUMITSegmentLib.scene.selection import Selection

_SIZE, _MIDDLE, _GAP = 32, 15, 4
_SIGN = (21, 31)  # lower right of the cross
# The colours of points, outlined in black to be visible on any image.
_INSIDE_RGB, _OUTSIDE_RGB = (60, 220, 90), (255, 70, 60)


class ViewCursor:
    """Mouse pointer of the slice views while prompts are placed."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        # Views with their slice nodes, and the views that have our pointer.
        self._views: list[tuple[Any, Any]] = []
        self._pointed: list[Any] = []

    def open(self) -> None:
        """Use the views of the current layout."""
        self.close()
        manager = slicer.app.layoutManager()
        if manager is not None:
            widgets = [manager.sliceWidget(name) for name in manager.sliceViewNames()]
            self._views = [(w.sliceView(), w.mrmlSliceNode()) for w in widgets if w is not None]
        self.refresh()

    def refresh(self) -> None:
        """Update the pointer, also if Slicer has replaced it."""
        placed = self._selection.placed
        pointed = []
        if placed is not None:
            pointed = [view for view, node in self._views if self._selection.guard.nameIn(node)]
        self._set([view for view in self._pointed if view not in pointed], qt.QCursor())
        self._pointed = pointed
        if pointed:
            self._set(pointed, pointer(placed.isPositive))

    def close(self) -> None:
        """Restore the views' usual pointer."""
        self._set(self._pointed, qt.QCursor())
        self._views, self._pointed = [], []

    @staticmethod
    def _set(views: list[Any], cursor: Any) -> None:
        for view in views:
            # As Slicer does: the current pointer, and the one after hovering over an object.
            view.setViewCursor(cursor)
            view.setDefaultViewCursor(cursor)


def pointer(isPositive: bool) -> Any:
    """Return a cross with an open centre; sign and colour show the polarity."""
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
