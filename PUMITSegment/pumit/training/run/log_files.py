"""Status and log of a run: `status.json`, `log.jsonl` and `log.txt` in its folder."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pumit.errors import ExportError
from pumit.runs import JSON_VARIABLE, LOG, TEXT_LOG, RunStatus, read_status, write_status
from pumit.training.run.log_text import sentence_of

logger = logging.getLogger(__name__)


class RunJournal:
    """Write status and log of a run; may be used from any thread.

    Nothing of it ends a run: what a full disk refuses is kept and written when there is room, and
    when nobody reads standard output any more, nothing is written there.
    """

    def __init__(self, folder: Path, *, name: str = "", task: str = "") -> None:
        self.folder = folder
        self.status = RunStatus("preparing", "Starting.", name=name, task=task)
        before = read_status(folder)
        if before is not None:  # a run that is taken up has what it had
            changes: dict[str, Any] = {
                "step": before.step,
                "steps": before.steps,
                "seconds": before.seconds,
            }
            if before.model and (folder / before.model).is_file():
                changes |= {"model": before.model, "best_step": before.best_step}
            self.status = replace(self.status, **changes)
        self._lock = threading.RLock()
        self._waiting: dict[str, list[str]] = {LOG: [], TEXT_LOG: []}
        self._has_reader = True
        for log in self._waiting:
            _end_last_line(folder / log)

    def record(self, record: dict[str, Any], *, prints: bool = True) -> None:
        """A record for the logs; the status takes what it tells.

        Args:
            record: Values that JSON can hold.
        """
        line = json.dumps(record)
        with self._lock:
            self._append(LOG, line)
            self._note(record)
            sentence = sentence_of(record, self.status.steps)
            if sentence:
                self.write_text(sentence)
            printed = sentence if self._is_for_people() else line
            if prints and printed:
                self._print(printed)

    def write_text(self, sentence: str) -> None:
        """A sentence for the log that a person reads."""
        with self._lock:
            clock = time.strftime("%Y-%m-%d %H:%M:%S")
            self._append(TEXT_LOG, f"{clock}  {' '.join(sentence.split())}")

    def update_status(self, **changes: Any) -> None:
        """Change fields of the status, and write it."""
        with self._lock:
            self.status = replace(self.status, **changes)
        self.write_status()

    def write_status(self) -> None:
        """Write the status as it is, so that readers know the process lives."""
        with self._lock:
            try:
                write_status(self.folder, self.status)
            except ExportError as error:
                logger.debug("%s", error)
            for name in self._waiting:
                self._flush(name)

    def _note(self, record: dict[str, Any]) -> None:
        changes: dict[str, Any] = {}
        if isinstance(record.get("step"), int):
            changes["step"] = record["step"]
        for key in ("seconds", "left_seconds"):
            if key in record:
                changes[key] = record[key]
        if isinstance(record.get("model"), str):
            changes["model"] = record["model"]
        self.status = replace(self.status, **changes)

    def _is_for_people(self) -> bool:
        """Return whether standard output is a terminal, and no JSON was requested there."""
        try:
            return sys.stdout.isatty() and not os.environ.get(JSON_VARIABLE)
        except (AttributeError, ValueError):  # there is none, or it is closed
            return False

    def _print(self, line: str) -> None:
        if not self._has_reader:
            return
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            # Whoever started the run has gone; the run has not.
            self._has_reader = False
            _mute()

    def _append(self, name: str, line: str) -> None:
        self._waiting[name].append(line + "\n")
        self._flush(name)

    def _flush(self, name: str) -> None:
        """Write what waits; what finds no room waits on."""
        waiting = self._waiting[name]
        if not waiting:
            return
        content = "".join(waiting).encode()
        try:
            with (self.folder / name).open("ab", buffering=0) as log:
                start = log.tell()
                written = log.write(content)
                if written < len(content):
                    log.truncate(start)
                    return
        except OSError as error:
            logger.debug("the log cannot be written: %s", error.strerror)
            return
        waiting.clear()


def _mute() -> None:
    """Let standard output lead nowhere, lest Python complains of it at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_last_line(log: Path) -> None:
    """End the line that a killed process left half-written, so that the next begins anew."""
    # An empty or missing log has no place before its end, which is an OSError too.
    with suppress(OSError), log.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
