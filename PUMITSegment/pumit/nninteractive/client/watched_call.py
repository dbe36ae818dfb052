"""Requests that run in a thread, because an nnInteractive server can neither cancel nor report."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from pumit.client.http_client import PendingRequest
from pumit.errors import ServiceError
from pumit.system.watch import Watch

Answer = TypeVar("Answer")

_TICK_S = 0.02


def call_watched(
    request: Callable[[Watch], Answer],
    pending: PendingRequest,
    *,
    is_alive: Callable[[], bool],
) -> Answer:
    """Run a request in a thread, which a cancelled one leaves behind, and watch it from this one.

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
    watch.report(1.0)
    return answer
