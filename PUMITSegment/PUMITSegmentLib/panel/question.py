"""Questions that need an answer before anything is changed."""

from __future__ import annotations

import qt
import slicer
from slicer.i18n import tr as _


def confirm(question: str) -> bool:
    """Ask the user; No is what Enter and closing the window mean.

    Not by `slicer.util`, whose questions go to the log: they hold names of scans.
    """
    buttons = qt.QMessageBox.Yes | qt.QMessageBox.No
    window = slicer.util.mainWindow()
    answer = qt.QMessageBox.question(
        window, _("PUMIT Segment"), question, buttons, qt.QMessageBox.No
    )
    return answer == qt.QMessageBox.Yes
