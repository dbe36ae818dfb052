"""Threads on a machine with other programs: how they wait, and how many compute.

A computation in several threads is as slow as the slowest of them. OpenMP, which torch computes
with, lets threads that are done early wait in a loop, so that they take the processor from the one
they wait for: with one other busy program on two cores a click took ten times as long. Waiting
asleep cures that, but is chosen once, when OpenMP is loaded with torch. What can be chosen later is
how many threads compute.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass

from pumit.system.machine import usable_cores

# GNU's OpenMP knows the first two, LLVM's and Intel's the first and the last.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# The system counts processor time in hundredths of a second.
SHORTEST_LOOK_S = 0.2


def wait_asleep(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have the threads of this process, and of those it starts, sleep where they wait.

    To be called before torch is imported; later it does nothing. What a user chose stays.
    """
    if "torch" not in sys.modules and not any(name in environment for name in WAITING):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
        environment["KMP_BLOCKTIME"] = "0"


@dataclass(frozen=True)
class ProcessorTimes:
    """Processor time that was used so far, s.

    Attributes:
        idle_s: Time that no one used of the cores that this process may use.
        own_s: Time that this process used.
    """

    at_s: float
    idle_s: float
    own_s: float


def processor_times() -> ProcessorTimes | None:
    """Get the times now; None where the system does not tell them, or psutil is not installed."""
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
    """As many threads as there are cores that other programs leave free.

    Answers do not depend on how many threads compute them.
    """

    def __init__(self) -> None:
        self._last = processor_times()
        self._free: float | None = None

    def count(self, most: int) -> int:
        """How many threads to compute with now.

        Returns:
            The free cores, rounded; one where none is free, which is then as fast as more.
        """
        free = self._free_cores()
        return most if free is None else max(1, min(round(free), most))

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Compute with `count` threads; the number that torch had before returns afterwards."""
        torch = sys.modules.get("torch")
        most = 1 if torch is None else torch.get_num_threads()
        count = self.count(most) if most > 1 else most
        if torch is None or count == most:
            yield
            return
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(most)

    def _free_cores(self) -> float | None:
        """Cores that were idle or ours since the last look; None where that is not known."""
        now, last = processor_times(), self._last
        if now is None or last is None:
            return None
        elapsed_s = now.at_s - last.at_s
        if elapsed_s >= SHORTEST_LOOK_S:
            used_s = now.idle_s - last.idle_s + now.own_s - last.own_s
            self._last, self._free = now, min(used_s / elapsed_s, usable_cores())
        return self._free
