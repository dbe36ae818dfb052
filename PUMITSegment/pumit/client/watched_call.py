"""Long requests with cancellation, progress and detection of a dead server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from pumit.errors import Cancelled, ServiceError
from pumit.system.watch import UNWATCHED, Watch

Answer = TypeVar("Answer")

_TICK_S = 0.02
_POLL_S = 0.2
_STOP_S = 5.0


def call_watched(
    request: Callable[[], Answer],
    *,
    stop: Callable[[], None],
    is_alive: Callable[[], bool],
    fraction: Callable[[], float | None],
    watch: Watch = UNWATCHED,
    patience_s: float = _STOP_S,
) -> Answer:
    """Run a request in a thread, and watch it from this one.

    Args:
        stop: Asks the server to cancel the request; may be called repeatedly.
        fraction: Returns the finished fraction, 0 to 1, or None if unknown.
        patience_s: Longest wait for the end of a cancelled request, seconds; 0 abandons it at once,
            for servers that cannot cancel.

    Raises:
        Cancelled: If the user cancelled it.
        ServiceError: If the server died; other errors of `request` pass through.
    """
    watch.check()
    future = _start(request)
    polled_at = time.monotonic()
    while not wait([future], _TICK_S).done:
        if watch.is_cancelled:
            _stop_and_wait(future, stop, patience_s)
            raise Cancelled("The computation was cancelled.")
        if not is_alive():
            raise ServiceError("The server stopped; start it again, your prompts are kept.")
        if watch.progress is not None and time.monotonic() - polled_at > _POLL_S:
            share, polled_at = fraction(), time.monotonic()
            if share is not None:
                watch.progress(share)
    answer = future.result()
    watch.report(1.0)
    return answer


def _start(request: Callable[[], Answer]) -> Future[Answer]:
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(request())
        except BaseException as error:
            # Raised again in the waiting thread.
            future.set_exception(error)

    threading.Thread(target=run, name="pumit-ask", daemon=True).start()
    return future


def _stop_and_wait(future: Future[Answer], stop: Callable[[], None], patience_s: float) -> None:
    """Repeat the cancellation until the request ends: the first may arrive before the request."""
    end = time.monotonic() + patience_s
    stop()
    while not wait([future], min(_POLL_S, patience_s)).done and time.monotonic() < end:
        stop()
