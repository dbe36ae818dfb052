"""Tell a process that lives from another one that was given its number later."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

PS_SECONDS = 5.0
# Of Windows' processthreadsapi.h.
QUERY_LIMITED_INFORMATION = 0x1000
STILL_ACTIVE = 259


def process_mark(pid: int) -> str | None:
    """A text that one process of this machine has, or None where no process has that number.

    Numbers of processes are used again, so when it began is part of the mark. A process that has
    ended and was not yet waited for counts as gone.

    Args:
        pid: Number of the process.
    """
    if pid <= 0:
        return None
    if sys.platform == "win32":
        began = _windows_began(pid)
    elif sys.platform == "linux":
        began = _linux_began(pid)
    else:
        began = _ps_began(pid)
    return None if began is None else f"{pid} {began}"


def _linux_began(pid: int) -> str | None:
    with suppress(OSError, IndexError):
        # The name, in parentheses, may itself hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        state, ticks = fields[0].decode(), fields[19].decode()
        return None if state in "ZX" else f"{_boot()} {ticks}"
    return None


@cache
def _boot() -> str:
    """Ticks are counted from the start of the machine, so which start it was belongs to them."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _ps_began(pid: int) -> str | None:
    """When a process began, as `ps` of macOS and the BSDs says."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=PS_SECONDS, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return "" if _takes_signals(pid) else None
    state, _, began = found.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else " ".join(began.split())


def _takes_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _windows_began(pid: int) -> str | None:
    if sys.platform != "win32":
        return None
    import ctypes
    from ctypes import wintypes

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.OpenProcess.restype = wintypes.HANDLE
    kernel.OpenProcess.argtypes = [wintypes.DWORD, wintypes.BOOL, wintypes.DWORD]
    kernel.GetExitCodeProcess.argtypes = [wintypes.HANDLE, ctypes.POINTER(wintypes.DWORD)]
    times = [wintypes.FILETIME() for _ in range(4)]  # creation, exit, kernel, user
    pointers = [ctypes.POINTER(wintypes.FILETIME)] * 4
    kernel.GetProcessTimes.argtypes = [wintypes.HANDLE, *pointers]
    kernel.CloseHandle.argtypes = [wintypes.HANDLE]
    handle = kernel.OpenProcess(QUERY_LIMITED_INFORMATION, False, pid)
    if not handle:
        return None
    try:
        status = wintypes.DWORD()
        if not kernel.GetExitCodeProcess(handle, ctypes.byref(status)):
            return None
        if status.value != STILL_ACTIVE:
            return None
        if not kernel.GetProcessTimes(handle, *(ctypes.byref(part) for part in times)):
            return None
        return str(times[0].dwHighDateTime << 32 | times[0].dwLowDateTime)
    finally:
        kernel.CloseHandle(handle)
