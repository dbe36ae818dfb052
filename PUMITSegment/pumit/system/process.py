"""Processes of this machine: identity, state and memory; child processes and their end.

psutil is imported only where it is needed, because panels work before packages are installed.
Windows job objects end child processes with their parent; on other systems a child process sets its
own limits by `resource`.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pumit

# Slicer's interpreter, for Python inside Slicer.
_SLICERS = "PythonSlicer"
# Would run code or open a prompt in the child process.
_UNWANTED = ("PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT")
_EXTENDED_LIMITS, _KILL_ON_CLOSE = 9, 0x2000
_SET_QUOTA, _TERMINATE = 0x0100, 0x0001
SAME_START_S = 2.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # only Linux has it
_LINUX_STATUS = Path("/proc/self/status")


def python_program() -> str:
    """Return the path of an interpreter with the same packages.

    Raises:
        OSError: If there is none, as when Python is embedded in another program.
    """
    if sys.executable and Path(sys.executable).stem.lower().startswith("python"):
        return sys.executable
    home = Path(sys.executable or sys.prefix).resolve().parent
    # On macOS the application is in a folder beside `bin`.
    near = os.pathsep.join(str(folder) for folder in (home, home.parent / "bin"))
    found = shutil.which(_SLICERS) or shutil.which(_SLICERS, path=near)
    if found is None:
        raise OSError(f"no {_SLICERS} next to this program")
    return found


def python_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return environment variables with which a child process can import `pumit`.

    Args:
        base: Variables to start from; None for those of this process.
    """
    given = os.environ if base is None else base
    found = {name: value for name, value in given.items() if name not in _UNWANTED}
    root = str(Path(pumit.__file__).resolve().parent.parent)
    paths = [root, *filter(None, found.get("PYTHONPATH", "").split(os.pathsep))]
    return {**found, "PYTHONPATH": os.pathsep.join(paths)}


def start_program(
    command: Sequence[str], variables: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a child program with `python_environment`, on Windows without a console."""
    if sys.platform == "win32":
        options["creationflags"] = subprocess.CREATE_NO_WINDOW
    environment = {**python_environment(), **(variables or {})}
    return subprocess.Popen(command, env=environment, **options)


def read_lines(pipe: IO[str], take: Callable[[str], object]) -> None:
    """Pass on every line of a pipe, then an empty one; a full pipe would block the child."""
    with pipe:
        for line in pipe:
            take(line)
    take("")


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
