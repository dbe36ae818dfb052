"""Slicer's file dialogs, replaceable in tests."""

from __future__ import annotations

import qt
from slicer.i18n import tr as _

_FOLDER_KEY = "PUMIT/modelFolder"
MODEL_SUFFIX = ".pumit.zip"


class FileDialogs:
    """File dialogs.

    Args:
        parent: Parent widget of the dialogs.
        settings: Store of the last folder.
    """

    def __init__(self, parent, settings) -> None:
        self._parent = parent
        self._settings = settings

    def saveModel(self, name: str) -> str:
        """Return the file for a model's export; "" if cancelled."""
        folder = self._settings.value(_FOLDER_KEY, "") or qt.QDir.homePath()
        path = qt.QFileDialog.getSaveFileName(
            self._parent,
            _("Export the model"),
            f"{folder}/{name}{MODEL_SUFFIX}",
            _("PUMIT model ({pattern})").format(pattern=f"*{MODEL_SUFFIX}"),
        )
        return self._remember(path)

    def openModel(self) -> str:
        """Return the model file to import; "" if cancelled."""
        path = qt.QFileDialog.getOpenFileName(
            self._parent,
            _("Import a model"),
            self._settings.value(_FOLDER_KEY, "") or qt.QDir.homePath(),
            _("PUMIT model ({pattern})").format(pattern=f"*{MODEL_SUFFIX}"),
        )
        return self._remember(path)

    def folder(self, title: str) -> str:
        """Return a folder; "" if cancelled."""
        start = self._settings.value(_FOLDER_KEY, "") or qt.QDir.homePath()
        return qt.QFileDialog.getExistingDirectory(self._parent, title, start) or ""

    def _remember(self, path: str) -> str:
        if path:
            self._settings.setValue(_FOLDER_KEY, str(qt.QFileInfo(path).absolutePath()))
        return path or ""
