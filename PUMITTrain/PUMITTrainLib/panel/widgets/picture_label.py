"""Label that shows an image file at the panel's width."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import qt
from slicer.i18n import tr as _

# Margins on both sides of a section's content.
_MARGINS = 24
_HIGHEST = 240  # maximum height, pixels


class PictureLabel:
    """QLabel with a PNG, scaled down in a narrow panel, and hidden without a picture.

    Args:
        label: The QLabel; it must not request a width.
    """

    def __init__(self, label) -> None:
        self._label = label
        self._shown: tuple[Any, ...] = ()
        # Text in the picture is too small to read in a narrow panel.
        self._opener = _Opener(lambda: self._shown[0] if self._shown else None)
        label.installEventFilter(self._opener)
        label.setCursor(qt.QCursor(qt.Qt.PointingHandCursor))
        label.toolTip = _("{what}. Click to see it in full size.").format(
            what=label.toolTip.rstrip(".")
        )
        label.hide()

    def show(self, path: Path | None) -> None:
        """Show a file; hide the label if it is missing or not an image."""
        # A hidden label has no width yet.
        width = max(self._label.parentWidget().width - _MARGINS, 1)
        try:
            key = (path, path.stat().st_mtime_ns, width) if path is not None else ()
        except OSError:
            key = ()
        if key == self._shown:
            return
        self._shown = key
        pixmap = qt.QPixmap(str(path)) if key else None
        isShown = pixmap is not None and not pixmap.isNull()
        self._label.visible = isShown
        if not isShown:
            return
        if pixmap.width() > width or pixmap.height() > _HIGHEST:
            pixmap = pixmap.scaled(
                qt.QSize(width, _HIGHEST),
                qt.Qt.KeepAspectRatio,
                qt.Qt.SmoothTransformation,
            )
        self._label.setPixmap(pixmap)
        # The size policy ignores the picture's size, so the height must be set.
        self._label.setMinimumHeight(pixmap.height())


class _Opener(qt.QObject):
    """Event filter that opens the file in the system's viewer at a click."""

    def __init__(self, path: Callable[[], Path | None]) -> None:
        super().__init__()
        self._path = path

    def eventFilter(self, target, event) -> bool:
        path = self._path()
        if event.type() == qt.QEvent.MouseButtonRelease and path is not None:
            qt.QDesktopServices.openUrl(qt.QUrl.fromLocalFile(str(path)))
        return False
