"""Processes of this machine: identity, state and memory.

psutil is imported only where it is needed, because panels work before packages are installed.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

SAME_START_S = 2.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # only Linux has it
_LINUX_STATUS = Path("/proc/self/status")


def process_mark(pid: int) -> str | None:
    """Return a unique identifier of a process, such as `4711 3810.25 5e1c07a2`.

    With a boot ID, the start time counts from boot: Linux derives the Unix time of a process start
    from the current clock, so it changes when the clock is set.

    Returns:
        The PID and start time, either since boot and followed by the boot ID, or Unix time. None if
        no such process runs (zombies do not count), or psutil is not installed.
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
    """Return the start of the boot ID; "" if the system has none."""
    with suppress(OSError):
        return _BOOT.read_text("ascii").split("-")[0]
    return ""


def is_running(mark: str) -> bool | None:
    """Return whether the process of a `process_mark` still runs.

    Returns:
        None if unknown: for a mark of an earlier version, or without psutil.
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
        if not boot and present:  # a mark of an earlier version, in Unix time
            passed = _unix_start(int(pid)) - float(start)
        return boot in ("", present) and abs(passed) <= SAME_START_S
    except ValueError:  # a mark of an earlier version; the PID may have been reused
        return None


def _unix_start(pid: int) -> float:
    """Return the Unix time at which a process started; 0 if it has ended."""
    import psutil

    with suppress(psutil.Error):
        return float(psutil.Process(pid).create_time())
    return 0.0


def is_halted(pid: int) -> bool:
    """Return whether a process is stopped, as by SIGSTOP; False without psutil."""
    with suppress(ImportError):
        import psutil

        with suppress(psutil.Error):
            return psutil.Process(pid).status() in (
                psutil.STATUS_STOPPED,
                psutil.STATUS_TRACING_STOP,
            )
    return False


def process_bytes() -> int:
    """Return the resident memory of this process, bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_process_bytes() -> int:
    """Return the peak resident memory of this process, bytes.

    Not `ru_maxrss` on Linux: a new process inherits it from its parent, which may be as large as
    Slicer.
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
