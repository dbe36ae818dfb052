"""The outermost ASGI layer, which counts requests under way and answered."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pumit.wire.protocol import ARRAY_PATHS

# Key of a request's state: the status of a refusal within a stream.
STREAMED_STATUS = "pumit_streamed_status"
# Counted for a request that matches no route: the path may hold private data.
_UNKNOWN_ROUTE = "other"


class TrafficCounter(Protocol):
    """Counts requests; implemented by `Metrics`."""

    def count_request(self, route: str, status: str) -> None:
        """Count a finished request; status `none` if it had no answer."""

    def count_upload(self, size: int) -> None:
        """Count a complete array body of `size` bytes."""


class Traffic:
    """Number of requests under way, and the counter of finished ones.

    Args:
        uncounted: Paths of probes, which do not count as under way.
    """

    def __init__(
        self, counter: TrafficCounter | None = None, *, uncounted: Collection[str] = ()
    ) -> None:
        self.counter = counter
        self._uncounted = frozenset(uncounted)
        self._in_flight = 0
        self._lock = threading.Lock()

    @property
    def in_flight(self) -> int:
        """Number of requests not answered yet, without probes."""
        return self._in_flight

    def begin(self, path: str) -> None:
        """Count a request as under way."""
        self._add(path, 1)

    def end(self, path: str) -> None:
        """Count a request as finished."""
        self._add(path, -1)

    def _add(self, path: str, count: int) -> None:
        if path not in self._uncounted:
            with self._lock:
                self._in_flight += count


class TrafficLayer:
    """An ASGI layer that reports to a `Traffic`.

    Args:
        app: The application with its guard, so that refused requests are counted too.
    """

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, status, size, is_whole = scope["path"], "none", 0, False

        async def counted_receive() -> Message:
            nonlocal size, is_whole
            message = await receive()
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                is_whole = not message.get("more_body", False)
            return message

        async def counted_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        self._traffic.begin(path)
        try:
            await self._app(scope, counted_receive, counted_send)
        finally:
            self._traffic.end(path)
            counter = self._traffic.counter
            if counter is not None:
                # The router stores a matched route in the scope.
                route = getattr(scope.get("route"), "path", _UNKNOWN_ROUTE)
                status = scope.get("state", {}).get(STREAMED_STATUS, status)
                counter.count_request(route, status)
                if path in ARRAY_PATHS and is_whole and size:
                    counter.count_upload(size)
