"""Processes of this machine: whether one still runs, and what it holds.

psutil answers on every system. It is imported where it is needed: a panel that only lists runs is
open before anything was installed.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

SAME_START_S = 2.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # only Linux has it
_LINUX_STATUS = Path("/proc/self/status")


def process_mark(pid: int) -> str | None:
    """Return a mark that no later process of this number has, such as `4711 3810.25 5e1c07a2`.

    Where a start of the machine has a name, the time counts from that: Linux computes the Unix time
    of a start from the present clock, so that it changes when the clock is set.

    Returns:
        The number and when the process began, from the start of the machine with its name, or Unix
        time; None where no process has that number (one that ended and was not yet waited for
        counts as gone), or psutil is not installed.
    """
    if pid <= 0:
        return None
    with suppress(ImportError):
        import psutil

        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                boot = _boot_name()
                before = psutil.boot_time() if boot else 0.0
                return f"{pid} {process.create_time() - before:.2f} {boot}".rstrip()
    return None


def _boot_name() -> str:
    """Return the name of the machine's present start; "" where it has none."""
    with suppress(OSError):
        return _BOOT.read_text("ascii").split("-")[0]
    return ""


def is_running(mark: str) -> bool | None:
    """Return whether the process of a `process_mark` still runs.

    Returns:
        None where no one can say: for a mark of an earlier version, or without psutil.
    """
    pid, start, boot = (*mark.split(" ", 2), "", "")[:3]
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
        _pid, began, present = (*now.split(" "), "")[:3]
        passed = float(began) - float(start)
        if not boot and present:  # of an earlier version, Unix time
            passed = _unix_start(int(pid)) - float(start)
        return boot in ("", present) and abs(passed) <= SAME_START_S
    except ValueError:  # of an earlier version: it may be another process of this number
        return None


def _unix_start(pid: int) -> float:
    """When a process began by the present clock; 0 if it ended since."""
    import psutil

    with suppress(psutil.Error):
        return float(psutil.Process(pid).create_time())
    return 0.0


def is_halted(pid: int) -> bool:
    """Return whether the system halts a process, as SIGSTOP does; False without psutil."""
    with suppress(ImportError):
        import psutil

        with suppress(psutil.Error):
            return psutil.Process(pid).status() in (
                psutil.STATUS_STOPPED,
                psutil.STATUS_TRACING_STOP,
            )
    return False


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
