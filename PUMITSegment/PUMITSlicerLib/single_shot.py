"""Timer that calls back once, such as after the current event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import qt


def singleShot(react: Callable[[], None], interval_ms: int = 0) -> Any:
    """Return a timer that calls back once after each start; at 0 ms, after the current event."""
    timer = qt.QTimer()
    timer.setSingleShot(True)
    timer.setInterval(interval_ms)
    timer.connect("timeout()", react)
    return timer
