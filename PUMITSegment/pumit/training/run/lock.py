"""One process at a time trains in a folder."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pumit.errors import ExportError, TrainingError
from pumit.runs import LOCK, lives, read_status
from pumit.system.process_mark import process_mark

TRIES = 5
WRITING_SECONDS = 5.0


class RunLock:
    """Hold a run's folder.

    The file names the process, so that what a killed one leaves behind is known for what it is.

    Args:
        folder: Of the run; exists.

    Raises:
        TrainingError: If another process trains there.
        ExportError: If the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        pid = os.getpid()
        mine = {"pid": pid, "host": socket.gethostname(), "mark": process_mark(pid)}
        self.text = json.dumps({**mine, "updated": round(time.time(), 1)})
        for _ in range(TRIES):
            if self._create():
                return
            self._take_over()
        raise TrainingError("Another process is just starting to train in this folder.")

    def _create(self) -> bool:
        try:
            with self.path.open("x", encoding="utf-8") as file:
                file.write(self.text)
        except FileExistsError:
            return False
        except OSError as error:
            reason = error.strerror or "the system refused"
            raise ExportError(f"The output folder cannot be written: {reason}.") from None
        return True

    def _take_over(self) -> None:
        """Put aside what a process left that is gone."""
        stale = self._holder()
        if stale is None:
            return
        aside = self.path.with_name(f"{LOCK}.{secrets.token_hex(6)}")
        with suppress(FileNotFoundError):
            os.replace(self.path, aside)
            if _read(aside) != stale:  # somebody was faster and has it now
                os.replace(aside, self.path)
                return
            aside.unlink()

    def _holder(self) -> dict[str, Any] | None:
        """Who holds the folder, or None where it has just been given back.

        Raises:
            TrainingError: If they are alive.
        """
        found = _read(self.path)
        if found is None:
            return None
        pid, host, mark = (found.get(key) for key in ("pid", "host", "mark"))
        if not (isinstance(pid, int) and isinstance(host, str)):
            self._require_age()
            return found
        status = read_status(self.path.parent)
        updated = [float(found.get("updated", 0.0))]
        updated += [status.updated] if status is not None and status.pid == pid else []
        if lives(pid, host, mark, max(updated)):
            where = "" if host == socket.gethostname() else f" on {host}"
            raise TrainingError(
                f"Process {pid}{where} is training in {self.path.parent.name} already; wait for "
                f"it, end it with `pumit runs stop`, or choose another folder."
            )
        return found

    def _require_age(self) -> None:
        """A lock without a name is just being written, or its process was killed doing so."""
        with suppress(OSError):
            if abs(time.time() - self.path.stat().st_mtime) < WRITING_SECONDS:
                raise TrainingError("Another process is just starting to train in this folder.")

    def release(self) -> None:
        """Give the folder back, if it is still ours."""
        with suppress(OSError):
            if self.path.read_text(encoding="utf-8") == self.text:
                self.path.unlink()


def _read(path: Path) -> dict[str, Any] | None:
    """What a lock says: nothing where a process was killed as it wrote, None where it is gone."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
