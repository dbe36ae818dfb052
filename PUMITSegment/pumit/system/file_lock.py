"""Lock file between processes, released by the system when its process ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pumit.errors import ExportError

PATIENCE_S = 60.0


@contextmanager
def file_lock(path: Path, *, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold a lock during the block, waiting for another holder.

    Args:
        path: Lock file; created if missing, and not deleted.

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
        raise ExportError(
            f"Another program has locked {path.name} for {patience_s:g} s; close it or wait."
        ) from None
    except OSError as error:
        reason = error.strerror or "the system refused"
        raise ExportError(f"{path.name} cannot be written: {reason}.") from None
    try:
        yield
    finally:
        lock.release()
