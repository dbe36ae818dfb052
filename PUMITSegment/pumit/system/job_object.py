"""Windows job objects, which end child processes with their parent.

On other systems a child process sets its own limits by `resource`.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_EXTENDED_LIMITS, _KILL_ON_CLOSE = 9, 0x2000
_SET_QUOTA, _TERMINATE = 0x0100, 0x0001


class _BasicLimits(ctypes.Structure):
    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority", ctypes.c_uint32),
        ("scheduling", ctypes.c_uint32),
    )


class _ExtendedLimits(ctypes.Structure):
    _fields_ = (
        ("basic", _BasicLimits),
        ("transfers", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


class JobObject:
    """Processes that end, with their descendants, with this object or the current process.

    Does nothing on systems other than Windows, or if Windows refuses it.

    Args:
        kernel: Windows' `kernel32`; None for that of this system.
    """

    def __init__(self, kernel: Any = None) -> None:
        if kernel is None and sys.platform == "win32":
            kernel = ctypes.WinDLL("kernel32")
        self._kernel = kernel
        self._handle = ctypes.c_void_p()

    def add(self, pid: int) -> None:
        """Add a process."""
        kernel = self._kernel
        if kernel is None:
            return
        if not self._handle:
            kernel.CreateJobObjectW.restype = kernel.OpenProcess.restype = ctypes.c_void_p
            self._handle = ctypes.c_void_p(kernel.CreateJobObjectW(None, None))
            limits = _ExtendedLimits()
            limits.basic.flags = _KILL_ON_CLOSE
            size = ctypes.sizeof(limits)
            kernel.SetInformationJobObject(
                self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), size
            )
        process = ctypes.c_void_p(kernel.OpenProcess(_SET_QUOTA | _TERMINATE, 0, pid))
        if process:
            kernel.AssignProcessToJobObject(self._handle, process)
            kernel.CloseHandle(process)

    def close(self) -> None:
        """End the processes."""
        if self._handle:
            self._kernel.CloseHandle(self._handle)
            self._handle = ctypes.c_void_p()
