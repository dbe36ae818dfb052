"""A timer of Qt behind a seam, so that logic can be tested without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """Calls something, once or again and again."""

    def start(self, interval_ms: int) -> None:
        """Call it after each interval, or once; a timer that runs begins anew."""

    def stop(self) -> None:
        """Call it no more."""


class QtTimer:
    """A timer on the GUI thread.

    Args:
        callback: What is called.
        isSingle: Whether it is called once for each start.
    """

    def __init__(self, callback: Callable[[], None], isSingle: bool = False) -> None:
        import qt

        self._timer = qt.QTimer()
        self._timer.setSingleShot(isSingle)
        self._timer.connect("timeout()", callback)

    def start(self, interval_ms: int) -> None:
        """Start, or begin anew."""
        self._timer.start(interval_ms)

    def stop(self) -> None:
        """Stop."""
        self._timer.stop()
