"""Cores and memory that this machine or its container offers a process; its compute threads.

A computation in several threads is as slow as its slowest thread. OpenMP, which torch uses, lets
finished threads spin, so that they take CPU time from the thread they wait for: with one other busy
program on two cores, a click took ten times as long. Sleeping threads avoid this, but the policy is
fixed when torch loads OpenMP. Only the number of threads can be changed later.
"""

import ctypes
import math
import os
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

_ARENA_MAX = -8  # M_ARENA_MAX of mallopt in malloc.h
# Memory limits of a container; psutil reports only the machine's memory.
CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
# Processor time allowed to a container and the period that it is for, us.
CGROUP_QUOTAS = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)
# GNU's OpenMP reads the first two, LLVM's and Intel's the first and the last.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# Shorter intervals are too inexact: the system counts CPU time in hundredths of a second.
SHORTEST_LOOK_S = 0.2


def usable_cores() -> int:
    """Return the number of cores that this process may use, rounded up to whole ones."""
    return max(1, math.ceil(min(_assigned_cores(), _allowed_cores())))


def _assigned_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _allowed_cores() -> float:
    """Return the processor time that a container may use, cores; infinity if all."""
    for files in CGROUP_QUOTAS:
        try:
            quota, period = map(int, " ".join(Path(f).read_text("ascii") for f in files).split())
        except (OSError, ValueError):  # absent, or "max"
            continue
        if quota > 0 and period > 0:
            return quota / period
    return math.inf


def machine_bytes() -> int:
    """Return the main memory of the machine or its container, bytes."""
    import psutil

    return _within_container(int(psutil.virtual_memory().total))


def free_bytes() -> int:
    """Return the machine's available memory, at most the container's limit, bytes."""
    import psutil

    return _within_container(int(psutil.virtual_memory().available))


def _within_container(found: int) -> int:
    for file in CGROUP_LIMITS:
        try:
            found = min(found, int(file.read_text("ascii")))
        except (OSError, ValueError):  # absent, or "max"
            continue
    return found


def give_back_memory() -> None:
    """Return freed memory from the C library to the system.

    glibc keeps freed pages for the thread that freed them. With scans of many sizes in several
    threads, a process with 16 users grew by 70 MiB a minute without holding more.
    """
    _glibc("malloc_trim", 0)


def share_heaps() -> None:
    """Make the threads of this process share two heaps.

    With one heap per thread, glibc's default, a worker that answered clicks on a CT held 1.26 GB
    instead of 1.12: memory freed by one thread is not reused by another.
    """
    _glibc("mallopt", _ARENA_MAX, 2)


def _glibc(function: str, *numbers: int) -> None:
    if sys.platform.startswith("linux"):
        found = getattr(ctypes.CDLL(None), function, None)  # other C libraries lack it
        if found is not None:
            found(*numbers)


def wait_asleep(environment: MutableMapping[str, str] = os.environ) -> None:
    """Make waiting threads of this process and its children sleep, unless the user chose a policy.

    Also limit their number to the cores of a container: more would take turns. Call it before torch
    is imported; later it does nothing.
    """
    if "torch" in sys.modules:
        return
    if not any(name in environment for name in WAITING):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
        environment["KMP_BLOCKTIME"] = "0"
    if usable_cores() < _assigned_cores():
        environment.setdefault("OMP_NUM_THREADS", str(usable_cores()))


@dataclass(frozen=True)
class ProcessorTimes:
    """CPU times so far, s.

    Attributes:
        idle_s: Idle time of the cores that this process may use.
    """

    at_s: float
    idle_s: float
    own_s: float


def processor_times() -> ProcessorTimes | None:
    """Measure the CPU times; None if the system does not report them or psutil is missing."""
    try:
        import psutil

        cores = psutil.cpu_times(percpu=True)
    except (ImportError, OSError, RuntimeError):
        return None
    if hasattr(os, "sched_getaffinity"):
        mine = os.sched_getaffinity(0)
        cores = [core for number, core in enumerate(cores) if number in mine] or cores
    idle_s = sum(core.idle + getattr(core, "iowait", 0.0) for core in cores)
    return ProcessorTimes(time.monotonic(), idle_s, time.process_time())


class FittingThreads:
    """Number of compute threads, chosen by the cores that other programs leave free.

    Results do not depend on the number of threads. NumPy's BLAS gets one: a click multiplies small
    matrices, which are as fast in one thread. OpenBLAS lets finished threads spin, and the network
    that computes next took 1.7 times as long on two cores.
    """

    def __init__(self) -> None:
        self._last = processor_times()
        self._free: float | None = None
        self._lock = Lock()
        self._blocks = 0
        self._most = 1
        self._libraries: Any = None
        self._blas_limit: Any = None

    def count(self, most: int) -> int:
        """Return the number of threads to use now.

        Returns:
            The number of free cores, rounded, at most `most`; at least 1, which is as fast as more
            if none is free.
        """
        free = self._free_cores()
        return most if free is None else max(1, min(round(free), most))

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Set torch to `count` threads during the block, and NumPy's BLAS to one.

        Blocks in several threads may overlap.
        """
        torch = sys.modules.get("torch")
        self._limit_blas(1)
        try:
            most = self._most
            count = self.count(most) if most > 1 else most
            if torch is None or count == most:
                yield
                return
            torch.set_num_threads(count)
            try:
                yield
            finally:
                torch.set_num_threads(most)
        finally:
            self._limit_blas(-1)

    def _limit_blas(self, change: int) -> None:
        """Count the blocks; limit BLAS with the first one, and restore it after the last.

        The first one also notes torch's number of threads, which it may change for later ones.
        """
        with self._lock:
            if self._libraries is None:
                from threadpoolctl import ThreadpoolController

                self._libraries = ThreadpoolController()
            if self._blocks == 0:
                torch = sys.modules.get("torch")
                # Before BLAS is limited, which may share torch's threads.
                self._most = 1 if torch is None else torch.get_num_threads()
                self._blas_limit = self._libraries.limit(limits=1, user_api="blas")
            self._blocks += change
            if self._blocks == 0:
                self._blas_limit.restore_original_limits()

    def _free_cores(self) -> float | None:
        """Return the cores that were idle or ours since the last call; None if unknown."""
        now, last = processor_times(), self._last
        if now is None or last is None:
            return None
        elapsed_s = now.at_s - last.at_s
        if elapsed_s >= SHORTEST_LOOK_S:
            used_s = now.idle_s - last.idle_s + now.own_s - last.own_s
            self._last, self._free = now, min(used_s / elapsed_s, usable_cores())
        return self._free


@cache
def fitting_threads() -> FittingThreads:
    """Return the `FittingThreads` of this process."""
    return FittingThreads()
