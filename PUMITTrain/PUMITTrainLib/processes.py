"""Subprocesses of the core: commands, detached trainings, and the checker of recipes."""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from pumit.client.worker import signal_tree
from pumit.errors import PumitError, ServiceError
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.python_executable import SLICER_PYTHON, SlicerPython
from slicer.i18n import tr as _

logger = logging.getLogger(__name__)

OnLine = Callable[[str], None]
# Arguments: exit status, and the last line of standard error, which has the message.
OnEnd = Callable[[int, str], None]

_KEPT_LINES = 40
# The command's name means nothing to users of the panel.
_PREFIX = re.compile(r"^pumit \w+: ")
# Output of the process before it writes its own log, and of libraries.
OUTPUT = "output.txt"


class CorePrograms:
    """Runner of commands with Slicer's Python."""

    def __init__(self, background: Background, python: SlicerPython = SLICER_PYTHON) -> None:
        self._background = background
        self._python = python

    def run(self, arguments: Sequence[str], onLine: OnLine, onEnd: OnEnd) -> Callable[[], None]:
        """Start `pumit ARGUMENTS` and return at once.

        Args:
            onEnd: Callback with exit status and last error line, on the GUI thread.

        Returns:
            Function that kills its process tree; neither callback is called after that.
        """
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


def recordOf(line: str) -> Mapping[str, Any]:
    """Parse a line of JSON that a program printed; empty for any other line."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, Mapping) else {}


class DetachedLauncher:
    """Launcher of trainings in their own session, which continue when Slicer is closed.

    Their output is in a file of the run.
    """

    def __init__(self, python: SlicerPython = SLICER_PYTHON) -> None:
        self._python = python

    def launch(self, folder: Path, arguments: Sequence[str]) -> int:
        """Start `pumit ARGUMENTS` for a run; return its process ID.

        Raises:
            ServiceError: If it cannot be started.
        """
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


OnAnswer = Callable[[str], None]


class CheckerProgram:
    """Checker by `pumit plan - --check`, which is started with the first text.

    Loading the schema takes seconds, so the subprocess stays until `close`.
    """

    def __init__(self, background: Background, python: SlicerPython = SLICER_PYTHON) -> None:
        self._background = background
        self._python = python
        self._process: subprocess.Popen | None = None
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._endListening: Callable[[], None] | None = None
        # Callbacks of the pending texts, in order; None for dropped requests.
        self._waiting: list[OnAnswer | None] = []

    def check(self, text: str, onAnswer: OnAnswer) -> None:
        """Check a text, instead of pending ones; "" means that there is no problem."""
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
        if self._endListening is not None:
            self._endListening()
            self._endListening = None

    def _start(self) -> bool:
        try:
            pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            process = self._python.open("pumit", ["plan", "-", "--check"], **pipes)
        except (OSError, PumitError):
            return False
        self._process, self._lines = process, queue.SimpleQueue()
        self._endListening = self._background.listen()
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


def sentenceOf(error: Exception) -> str:
    """Return one sentence for an error from a thread."""
    if isinstance(error, PumitError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return _("The file no longer exists; choose another one.")
    if isinstance(error, OSError) and error.strerror:
        return _("The operating system reported: {reason}.").format(reason=error.strerror)
    logger.error("Work failed", exc_info=error)
    return _("Internal error ({kind}); see the log.").format(kind=type(error).__name__)
