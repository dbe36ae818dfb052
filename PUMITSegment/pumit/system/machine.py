"""What the machine offers a process: cores, memory, and what it holds of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup/memory.max")
MEMORY_INFO = Path("/proc/meminfo")
PROCESS_STATUS = Path("/proc/self/status")


def usable_cores() -> int:
    """Cores that this process may use."""
    if sys.platform != "win32" and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int | None:
    """Bytes of main memory that a new process could take, None where the system does not tell."""
    if sys.platform == "win32":
        return _windows_memory()
    if MEMORY_INFO.is_file():
        rows = dict(line.split(":", 1) for line in MEMORY_INFO.read_text().splitlines())
        free = int(rows.get("MemAvailable", rows["MemTotal"]).split()[0]) * 1024
        return min(free, _container_limit(free))
    try:  # macOS tells all there is, not what is free
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _container_limit(otherwise: int) -> int:
    try:
        return int(CGROUP.read_text())
    except (OSError, ValueError):  # there is no container, or it says "max"
        return otherwise


def _windows_memory() -> int | None:
    import ctypes

    class Status(ctypes.Structure):
        """MEMORYSTATUSEX of the Windows API."""

        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *((name, ctypes.c_ulonglong) for name in ("total", "free", "page", "free_page")),
            *((name, ctypes.c_ulonglong) for name in ("virtual", "free_virtual", "extended")),
        )

    status = Status(length=ctypes.sizeof(Status))
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009 - absent but on Windows
    return int(status.free) if kernel.GlobalMemoryStatusEx(ctypes.byref(status)) else None


def peak_process_bytes() -> int | None:
    """Most main memory that this process has held, None where the system does not tell.

    Not `ru_maxrss` where Linux tells better: a new process inherits that of the one that started
    it.
    """
    if PROCESS_STATUS.is_file():
        for line in PROCESS_STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return _windows_peak()
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _windows_peak() -> int | None:
    import ctypes

    class Counters(ctypes.Structure):
        """PROCESS_MEMORY_COUNTERS of the Windows API."""

        _fields_ = (
            ("size", ctypes.c_ulong),
            ("faults", ctypes.c_ulong),
            *((f"size_{i}", ctypes.c_size_t) for i in range(8)),
        )

    counters = Counters(size=ctypes.sizeof(Counters))
    windows = getattr(ctypes, "windll")  # noqa: B009 - absent but on Windows
    process = ctypes.c_void_p(windows.kernel32.GetCurrentProcess())
    found = windows.psapi.GetProcessMemoryInfo(process, ctypes.byref(counters), counters.size)
    return int(counters.size_0) if found else None
