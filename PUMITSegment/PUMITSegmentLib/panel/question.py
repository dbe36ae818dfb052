"""Confirmation dialogs."""

from __future__ import annotations

import qt
import slicer
from slicer.i18n import tr as _


def confirm(question: str) -> bool:
    """Ask the user a question; Enter and closing the window mean No.

    `slicer.util` is not used: it logs its questions, which contain names of scans.
    """
    buttons = qt.QMessageBox.Yes | qt.QMessageBox.No
    window = slicer.util.mainWindow()
    answer = qt.QMessageBox.question(
        window, _("PUMIT Segment"), question, buttons, qt.QMessageBox.No
    )
    return answer == qt.QMessageBox.Yes
