"""Processes of this machine: whether one still runs, and what it holds.

psutil answers on every system. It is imported where it is needed: a panel that only lists runs is
open before anything was installed.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

# Start times are counted from the start of the machine, whose clock may since have been set.
SAME_START_S = 2.0
_LINUX_STATUS = Path("/proc/self/status")


def process_mark(pid: int) -> str | None:
    """What tells a process from a later one of the same number, such as `4711 1763845200.25`.

    Args:
        pid: Number of the process.

    Returns:
        The number and when the process began, Unix time; None where no process has that number
        (one that ended and was not yet waited for counts as gone), or psutil is not installed.
    """
    if pid <= 0:
        return None
    with suppress(ImportError):
        import psutil

        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                return f"{pid} {process.create_time():.2f}"
    return None


def is_running(mark: str) -> bool | None:
    """Whether the process of a `process_mark` still runs.

    Returns:
        None where nobody can say: for a mark of an earlier version, or without psutil.
    """
    pid, _, start = mark.partition(" ")
    if not pid.isdigit():
        return None
    try:
        import psutil  # noqa: F401
    except ImportError:
        return None
    now = process_mark(int(pid))
    if now is None:
        return False
    try:
        return abs(float(now.split(" ")[1]) - float(start)) <= SAME_START_S
    except ValueError:  # of an earlier version: it may be another process of this number
        return None


def process_bytes() -> int:
    """Resident memory of this process, bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_process_bytes() -> int:
    """Most resident memory that this process has held, bytes.

    Not `ru_maxrss` on Linux: a new process inherits that of the program that started it, which
    may be as large as Slicer.
    """
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    with suppress(OSError, StopIteration):
        rows = _LINUX_STATUS.read_text("ascii", errors="replace").splitlines()
        row = next(row for row in rows if row.startswith("VmHWM:"))
        return int(row.split()[1]) * 1024
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
