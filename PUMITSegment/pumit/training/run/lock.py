"""One process at a time trains in a folder."""

from __future__ import annotations

import socket
from pathlib import Path

from filelock import FileLock, Timeout

from pumit.errors import ExportError, TrainingError
from pumit.runs import LOCK, RunStatus, read_status


class RunLock:
    """Hold a run's folder; the system frees it when the process ends, however it ends.

    A lock is seen by the processes of one machine. On a folder that several machines share, a run
    of another one counts as alive as long as its status is written.

    Raises:
        TrainingError: If another process trains there.
        ExportError: If the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        status = read_status(folder)
        if status is not None and status.host != socket.gethostname() and status.is_alive:
            raise _taken(folder, status)
        if not folder.is_dir():  # which the library would make
            raise ExportError("The output folder cannot be written: there is none.")
        self._lock = FileLock(folder / LOCK)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise _taken(folder, status) from None
        except OSError as error:
            reason = error.strerror or "the system refused"
            raise ExportError(f"The output folder cannot be written: {reason}.") from None

    def release(self) -> None:
        """Give the folder back; the empty file stays."""
        self._lock.release()


def _taken(folder: Path, status: RunStatus | None) -> TrainingError:
    who = "Another process"
    if status is not None:
        where = "" if status.host == socket.gethostname() else f" on {status.host}"
        who = f"Process {status.pid}{where}"
    return TrainingError(
        f"{who} is training in {folder.name} already; wait for it, end it with `pumit runs stop`, "
        "or choose another folder."
    )
