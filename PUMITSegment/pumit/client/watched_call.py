"""Requests that end for their caller when the user cancels or the server is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from pumit.errors import ServiceError
from pumit.system.watch import Watch

Answer = TypeVar("Answer")

_TICK_S = 0.02


class PendingRequest:
    """A long request, which any thread can stop.

    Attributes:
        segment: The segment, or the name of another job.
        watch: The caller's, which also says whether the request was stopped.
    """

    def __init__(self, segment: str, watch: Watch) -> None:
        self.segment = segment
        self._stopped = stopped = threading.Event()
        self.watch = Watch(lambda: stopped.is_set() or watch.is_cancelled, watch.progress)

    def stop(self) -> None:
        """End the wait for the answer: the waiting thread gets `Cancelled`."""
        self._stopped.set()


def call_watched(
    request: Callable[[Watch], Answer],
    pending: PendingRequest,
    *,
    is_alive: Callable[[], bool],
) -> Answer:
    """Run a request in a thread, which a cancelled one leaves behind, and watch it from this one.

    A thread that reads from a server can't be woken: a tunnel may have vanished, and a server that
    is starved, or behind a proxy that buffers, is silent for long. So heartbeats decide.

    Args:
        request: Called with a watch that does not use the caller's in the other thread.

    Raises:
        Cancelled: If the user cancelled it.
        ServiceError: If the server died; other errors of `request` pass through.
    """
    watch, dropped = pending.watch, threading.Event()
    watch.check()
    fractions: list[float] = []
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(request(Watch(dropped.is_set, fractions.append)))
        except BaseException as error:
            # Raised again in the waiting thread.
            future.set_exception(error)

    threading.Thread(target=run, name="pumit-ask", daemon=True).start()
    try:
        while not wait([future], _TICK_S).done:
            watch.check()
            if not is_alive():
                raise ServiceError("The server stopped; start it again, your prompts are kept.")
            while fractions:
                watch.report(fractions.pop(0))
    finally:
        dropped.set()
    answer = future.result()
    for share in (*fractions, 1.0):
        watch.report(share)
    return answer
