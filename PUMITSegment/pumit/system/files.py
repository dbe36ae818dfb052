"""Files: atomic writing, locks between processes, checksums.

A file is written to a temporary name beside the target, then renamed.
"""

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pumit.errors import DiskFullError, ExportError

PATIENCE_S = 60.0
RESULT = "The result"  # what errors call a file
# Some writers, such as ITK's, do not report short writes, so less free space than this after
# writing counts as a full disk.
FULL_DISK_BYTES = 4096
# Longest file name in common file systems, and length reserved for the temporary prefix.
NAME_LIMIT = 255
PREFIX_LENGTH = 16
REPLACE_TRIES, REPLACE_SECONDS = 20, 0.1
# Temporary names of `atomic_path`, of labels that are being accepted, and of safetensors.
_HALF_WRITTEN = re.compile(r"\.([0-9a-f]{12}|accepted)-.|\.tmp[0-9A-Za-z]{6}$")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REASONS = {
    errno.EACCES: "the folder is read-only for you; choose another folder.",
    errno.EPERM: "the folder is read-only for you; choose another folder.",
    errno.EROFS: "the disk is read-only; choose another folder.",
    errno.ENOSPC: "the disk is full; make room or choose another folder.",
    errno.EDQUOT: "your disk quota is used up; make room or choose another folder.",
    errno.EFBIG: "the file is larger than this disk accepts; choose another folder.",
    errno.ENOENT: "the folder does not exist; create it or choose another.",
    errno.ENOTDIR: "a part of its path is a file, not a folder; choose another folder.",
    errno.EISDIR: "it is a folder; give a file name.",
    errno.ENAMETOOLONG: "the file name is too long; choose a shorter one.",
}


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def changed_ns(path: Path) -> int:
    """Return when a file was last changed, ns since 1970; 0 if it is no file."""
    return path.stat().st_mtime_ns if path.is_file() else 0


@contextmanager
def file_lock(path: Path, *, patience_s: float = PATIENCE_S, taken: str = "") -> Iterator[None]:
    """Hold a lock during the block, waiting for another holder.

    Args:
        path: Lock file; created if missing, and not deleted.
        taken: Sentence for the error if another process holds it for longer.

    Raises:
        ExportError: If it cannot be created, or another process holds it for longer.
    """
    from filelock import FileLock, Timeout

    if not path.parent.is_dir():  # filelock would create it
        raise ExportError(f"{path.name} cannot be written: there is no folder {path.parent.name}.")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=patience_s)
    except Timeout:
        words = f"Another program has locked {path.name} for {patience_s:g} s; close it or wait."
        raise ExportError(taken or words) from None
    except OSError as error:
        reason = error.strerror or "the system refused"
        raise ExportError(f"{path.name} cannot be written: {reason}.") from None
    try:
        yield
    finally:
        lock.release()


def _export_error(error: OSError, what: str = RESULT) -> ExportError:
    reason = _REASONS.get(error.errno or 0, f"{error.strerror or 'the system refused'}.")
    kind = DiskFullError if error.errno in _FULL else ExportError
    return kind(f"{what} cannot be written: {reason}")


def _is_full(folder: Path) -> bool:
    if not hasattr(os, "statvfs"):
        return False
    with suppress(OSError):
        status = os.statvfs(folder)
        # Some network file systems report no size.
        return status.f_blocks > 0 and status.f_bavail * status.f_frsize < FULL_DISK_BYTES
    return False


def _temporary_name(final: Path, target: Path) -> Path:
    name = target.name
    if len(os.fsencode(name)) > NAME_LIMIT - PREFIX_LENGTH:
        name = "result" + "".join(target.suffixes[-2:])
    return final.parent / f".{secrets.token_hex(6)}-{name}"


def _replace(temporary: Path, final: Path, what: str) -> None:
    for attempt in range(REPLACE_TRIES, -1, -1):
        try:
            os.replace(temporary, final)
            return
        except PermissionError as error:
            # On Windows a reader of the target or a virus scanner may hold it briefly.
            if attempt and sys.platform == "win32":
                time.sleep(REPLACE_SECONDS)
                continue
            raise ExportError(
                f"{what} cannot be written: the target cannot be replaced; "
                "close the program that holds it open or choose another name."
            ) from error


def _remove(path: Path) -> None:
    # Ignore errors: on Windows a failed writer may still hold the file, and its error matters more.
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)


def remove_half_written(folder: Path, *, before: float = math.inf) -> None:
    """Remove incomplete files of killed processes, by their names, in a folder and its subfolders.

    Args:
        before: Latest time of their last change, seconds since 1970.
    """
    # Unlike `Path.rglob`, `os.walk` skips what another computer removes at that moment.
    for parent, folders, files in os.walk(folder):
        for name in filter(_HALF_WRITTEN.match, [*folders, *files]):
            path = Path(parent, name)
            with suppress(OSError):
                if path.lstat().st_mtime < before:
                    _remove(path)


def _keep(path: Path) -> None:
    """Flush a file to disk, so that after a power failure the old or the new file exists."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _keep_name(folder: Path) -> None:
    # Only POSIX systems open folders; some file systems refuse to sync them.
    if hasattr(os, "O_DIRECTORY"):
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


@contextmanager
def atomic_path(target: Path, *, durable: bool = False, what: str = RESULT) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it to `target` on success.

    The temporary name keeps the target's suffix, by which writers choose the format. Write
    permission is checked before the block runs. An existing target stays unchanged until the block
    succeeds; if it fails, the temporary file is deleted.

    Args:
        target: File to write, or a folder that does not exist yet. A symbolic link is followed.
        durable: Whether to flush the file to disk before it is renamed, and the rename afterwards.
        what: What errors call the file, as the start of a sentence.

    Yields:
        Path beside the target at which the block must create a file or folder.

    Raises:
        ExportError: If the folder is missing or read-only, the disk is full (DiskFullError), the
            target is a folder, or the block wrote nothing. Other errors pass through.
    """
    final = target.resolve() if target.is_symlink() else target
    if final.is_dir():
        raise _export_error(OSError(errno.EISDIR, "is a folder"), what)
    temporary = _temporary_name(final, target)
    try:
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        raise _export_error(error, what) from error
    try:
        yield temporary
        if _is_full(final.parent):
            raise _export_error(OSError(errno.ENOSPC, "disk full"), what)
        if not temporary.exists():
            raise ExportError(f"{what} cannot be written: the writer produced no file.")
        if durable:
            _keep(temporary)
        _replace(temporary, final, what)
        if durable:
            _keep_name(final.parent)
    except OSError as error:
        _remove(temporary)
        # A failed write has no file name, or of a copy both; a failed open has one.
        if error.filename in (None, str(temporary), temporary) or error.errno in _FULL:
            raise _export_error(error, what) from error
        raise
    except BaseException as error:
        is_full = isinstance(error, RuntimeError) and _is_full(final.parent)
        _remove(temporary)
        if is_full:
            raise _export_error(OSError(errno.ENOSPC, "disk full"), what) from error
        raise


def refuse_replacing(target: Path, inputs: Iterable[Path | None]) -> None:
    """Refuse to write a result over a file that it is made from.

    Raises:
        ExportError: If the target is one of the inputs, also by a link or another spelling.
    """
    if target.exists() and any(p is not None and p.exists() and target.samefile(p) for p in inputs):
        raise ExportError(
            f"The output {target.name!r} would replace the file it is made from; give another name."
        )


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, if missing.

    Raises:
        ExportError: If it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or "the system refused"
        kind = DiskFullError if error.errno in _FULL else ExportError
        raise kind(f"Cannot make the folder {folder.name}: {reason}.") from None


def write_text(path: Path, text: str, *, durable: bool = False, what: str = RESULT) -> None:
    """Write a text file atomically with unchanged line ends; see `atomic_path`."""
    with atomic_path(path, durable=durable, what=what) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, content: object, *, what: str = RESULT) -> None:
    """Write a JSON file atomically; see `atomic_path`."""
    write_text(path, json.dumps(content, indent=1), what=what)
