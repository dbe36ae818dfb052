"""Files shared by several computers: locks that expire, and versioned JSON.

The age of a lock is measured by the clock of its file system, so computers' clocks need not agree.
No computer's name is written.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.system.files import remove_half_written, write_text

# In a campaign: its file, that of a scan, and the folders of its scans and rounds.
FILE, STATE, SCANS, ROUNDS = "campaign.json", "state.json", "scans", "rounds"
# The format of each file. In format 2 a campaign may hash patients by scrypt; version 0.3.0, which
# would hash added ones by SHA-256, refuses it.
FORMATS = {FILE: 2, STATE: 1}
# File and format to the function that converts content to the next format.
MIGRATIONS: Mapping[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {(FILE, 1): dict}
STALE_S = 120.0  # age without heartbeat at which a lock expires
WRITING_STALE_S = 30.0  # the same for a lock held while two small files are written
HALF_WRITTEN_S = 3600.0  # age of a half-written file that no process writes any more
PATIENCE_S = 45.0
TRY_S = 0.05
READ_TRIES = 5
# Held by the process that trains or predicts; the holder's name is "train" or "predict".
WORK_LOCK, WORK_STALE_S = "training.lock", 20.0


class LockTaken(PumitError):
    """The lock of a scan, a file or a campaign is held by another process."""


@dataclass(frozen=True)
class LockHolder:
    """Holder of a lock."""

    name: str
    token: str
    is_alive: bool


def disk_time(folder: Path) -> float:
    """Return the time of a folder's file system, or this computer's if it is not writable."""
    probe = folder / f".{secrets.token_hex(6)}-time"
    try:
        probe.touch(exist_ok=False)
        return probe.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def lock_holder(
    path: Path, *, now: float | None = None, stale_s: float = STALE_S
) -> LockHolder | None:
    """Return the holder of a lock, even if expired; None if there is no lock."""
    try:
        changed = path.stat().st_mtime
        content = json.loads(path.read_text(encoding="utf-8") or "{}")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise gone(path, error) from None
    except ValueError:  # being written
        content = {}
    now = disk_time(path.parent) if now is None else now
    name, token = str(content.get("name", "")), str(content.get("token", ""))
    return LockHolder(name, token, abs(now - changed) < stale_s)


class ShareLock:
    """Lock file for all computers that share the folder.

    Raises:
        LockTaken: If another holder has the lock.
        PumitError: If the folder cannot be written.
    """

    def __init__(self, path: Path, *, name: str = "", stale_s: float = STALE_S) -> None:
        self._path, self.name, self.token = path, name, secrets.token_hex(8)
        if not self._create():
            holder = lock_holder(path, stale_s=stale_s)
            if holder is not None and holder.is_alive:
                raise LockTaken(f"{holder.name or 'Another person'} has it open.")
            self._remove(holder)
            if not self._create():
                raise LockTaken("Another person has just opened it.")

    def _create(self) -> bool:
        try:
            file = self._path.open("x", encoding="utf-8")
        except FileExistsError:
            return False
        except OSError as error:
            raise gone(self._path, error) from None
        try:
            with file:
                json.dump({"name": self.name, "token": self.token}, file)
        except OSError as error:  # the disk is full
            self._path.unlink(missing_ok=True)
            raise gone(self._path, error) from None
        return True

    def _remove(self, holder: LockHolder | None) -> None:
        """Remove an expired lock, unless another holder has replaced it since."""
        aside = self._path.with_name(f".{self.token}-stale")
        with suppress(OSError):
            os.replace(self._path, aside)
            moved = lock_holder(aside)
            if moved is not None and holder is not None and moved.token != holder.token:
                os.replace(aside, self._path)
            aside.unlink(missing_ok=True)

    @property
    def is_held(self) -> bool:
        """Whether the lock file is still this lock's."""
        holder = lock_holder(self._path, now=0.0)
        return holder is not None and holder.token == self.token

    def beat(self) -> bool:
        """Renew the lock, and return whether it is still held."""
        if not self.is_held:
            return False
        # Rewritten, so that the file system's clock sets the time stamp; in place, so that a full
        # disk does not leave it empty.
        with suppress(OSError), self._path.open("r+", encoding="utf-8") as file:
            json.dump({"name": self.name, "token": self.token}, file)
        return True

    def release(self) -> None:
        """Release the lock, if it is still held."""
        if self.is_held:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def __enter__(self) -> ShareLock:
        """Return the lock, which the constructor has taken."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.release()


def _patiently(
    path: Path, name: str, *, stale_s: float, patience_s: float, pause_s: float, otherwise: str
) -> ShareLock:
    """Take a lock as soon as it is free or expired; raise `LockTaken` after `patience_s`."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return ShareLock(path, name=name, stale_s=stale_s)
        except LockTaken:
            if time.monotonic() > until:
                raise LockTaken(otherwise) from None
            time.sleep(pause_s)


def writing(path: Path) -> ShareLock:
    """Lock a file for a block that reads and replaces it."""
    lock = path.with_name(f"{path.name}.writing")
    words = (
        f"Another computer has been writing {path.name} for {PATIENCE_S:g} s; wait for it and try "
        f"again, or remove {lock.name}."
    )
    times = {"stale_s": WRITING_STALE_S, "patience_s": PATIENCE_S, "pause_s": TRY_S}
    return _patiently(lock, "", **times, otherwise=words)


def at_work(folder: Path) -> str:
    """Return the work of a running process on a campaign: "train", "predict", or ""."""
    holder = lock_holder(folder / WORK_LOCK, stale_s=WORK_STALE_S)
    return (holder.name or "train") if holder is not None and holder.is_alive else ""


@contextmanager
def working_alone(folder: Path, what: str) -> Iterator[None]:
    """Hold a campaign's work lock for a block, renewed by a thread."""
    words = (
        "This campaign is already being trained or predicted, here or on another computer; wait."
    )
    times = {"stale_s": WORK_STALE_S, "patience_s": 1.5 * WORK_STALE_S, "pause_s": 1.0}
    lock = _patiently(folder / WORK_LOCK, what, **times, otherwise=words)
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(WORK_STALE_S / 4):
            lock.beat()

    thread = threading.Thread(target=beat, name="campaign-work", daemon=True)
    thread.start()
    try:
        remove_half_written(folder / SCANS, before=disk_time(folder) - HALF_WRITTEN_S)
        yield
    finally:
        is_over.set()
        thread.join()
        lock.release()


def gone(path: Path, error: OSError) -> PumitError:
    """Return an error for a campaign's folder that cannot be accessed."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return PumitError(
            f"The campaign's folder is not there any more ({path.name}); connect its disk or share "
            "again. Nothing is lost."
        )
    reason = error.strerror or "the system refused"
    return PumitError(f"The campaign's folder cannot be used ({path.name}): {reason}.")


def read_shared(path: Path, what: str) -> dict[str, Any]:
    """Read JSON of this or an earlier format.

    Raises:
        PumitError: If the file is missing, damaged, or of a newer format.
    """
    content: Any = None
    for attempt in range(READ_TRIES):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            break
        except (OSError, ValueError) as error:
            # The file may be in the middle of a replacement, on Windows or a slow share.
            is_gone = isinstance(error, (FileNotFoundError, NotADirectoryError))
            if isinstance(error, OSError) and (is_gone or attempt + 1 == READ_TRIES):
                raise gone(path, error) from None
            time.sleep(TRY_S)
    version = content.get("format") if isinstance(content, dict) else None
    if type(version) is not int or version < 1:
        raise PumitError(f"{what} is damaged; take its file from a backup.")
    newest = FORMATS[path.name]
    if version > newest:
        raise PumitError(
            f"{what} was written by a newer version of PUMIT (format {version}, this one knows "
            f"{newest}); update PUMIT. Nothing was changed."
        )
    for earlier in range(version, newest):
        content = MIGRATIONS[path.name, earlier](content)
    return {**content, "format": newest}


def write_shared(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON atomically, and flush it to disk before it replaces the old file."""
    text = json.dumps({"format": FORMATS[path.name], **content}, indent=1, ensure_ascii=False)
    write_text(path, text, durable=True)
