"""Subprocess that checks recipes while the user types."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from pumit.client.worker import signal_tree
from pumit.errors import PumitError
from PUMITSlicerLib.computing.background import Background, Listening
from PUMITSlicerLib.computing.python_executable import SLICER_PYTHON, SlicerPython

OnAnswer = Callable[[str], None]


class RecipeChecker(Protocol):
    """Interface of checkers of recipes' keys."""

    def check(self, text: str, onAnswer: OnAnswer) -> None:
        """Check a text; pending earlier requests are dropped.

        Args:
            text: Recipe as YAML.
            onAnswer: Callback with the problem as a sentence, or "".
        """

    def cancel(self) -> None:
        """Drop all pending requests."""

    def close(self) -> None:
        """End the subprocess."""


class CheckerProgram:
    """Checker by `pumit plan - --check`, which is started with the first text.

    Loading the schema takes seconds, so the subprocess stays until `close`.

    Args:
        background: Threads that read the answers.
    """

    def __init__(self, background: Background, python: SlicerPython = SLICER_PYTHON) -> None:
        self._background = background
        self._python = python
        self._process: subprocess.Popen | None = None
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._listening: Listening | None = None
        # Callbacks of the pending texts, in order; None for dropped requests.
        self._waiting: list[OnAnswer | None] = []

    def check(self, text: str, onAnswer: OnAnswer) -> None:
        """Check a text."""
        self.cancel()
        if self._process is None and not self._start():
            onAnswer("")  # the training itself reports problems
            return
        self._waiting.append(onAnswer)
        self._lines.put((json.dumps(text) + "\n").encode())

    def cancel(self) -> None:
        """Drop all pending requests."""
        self._waiting = [None] * len(self._waiting)

    def close(self) -> None:
        """End the subprocess."""
        process, self._process = self._process, None
        self._waiting = []
        self._lines.put(None)
        if process is not None and process.poll() is None:
            signal_tree(process, force=True)
        if self._listening is not None:
            self._listening.release()
            self._listening = None

    def _start(self) -> bool:
        try:
            pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            process = self._python.open("pumit", ["plan", "-", "--check"], **pipes)
        except (OSError, PumitError):
            return False
        self._process, self._lines = process, queue.SimpleQueue()
        self._listening = self._background.listen()
        lines = self._lines
        threading.Thread(target=_write, args=(process, lines), daemon=True).start()
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return True

    def _read(self, process: subprocess.Popen) -> None:
        with process.stdout:
            for line in process.stdout:
                self._background.post(self._answer, process, line)
        process.wait()
        self._background.post(self._ended, process)

    def _answer(self, process: subprocess.Popen, line: bytes) -> None:
        if process is not self._process or not self._waiting:
            return
        onAnswer = self._waiting.pop(0)
        if onAnswer is not None:
            onAnswer(str(json.loads(line)["problem"]))

    def _ended(self, process: subprocess.Popen) -> None:
        """React when it ended by itself; the next text starts a new one."""
        if process is not self._process:
            return
        waiting = [onAnswer for onAnswer in self._waiting if onAnswer is not None]
        self.close()
        for onAnswer in waiting:
            onAnswer("")


def _write(process: subprocess.Popen, lines: queue.SimpleQueue[bytes | None]) -> None:
    """Write texts on a thread: a program does not read while it loads, and pipes are small."""
    with suppress(OSError, ValueError), process.stdin:
        while (line := lines.get()) is not None:
            process.stdin.write(line)
            process.stdin.flush()
