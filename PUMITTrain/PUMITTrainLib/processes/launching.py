"""Launcher of trainings as detached processes, which continue when Slicer is closed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from pumit.errors import ServiceError
from PUMITSlicerLib.computing.python_executable import SLICER_PYTHON, SlicerPython
from slicer.i18n import tr as _

# Output of the process before it writes its own log, and of libraries.
OUTPUT = "output.txt"


class Launcher(Protocol):
    """Interface of launchers of trainings."""

    def launch(self, folder: Path, arguments: Sequence[str]) -> int:
        """Start `pumit ARGUMENTS` for a run and return at once.

        Args:
            folder: Folder of the run.
            arguments: Command line, such as ["train", "recipe.yaml", "-o", "."].

        Returns:
            The process ID.

        Raises:
            ServiceError: If it cannot be started.
        """


class DetachedLauncher:
    """Launcher of trainings in their own session, with their output in a file of the run."""

    def __init__(self, python: SlicerPython = SLICER_PYTHON) -> None:
        self._python = python

    def launch(self, folder: Path, arguments: Sequence[str]) -> int:
        """Start a training; return its process ID."""
        command = self._python.command("pumit", arguments)
        environment = self._python.variables("pumit")
        try:
            with (folder / OUTPUT).open("ab") as output:
                process = _started(command, output, folder, environment)
        except OSError as error:
            raise ServiceError(
                _("The training could not start: {reason}.").format(reason=error.strerror)
            ) from error
        # An ended child stays in the process table until its status is read.
        threading.Thread(target=process.wait, name="pumit-training", daemon=True).start()
        return process.pid


def _started(
    command: list[str], output: IO[bytes], folder: Path, environment: dict[str, str]
) -> subprocess.Popen:
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": output,
        "stderr": subprocess.STDOUT,
        "env": environment,
        "cwd": folder,
    }
    if sys.platform != "win32":
        return subprocess.Popen(command, start_new_session=True, **options)
    flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
    try:
        # A job object around Slicer could end the training with it; breaking away may be forbidden.
        out_of_job = flags | subprocess.CREATE_BREAKAWAY_FROM_JOB
        return subprocess.Popen(command, creationflags=out_of_job, **options)
    except PermissionError:
        return subprocess.Popen(command, creationflags=flags, **options)


def last_words(folder: Path) -> str:
    """Return the last line of a run's output that is not a record; "" for none."""
    try:
        with (folder / OUTPUT).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4096))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    stripped = (line.strip() for line in reversed(lines))
    return next((line for line in stripped if line and not line.startswith("{")), "")
