"""Waits for what happens in Slicer's event loop."""

import time
from collections.abc import Callable


def waitFor(condition: Callable[[], object], seconds: float = 1200.0) -> None:
    """Process Slicer's events until something holds; fails where that takes too long."""
    import slicer

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        slicer.app.processEvents()
        time.sleep(0.02)
