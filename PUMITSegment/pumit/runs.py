"""What a training run and whoever watches it say to each other: small files in its folder.

A run belongs to no window: the process that trains writes `status.json` and the logs, whoever wants
something of it writes `control`, and both find each other again by the folder alone.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from pumit.errors import ExportError, PumitError
from pumit.system.atomic import atomic_path
from pumit.system.process import is_running, process_mark

RUNS_VARIABLE = "PUMIT_RUNS"
STATUS = "status.json"
CONTROL = "control"
LOCK = "lock"
LOG = "log.jsonl"
TEXT_LOG = "log.txt"
RECIPE = "recipe.yaml"
PICTURES = "pictures"

RunState = Literal["preparing", "training", "validating", "paused", "stopped", "finished", "failed"]
ENDED: frozenset[str] = frozenset({"stopped", "finished", "failed"})
ControlCommand = Literal["pause", "resume", "stop", "finish"]

# Where the process cannot be looked for, on another machine, silence of this length is its end.
SILENCE_SECONDS = 60.0
TRIES = 5  # to read a file that is just being replaced
TRY_SECONDS = 0.05


@dataclass
class RunStatus:
    """How a run is, as `status.json` says.

    Attributes:
        state: What it is doing.
        sentence: What a person should read now; of a failed run the reason.
        name: Of the model that is made.
        task: What is trained, such as "segmentation".
        step: Steps done.
        steps: Steps in all; fewer are done where a budget of seconds ends before.
        seconds: Of its time that are used, without pauses.
        left_seconds: Until the end, as far as can be told.
        model: File name of the best checkpoint, where there is one.
        best_step: The step that it was validated at.
        registered: Its name in the user's model index, where it is entered there.
        pid: Number of the process, this one where it is not said.
        host: Machine of the process.
        mark: What tells the process from a later one of the same number.
        updated: When it was written, Unix time; `write_status` sets it.
    """

    state: RunState
    sentence: str = ""
    name: str = ""
    task: str = ""
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    left_seconds: float | None = None
    model: str | None = None
    best_step: int | None = None
    registered: str | None = None
    pid: int = 0
    host: str = ""
    mark: str | None = None
    updated: float = 0.0

    def __post_init__(self) -> None:
        if not self.pid:
            self.pid, self.host = os.getpid(), socket.gethostname()
            self.mark = process_mark(self.pid)

    @property
    def is_alive(self) -> bool:
        """Whether a process is at work on it, or pauses."""
        return self.state not in ENDED and lives(self.pid, self.host, self.mark, self.updated)

    @property
    def is_interrupted(self) -> bool:
        """Whether its process is gone without an end: killed, or the machine was switched off."""
        return self.state not in ENDED and not self.is_alive


def lives(pid: int, host: str, mark: str | None, updated: float) -> bool:
    """Whether a process that wrote something about itself is still there.

    Args:
        pid: Its number.
        host: Its machine.
        mark: Its `process_mark`, where it had one.
        updated: When it last wrote, Unix time.
    """
    is_recent = abs(time.time() - updated) < SILENCE_SECONDS
    if host != socket.gethostname():
        return is_recent
    if mark and not mark.startswith(f"{pid} "):
        return False
    running = is_running(mark or f"{pid} ")
    # Where nobody can say, such as without psutil, it lives as long as it writes.
    return is_recent if running is None else running


def runs_folder() -> Path:
    """Where runs of this user lie, one folder each: $PUMIT_RUNS, or ~/.pumit/runs."""
    given = os.environ.get(RUNS_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".pumit" / "runs"


def read_status(folder: Path) -> RunStatus | None:
    """How the run of a folder is, or None where the folder tells of none."""
    for attempt in range(TRIES):
        try:
            content = json.loads((folder / STATUS).read_text(encoding="utf-8"))
            return _status_of(content)
        except (FileNotFoundError, NotADirectoryError, TypeError):
            return None
        except (OSError, ValueError):
            # It is being replaced, or rewritten where the disk is full.
            if attempt + 1 < TRIES:
                time.sleep(TRY_SECONDS)
    return None


def _status_of(content: Any) -> RunStatus | None:
    if not isinstance(content, dict) or content.get("state") not in get_args(RunState):
        return None
    # A later version may tell more.
    known = {field.name for field in fields(RunStatus)}
    status = RunStatus(**{key: value for key, value in content.items() if key in known})
    return status if isinstance(content.get("pid"), int) else None


def write_status(folder: Path, status: RunStatus) -> None:
    """Write how a run is; sets `status.updated`.

    Where the disk is too full for another file, the old one is written over.

    Raises:
        ExportError: If the folder cannot be written.
    """
    status.updated = round(time.time(), 1)
    text = json.dumps(asdict(status), ensure_ascii=False)
    try:
        _replace_text(folder / STATUS, text)
    except ExportError as error:
        try:
            with (folder / STATUS).open("rb+") as file:
                old = file.seek(0, os.SEEK_END)
                file.seek(0)
                file.write(text.encode().ljust(old))  # its blocks are there already
        except OSError:
            raise error from None


def _replace_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def send_command(folder: Path, command: ControlCommand) -> None:
    """Send a command to the run of a folder, which follows it between two steps.

    Args:
        folder: Of the run.
        command: "pause", "resume", "stop" (save and end; the run can be resumed later) or
            "finish" (end with the best model so far).

    Raises:
        PumitError: If it is another command.
        ExportError: If the folder cannot be written.
    """
    if command not in get_args(ControlCommand):
        raise PumitError(
            f"A run can be asked for {', '.join(get_args(ControlCommand))}; got {command!r}."
        )
    _replace_text(folder / CONTROL, command)


def read_command(folder: Path) -> ControlCommand | None:
    """The command that the run of a folder was sent and has not followed yet."""
    with suppress(OSError, UnicodeDecodeError):
        command = (folder / CONTROL).read_text(encoding="utf-8").strip().lower()
        for known in get_args(ControlCommand):
            if command == known:
                return known
    return None


def read_log(folder: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Records of a run's log since the last look.

    Args:
        folder: Of the run.
        offset: Where the last look ended, in bytes; 0 reads from the start.

    Returns:
        The records, and the offset for the next look. A line that is still being written is left
        for it; a line that is none is passed over. Where the log is shorter than the offset, it is
        another one and read from the start.
    """
    try:
        with (folder / LOG).open("rb") as file:
            if offset > file.seek(0, os.SEEK_END):
                offset = 0
            file.seek(offset)
            content = file.read()
    except OSError:
        return [], offset
    whole = content[: content.rfind(b"\n") + 1]
    records = []
    for line in whole.splitlines():
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                records.append(record)
    return records, offset + len(whole)


def list_runs(root: Path | None = None) -> list[tuple[Path, RunStatus]]:
    """Runs of this user with their status, the last that wrote one first.

    Args:
        root: Folder whose folders are looked at; None for `runs_folder()`.
    """
    root = runs_folder() if root is None else root
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return []
    found = [(folder, status) for folder in folders if (status := read_status(folder))]
    return sorted(found, key=lambda run: run[1].updated, reverse=True)
