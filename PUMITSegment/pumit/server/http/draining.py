"""A server that is shutting down: it takes no new session and leaves when all are done."""

from __future__ import annotations

import time
from collections.abc import Callable

# How long the last requests may still take once the sessions' time is over.
_FINISH_S = 30.0


class Draining:
    """Whether a server is shutting down, and when it may end."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_at: float | None = None
        self._sessions_s = 0.0

    @property
    def is_begun(self) -> bool:
        """Whether no new session is taken any more."""
        return self._begun_at is not None

    def begin(self, sessions_s: float) -> None:
        """Take no new session from now on.

        Args:
            sessions_s: Time that open sessions may continue, seconds.
        """
        if self._begun_at is None:
            self._sessions_s = sessions_s
            self._begun_at = self._clock()

    def is_over(self, *, sessions: int, in_flight: int) -> bool:
        """Return whether the server may leave now.

        Args:
            in_flight: Requests that are not answered yet.
        """
        if self._begun_at is None:
            return False
        waited = self._clock() - self._begun_at
        if sessions and waited < self._sessions_s:
            return False
        return not in_flight or waited >= self._sessions_s + _FINISH_S
