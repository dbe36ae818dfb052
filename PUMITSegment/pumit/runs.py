"""Status, log and commands of a training run, as small files in its folder.

The training process writes `status.json` and the logs. Other processes, such as the panel, read
them and write commands to `control`. They share nothing but the folder.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from pumit.errors import DiskFullError, ExportError, PumitError
from pumit.system.files import make_folder, write_text
from pumit.system.process import is_running, process_mark

RUNS_VARIABLE = "PUMIT_RUNS"
JSON_VARIABLE = "PUMIT_JSON"  # if set, a run prints JSON also to a terminal
STATUS = "status.json"
CONTROL = "control"
LOCK = "lock"
LOG = "log.jsonl"
TEXT_LOG = "log.txt"
RECIPE = "recipe.yaml"
PICTURES = "pictures"
ELSEWHERE = "elsewhere.txt"
COMPARISON = "comparison.json"  # in the folder of a comparison; its trainings are below

RunState = Literal["preparing", "training", "validating", "paused", "stopped", "finished", "failed"]
ENDED: frozenset[str] = frozenset({"stopped", "finished", "failed"})
ControlCommand = Literal["pause", "resume", "stop", "finish"]

# A process that cannot be checked, as on another machine, counts as ended after this silence.
SILENCE_SECONDS = 60.0
TRIES = 5  # attempts to read a file that is being replaced
TRY_SECONDS = 0.05


@dataclass
class RunStatus:
    """Status of a run, the content of `status.json`.

    Attributes:
        sentence: Message for the user; the reason if the run has failed.
        steps: Steps planned; fewer are done if a budget of seconds ends first.
        seconds: Seconds used, without pauses.
        model: File name of the best checkpoint, or None.
        registered: Name in the user's model index, or None.
        pid: Process ID, by default of this process.
        mark: `process_mark`, which distinguishes the process from a later one with the same ID.
        updated: Time of writing, Unix time; `write_status` sets it.
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
        """Whether its process is running, also while paused."""
        return self.state not in ENDED and is_process_alive(
            self.pid, self.host, self.mark, self.updated
        )

    @property
    def is_interrupted(self) -> bool:
        """Whether its process ended without a final status, for example because it was killed."""
        return self.state not in ENDED and not self.is_alive


def is_process_alive(pid: int, host: str, mark: str | None, updated: float) -> bool:
    """Return whether the process that wrote a status is still running.

    Args:
        mark: `process_mark` of the process, or None.
    """
    is_recent = abs(time.time() - updated) < SILENCE_SECONDS
    if host != socket.gethostname():
        return is_recent
    if mark and not mark.startswith(f"{pid} "):
        return False
    running = is_running(mark or f"{pid} ")
    # If unknown, such as without psutil, it counts as alive as long as it writes.
    return is_recent if running is None else running


def runs_folder() -> Path:
    """Return the folder of this user's runs: $PUMIT_RUNS, or ~/.pumit/runs."""
    given = os.environ.get(RUNS_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".pumit" / "runs"


def remember_run(folder: Path) -> None:
    """Remember a run outside `runs_folder()`, so that it is listed."""
    here = folder.absolute()
    if here.parent == runs_folder().absolute():
        return
    others = [known for known in remembered_runs() if known != here]
    with suppress(ExportError):  # only a convenience
        make_folder(runs_folder())
        write_text(runs_folder() / ELSEWHERE, "".join(f"{p}\n" for p in [here, *others[:99]]))


def remembered_runs() -> list[Path]:
    """Return the folders stored by `remember_run`, the latest first."""
    try:
        lines = (runs_folder() / ELSEWHERE).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    return [Path(line) for line in lines if line]


def read_status(folder: Path) -> RunStatus | None:
    """Read the status of the run in a folder; None if there is no run."""
    for attempt in range(TRIES):
        try:
            content = json.loads((folder / STATUS).read_text(encoding="utf-8"))
            return _status_of(content)
        except (FileNotFoundError, NotADirectoryError, TypeError):
            return None
        except (OSError, ValueError):
            # It is being replaced, or rewritten in place because the disk is full.
            if attempt + 1 < TRIES:
                time.sleep(TRY_SECONDS)
    return None


def _status_of(content: Any) -> RunStatus | None:
    if not isinstance(content, dict) or content.get("state") not in get_args(RunState):
        return None
    # Ignore fields of later versions.
    known = {field.name for field in fields(RunStatus)}
    status = RunStatus(**{key: value for key, value in content.items() if key in known})
    return status if isinstance(content.get("pid"), int) else None


def write_status(folder: Path, status: RunStatus) -> None:
    """Write the status of a run; sets `status.updated`.

    If the disk is too full for another file, the old one is overwritten in place.

    Raises:
        ExportError: If the folder cannot be written.
    """
    status.updated = round(time.time(), 1)
    text = json.dumps(asdict(status), ensure_ascii=False)
    try:
        write_text(folder / STATUS, text)
    except ExportError as error:
        try:
            with (folder / STATUS).open("rb+") as file:
                old = file.seek(0, os.SEEK_END)
                file.seek(0)
                file.write(text.encode().ljust(old))  # its blocks are already allocated
        except OSError:
            raise error from None


def send_command(folder: Path, command: ControlCommand) -> None:
    """Send a command to the run of a folder, which executes it between two steps.

    Args:
        command: "pause", "resume", "stop" (save and end; the run can be resumed later) or
            "finish" (end with the best model so far).

    On a full disk, "stop" is sent to a run of this computer as a signal.

    Raises:
        PumitError: If the command is unknown.
        ExportError: If the folder cannot be written.
    """
    if command not in get_args(ControlCommand):
        raise PumitError(
            f"A command to a run must be one of {', '.join(get_args(ControlCommand))}, got "
            f"{command!r}."
        )
    try:
        write_text(folder / CONTROL, command, what="The command")
    except DiskFullError:
        status = read_status(folder)
        if command != "stop" or status is None or sys.platform == "win32":
            raise
        if status.host != socket.gethostname() or not status.is_alive:
            raise
        os.kill(status.pid, signal.SIGTERM)


def read_command(folder: Path) -> ControlCommand | None:
    """Return the pending command of the run of a folder, or None."""
    with suppress(OSError, UnicodeDecodeError):
        command = (folder / CONTROL).read_text(encoding="utf-8").strip().lower()
        for known in get_args(ControlCommand):
            if command == known:
                return known
    return None


def read_log(folder: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return new records of a run's log.

    Args:
        offset: Offset that the last call returned, bytes; 0 reads from the start.

    Returns:
        The records, and the offset for the next call. An incomplete last line is left for the next
        call; lines that are not JSON are skipped. A log shorter than the offset is a new one and is
        read from the start.
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


def _listed_status(folder: Path) -> RunStatus | None:
    """Return the status of a run, "stopped" if its file is damaged; None if there is no run."""
    status = read_status(folder)
    with suppress(OSError):
        if status is None and (folder / STATUS).is_file():
            return RunStatus(
                "stopped",
                "The status file is damaged. Resume the run; it continues from its last save.",
                name=folder.name,
                updated=(folder / STATUS).stat().st_mtime,
            )
    return status


def list_runs(root: Path | None = None) -> list[tuple[Path, RunStatus]]:
    """List this user's runs with their status, the latest first.

    A run with a damaged status file counts as stopped.

    Args:
        root: Folder of the runs; None for `runs_folder()`.
    """
    root = runs_folder() if root is None else root
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return []
    return runs_in(folders)


def runs_in(folders: Iterable[Path]) -> list[tuple[Path, RunStatus]]:
    """List the runs among some folders with their status, the latest first."""
    found = [(folder, status) for folder in folders if (status := _listed_status(folder))]
    return sorted(found, key=lambda run: run[1].updated, reverse=True)
