"""Running `python -m pumit ...` on threads, with its output line by line."""

from __future__ import annotations

import re
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from pumit.client.worker import signal_tree
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.python_executable import SLICER_PYTHON, SlicerPython

OnLine = Callable[[str], None]
# Arguments: exit status, and the last line of standard error, which has the message.
OnEnd = Callable[[int, str], None]

_KEPT_LINES = 40
# The command's name means nothing to users of the panel.
_PREFIX = re.compile(r"^pumit \w+: ")


class Programs(Protocol):
    """Interface of runners of the core's commands."""

    def run(self, arguments: Sequence[str], onLine: OnLine, onEnd: OnEnd) -> Callable[[], None]:
        """Start `pumit ARGUMENTS` and return at once.

        Args:
            arguments: Command line, such as ["data", "config.yaml", "--json"].
            onLine: Callback with each line of output, on the GUI thread.
            onEnd: Callback with exit status and last error line, on the GUI thread.

        Returns:
            Function that kills its process tree; neither callback is called after that.
        """


class CorePrograms:
    """Runner of commands with Slicer's Python.

    Args:
        background: Threads that read output.
    """

    def __init__(self, background: Background, python: SlicerPython = SLICER_PYTHON) -> None:
        self._background = background
        self._python = python

    def run(self, arguments: Sequence[str], onLine: OnLine, onEnd: OnEnd) -> Callable[[], None]:
        """Start a command; the returned function kills it."""
        started: list[subprocess.Popen] = []
        isEnded = threading.Event()

        def pass_on(line: str) -> None:
            if not isEnded.is_set():
                onLine(line)

        def work() -> tuple[int, str]:
            process = self._python.open("pumit", arguments, stderr=subprocess.PIPE)
            started.append(process)
            if isEnded.is_set():
                signal_tree(process, force=True)
            errorLines: deque[str] = deque(maxlen=_KEPT_LINES)
            reader = threading.Thread(
                target=_read, args=(process.stderr, errorLines.append), daemon=True
            )
            reader.start()
            _read(process.stdout, lambda line: self._background.post(pass_on, line))
            status = process.wait()
            reader.join()
            message = next((line for line in reversed(errorLines) if line.strip()), "")
            return status, _PREFIX.sub("", message)

        def end() -> None:
            isEnded.set()
            for process in started:
                if process.poll() is None:
                    signal_tree(process, force=True)

        job = self._background.submit(
            work,
            lambda result: onEnd(*result),
            lambda error: onEnd(-1, str(error)),
            onCancel=end,
        )
        return job.cancel


def _read(pipe, take: Callable[[str], object]) -> None:
    """Pass on every line; a full pipe would block the program."""
    with pipe:
        for line in pipe:
            take(line.decode("utf-8", errors="replace").rstrip())
