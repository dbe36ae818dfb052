"""The outermost ASGI layer, which counts requests under way and answered."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pumit.wire.protocol import ARRAY_PATHS

if TYPE_CHECKING:
    from pumit.server.http.metrics import Metrics

# Key of a request's state: the status of a refusal within a stream.
STREAMED_STATUS = "pumit_streamed_status"
# Counted for a request that matches no route: the path may hold private data.
_UNKNOWN_ROUTE = "other"


class Traffic:
    """Number of requests under way, and the counter of finished ones.

    Args:
        uncounted: Paths of probes, which do not count as under way.

    Attributes:
        in_flight: Number of requests not answered yet, without probes.
    """

    def __init__(self, metrics: Metrics | None = None, *, uncounted: Collection[str] = ()) -> None:
        self._metrics = metrics
        self._uncounted = frozenset(uncounted)
        self.in_flight = 0

    def counting(self, app: ASGIApp) -> ASGIApp:
        """Return an ASGI layer around an application that counts its requests.

        Args:
            app: The application with its guard, so that refused requests are counted too.
        """

        async def layer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await self._count(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return layer

    async def _count(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        status, size, is_whole = "none", 0, False

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

        under_way = int(scope["path"] not in self._uncounted)
        self.in_flight += under_way
        try:
            await app(scope, counted_receive, counted_send)
        finally:
            self.in_flight -= under_way
            if self._metrics is not None:
                # The router stores a matched route in the scope.
                route = getattr(scope.get("route"), "path", _UNKNOWN_ROUTE)
                status = scope.get("state", {}).get(STREAMED_STATUS, status)
                self._metrics.count_request(route, status)
                if scope["path"] in ARRAY_PATHS and is_whole and size:
                    self._metrics.count_upload(size)
