"""Clock of a run: wall time without pauses and the computer's sleep, or CPU time."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A longer gap between two reads means that the computer slept, or the process was halted.
GAP_SECONDS = 15.0
# ... unless the process used at least this share of CPU time, so it was only busy.
BUSY_SHARE = 0.1


def _steady_seconds() -> float:
    """Return the seconds of a monotonic clock that includes the computer's sleep."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)  # time.monotonic() stops during sleep
    return time.monotonic()


@contextmanager
def repeated(work: Callable[[], None], seconds: float, name: str) -> Iterator[Callable[[], None]]:
    """Call a function every `seconds` in a thread, for a block; yield a function that ends it."""
    end = threading.Event()

    def run() -> None:
        while not end.wait(seconds):
            work()

    def stop() -> None:
        end.set()
        thread.join()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop()


class RunClock:
    """Count the active seconds of a run; thread-safe.

    Wall and CPU time are both counted; one of them is the run's clock.

    Args:
        steady: Monotonic clock that includes sleep, s.
        busy: CPU time of this process, s.

    Attributes:
        other_clock_s: Seconds by the other clock, as of the last read.
        on_sleep: Called with the seconds that the machine slept, when this is noticed.
    """

    def __init__(
        self,
        steady: Callable[[], float] = _steady_seconds,
        busy: Callable[[], float] = time.process_time,
    ) -> None:
        self._steady, self._busy = steady, busy
        self._lock = threading.Lock()
        self._seconds = self.other_clock_s = 0.0
        self._is_processor = False
        self._halted = 0
        self._seen, self._seen_busy = steady(), busy()
        self.on_sleep: Callable[[float], None] = lambda seconds: None

    def begin(
        self, before: float = 0.0, *, other_clock_s: float = 0.0, is_processor: bool = False
    ) -> None:
        """Reset the count.

        Args:
            before: Seconds of the run before it was resumed.
            other_clock_s: The same by the other clock.
        """
        self.read()
        with self._lock:
            self._seconds, self.other_clock_s = before, other_clock_s
            self._is_processor = is_processor

    def read(self) -> float:
        """Return the seconds of the run so far; call it every few seconds to detect sleep."""
        with self._lock:
            now, busy = self._steady(), self._busy()
            gap, worked = now - self._seen, busy - self._seen_busy
            self._seen, self._seen_busy = now, busy
            is_sleep = gap > GAP_SECONDS and worked < BUSY_SHARE * gap and not self._halted
            passed = 0.0 if is_sleep or self._halted else gap
            worked = 0.0 if self._halted else worked
            self._seconds += worked if self._is_processor else passed
            self.other_clock_s += passed if self._is_processor else worked
            seconds = self._seconds
        if is_sleep:
            self.on_sleep(gap)
        return seconds

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Exclude the time of a block."""
        self.read()
        with self._lock:
            self._halted += 1
        try:
            yield
        finally:
            self.read()
            with self._lock:
                self._halted -= 1
