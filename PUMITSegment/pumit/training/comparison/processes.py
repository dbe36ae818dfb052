"""The processes of a comparison's trainings: each one is an ordinary `pumit train`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pumit
from pumit.errors import ExportError
from pumit.runs import ControlCommand, read_status, send_command
from pumit.system.interpreter import start_program

RESEND_SECONDS = 1.0  # a command sent before the run starts is lost, so it is sent again
END_SECONDS = 10.0  # for a process to end that was stopped at once
# What libraries would otherwise start a thread of for every core.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass
class _Started:
    process: subprocess.Popen[bytes]
    folder: Path
    errors: IO[bytes]


class TrainingProcesses:
    """Trainings that run now; on leaving, those that still do are ended."""

    def __init__(self) -> None:
        self._running: dict[str, _Started] = {}

    def __enter__(self) -> TrainingProcesses:
        """Nothing runs yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """End what runs, which has saved what it had at its last save."""
        for one in self._running.values():
            one.process.terminate()
        for one in self._running.values():
            try:
                one.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
            one.errors.close()
        self._running.clear()

    @property
    def count(self) -> int:
        """How many run."""
        return len(self._running)

    @property
    def sentence(self) -> str:
        """How those that run are, for a person."""
        parts = []
        for title, one in self._running.items():
            status = read_status(one.folder)
            parts.append(f"{title}: {status.sentence if status else 'Starting.'}")
        return " ".join(parts)

    def start(self, title: str, recipe: Path, folder: Path, threads: int) -> None:
        """Start a training, or continue with it."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        process = start_program(
            [sys.executable, "-m", "pumit", "train", str(recipe), "-o", str(folder)],
            dict.fromkeys(THREADS, str(threads)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=Path(pumit.__file__).resolve().parent.parent,
        )
        self._running[title] = _Started(process, folder, errors)

    def ended(self) -> Iterator[tuple[str, str]]:
        """Titles of those that have ended since the last look, and their complaint or ""."""
        for title, one in list(self._running.items()):
            status = one.process.poll()
            if status is not None:
                del self._running[title]
                one.errors.seek(0)
                text = one.errors.read().decode(errors="replace")
                one.errors.close()
                yield title, _error_message(status, text)

    def send(self, word: ControlCommand) -> None:
        """Ask all for something, as `pumit runs` does."""
        for one in self._running.values():
            with suppress(ExportError):  # its folder is not made yet, or the disk is full
                send_command(one.folder, word)

    def stop(self) -> None:
        """Have all save and end, and wait for it."""
        while any(one.process.poll() is None for one in self._running.values()):
            self.send("stop")
            until = time.monotonic() + RESEND_SECONDS
            for one in self._running.values():
                with suppress(subprocess.TimeoutExpired):
                    one.process.wait(max(until - time.monotonic(), 0.0))


def end_orphan(folder: Path) -> None:
    """Have a process save and end that an earlier start of the comparison left in a folder.

    Raises:
        ExportError: If the folder cannot be written.
    """
    while (status := read_status(folder)) is not None and status.is_alive:
        send_command(folder, "stop")
        time.sleep(RESEND_SECONDS)


def _error_message(status: int, output: str) -> str:
    """Return the error of a process that ended, in a line."""
    if status == 0:
        return ""
    if status < 0:
        return (
            f"The system ended it (signal {-status}), most often for want of memory; started "
            "again, it goes on."
        )
    lines = [line for line in output.splitlines() if line.strip()]
    last = " ".join((lines or ["it said nothing."])[-1].split())
    return last.removeprefix("pumit train: ")
