"""Draining: a server that shuts down takes no new session and exits when all have ended."""

from __future__ import annotations

import time
from collections.abc import Callable

# Extra time for the last requests after the sessions' time is over.
_FINISH_S = 30.0


class Draining:
    """State of a shutdown: whether it has begun, and whether the server may exit."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_at: float | None = None
        self._sessions_s = 0.0

    @property
    def is_begun(self) -> bool:
        """Whether the shutdown has begun."""
        return self._begun_at is not None

    def begin(self, sessions_s: float) -> None:
        """Begin the shutdown.

        Args:
            sessions_s: Time that open sessions may continue, seconds.
        """
        if self._begun_at is None:
            self._sessions_s = sessions_s
            self._begun_at = self._clock()

    def is_over(self, *, sessions: int, in_flight: int) -> bool:
        """Return whether the server may exit now."""
        if self._begun_at is None:
            return False
        waited = self._clock() - self._begun_at
        if sessions and waited < self._sessions_s:
            return False
        return not in_flight or waited >= self._sessions_s + _FINISH_S
