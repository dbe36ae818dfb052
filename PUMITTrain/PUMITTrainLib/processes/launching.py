"""Starts a training as a detached process, which continues when Slicer is closed."""

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

# What the process says before it writes its own log, and what libraries say.
OUTPUT = "output.txt"


class Launcher(Protocol):
    """Starts trainings."""

    def launch(self, folder: Path, arguments: Sequence[str]) -> int:
        """Start `pumit ARGUMENTS` for a run and return at once.

        Args:
            folder: Folder of the run.
            arguments: Command line, such as ["train", "recipe.yaml", "-o", "."].

        Returns:
            The process id.

        Raises:
            ServiceError: If it cannot be started.
        """


class DetachedLauncher:
    """Starts trainings in their own session, their output in a file of the run.

    Args:
        python: Runs programs.
    """

    def __init__(self, python: SlicerPython = SLICER_PYTHON) -> None:
        self._python = python

    def launch(self, folder: Path, arguments: Sequence[str]) -> int:
        """Start a training; returns its process id."""
        command = self._python.command("pumit", arguments)
        environment = self._python.variables("pumit")
        try:
            with (folder / OUTPUT).open("ab") as output:
                process = _started(command, output, folder, environment)
        except OSError as error:
            raise ServiceError(
                _("The training could not start: {reason}.").format(reason=error.strerror)
            ) from error
        # A child that ended stays in the system's table until someone asks for its status.
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
        # Its parent may end all that it started; not everybody lets it out of that.
        out_of_job = flags | subprocess.CREATE_BREAKAWAY_FROM_JOB
        return subprocess.Popen(command, creationflags=out_of_job, **options)
    except PermissionError:
        return subprocess.Popen(command, creationflags=flags, **options)


def last_words(folder: Path) -> str:
    """Return the last line of a run's output that is no record; empty where there is none."""
    try:
        with (folder / OUTPUT).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4096))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    stripped = (line.strip() for line in reversed(lines))
    return next((line for line in stripped if line and not line.startswith("{")), "")
