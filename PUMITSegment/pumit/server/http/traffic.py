"""The outermost layer: counts requests that come, are under way, and are answered."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pumit.wire.protocol import ARRAY_PATHS

# What is no endpoint has no name of ours: what a client wrote there is no one's business.
_UNKNOWN_ROUTE = "other"


class TrafficCounter(Protocol):
    """Counts requests; `Metrics` in a server that is monitored."""

    def count_request(self, route: str, status: str) -> None:
        """One request has been answered, or its client has gone (`none`)."""

    def count_upload(self, size: int) -> None:
        """One array body of this many bytes has arrived whole."""


class Traffic:
    """Number of requests under way, and the counter that they go to.

    Args:
        uncounted: Paths of probes, which are never under way.
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
        """Requests that are not answered yet, probes left out."""
        return self._in_flight

    def begin(self, path: str) -> None:
        """Count a request that has come."""
        self._add(path, 1)

    def end(self, path: str) -> None:
        """Count a request that is over."""
        self._add(path, -1)

    def _add(self, path: str, count: int) -> None:
        if path not in self._uncounted:
            with self._lock:
                self._in_flight += count


class TrafficLayer:
    """An ASGI layer that reports to a `Traffic`.

    Args:
        app: The application, guard included: what it refuses is counted too.
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
                # The router leaves the endpoint in the scope, where one was found.
                route = getattr(scope.get("route"), "path", _UNKNOWN_ROUTE)
                counter.count_request(route, status)
                if path in ARRAY_PATHS and is_whole and size:
                    counter.count_upload(size)
