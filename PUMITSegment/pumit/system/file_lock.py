"""One process at a time: a lock on a file that ends with its process, however that ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pumit.errors import ExportError

PATIENCE_S = 60.0
_PAUSE_S = 0.05


def _try_to_lock(handle: IO[bytes]) -> bool:
    """Whether the lock was free and is ours now; the system frees it when the file is closed."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def file_lock(path: Path, *, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold a lock for the block, waiting for whoever holds it.

    Args:
        path: The lock's file; made where it is missing, and left.
        patience_s: How long to wait.

    Raises:
        ExportError: If it cannot be made, or another process does not let go of it.
    """
    try:
        handle = path.open("ab")
    except OSError as error:
        reason = error.strerror or "the system refused"
        raise ExportError(f"{path.name} cannot be written: {reason}.") from None
    with handle:
        end = time.monotonic() + patience_s
        while not _try_to_lock(handle):
            if time.monotonic() > end:
                raise ExportError(
                    f"Another program has held {path.name} for {patience_s:g} s; end it or wait."
                )
            time.sleep(_PAUSE_S)
        yield
