"""The time that a run works: pauses, and the sleep of the computer, are left out.

Or the time that the processor works for it, whatever else the machine does.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# The clock was not read for so long: the computer slept, or the process was halted.
GAP_SECONDS = 15.0
# ... unless the processor worked for this process in that time, which then had no time to look.
BUSY_SHARE = 0.1


def _steady_seconds() -> float:
    """Return a clock that no one sets and that runs on while the computer sleeps."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)  # Python's own stands still in sleep
    return time.monotonic()


class RunClock:
    """Count the seconds that a run works; may be read from any thread.

    Both clocks are counted: one is the run's, the other is kept as well.

    Args:
        steady: Seconds of a clock that runs on in sleep.
        busy: Seconds that the processor has worked for this process.

    Attributes:
        on_sleep: Callback for the seconds that the machine slept, once noticed.
    """

    def __init__(
        self,
        steady: Callable[[], float] = _steady_seconds,
        busy: Callable[[], float] = time.process_time,
    ) -> None:
        self._steady, self._busy = steady, busy
        self._lock = threading.Lock()
        self._seconds = self._other_clock_s = 0.0
        self._is_processor = False
        self._halted = 0
        self._seen, self._seen_busy = steady(), busy()
        self.on_sleep: Callable[[float], None] = lambda seconds: None

    def begin(
        self, before: float = 0.0, *, other_clock_s: float = 0.0, is_processor: bool = False
    ) -> None:
        """Count again.

        Args:
            before: Seconds of earlier parts of the run.
            other_clock_s: The same by the other clock.
            is_processor: Whether the run's clock is that of the processor.
        """
        self.read()
        with self._lock:
            self._seconds, self._other_clock_s, self._is_processor = (
                before,
                other_clock_s,
                is_processor,
            )

    def read(self) -> float:
        """Seconds of the run until now. Asked every few seconds, it notices sleep."""
        with self._lock:
            now, busy = self._steady(), self._busy()
            gap, worked = now - self._seen, busy - self._seen_busy
            self._seen, self._seen_busy = now, busy
            is_sleep = gap > GAP_SECONDS and worked < BUSY_SHARE * gap and not self._halted
            passed = 0.0 if is_sleep or self._halted else gap
            worked = 0.0 if self._halted else worked
            self._seconds += worked if self._is_processor else passed
            self._other_clock_s += passed if self._is_processor else worked
            seconds = self._seconds
        if is_sleep:
            self.on_sleep(gap)
        return seconds

    @property
    def other_clock_s(self) -> float:
        """Seconds by the clock that is not the run's, as of the last look."""
        return self._other_clock_s

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Leave out the time of a block."""
        self.read()
        with self._lock:
            self._halted += 1
        try:
            yield
        finally:
            self.read()
            with self._lock:
                self._halted -= 1
