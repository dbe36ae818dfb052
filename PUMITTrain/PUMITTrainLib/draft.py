"""Folder of a run that is being prepared: checked and planned, but not started."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from pumit.errors import ServiceError
from pumit.system.process import is_running, process_mark
from slicer.i18n import tr as _

MARK = ".draft"


class Draft:
    """Folder for data and recipe, which becomes the run's when it is started.

    Raises:
        ServiceError: If the folder cannot be created.
    """

    def __init__(self, root: Path, name: str) -> None:
        word = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:40] or "training"
        begin = f"{time.strftime('%Y-%m-%d_%H%M%S')}_{word}"
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.folder = _newFolder(root, begin)
            (self.folder / MARK).write_text(process_mark(os.getpid()) or "", encoding="utf-8")
            self.data.mkdir()
            self.thumbnails.mkdir()
        except OSError as error:
            raise ServiceError(
                _("The run's folder cannot be created: {reason}. Check $PUMIT_RUNS.").format(
                    reason=error.strerror
                )
            ) from error

    @property
    def data(self) -> Path:
        """Folder for cases of the scene."""
        return self.folder / "data"

    @property
    def thumbnails(self) -> Path:
        """Folder for thumbnails of the cases."""
        return self.folder / "thumbnails"

    @property
    def config(self) -> Path:
        """Input file of `pumit data` and `pumit plan`."""
        return self.folder / "config.yaml"

    @property
    def recipe(self) -> Path:
        """Recipe that `pumit train` runs."""
        return self.folder / "recipe.yaml"

    def keep(self) -> None:
        """Turn the draft into a run; the recipe has all settings."""
        self.config.unlink(missing_ok=True)
        (self.folder / MARK).unlink(missing_ok=True)

    def discard(self) -> None:
        """Delete the draft, unless it became a run."""
        if (self.folder / MARK).is_file():
            shutil.rmtree(self.folder, ignore_errors=True)


def removeAbandonedDrafts(root: Path) -> None:
    """Delete drafts of Slicer processes that have ended; on a thread."""
    with suppress(OSError):
        for folder in sorted(path for path in root.iterdir() if (path / MARK).is_file()):
            mark = (folder / MARK).read_text(encoding="utf-8", errors="replace")
            if is_running(mark) is False:
                shutil.rmtree(folder, ignore_errors=True)


def _newFolder(root: Path, name: str) -> Path:
    number = 1
    while True:
        folder = root / (name if number == 1 else f"{name}_{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder
