"""Operation of a server: shutdown, counts of requests, readiness and metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pumit.server.http.job_answer import STREAMED_STATUS
from pumit.server.http.refusals import refusal
from pumit.server.sessions.state import ServerState
from pumit.wire.protocol import ARRAY_PATHS, PATH_CLAIM, PATH_HEALTHZ, BusyError

if TYPE_CHECKING:
    from pumit.server.http.metrics import Metrics

logger = logging.getLogger(__name__)

PATH_READYZ = "/readyz"
PATH_METRICS = "/metrics"
# Probes come too often to count as traffic.
_PROBES = frozenset({PATH_HEALTHZ, PATH_READYZ, PATH_METRICS})
# Counted for a request that matches no route: the path may hold private data.
_UNKNOWN_ROUTE = "other"
# Extra time for the last requests after the sessions' time is over.
_FINISH_S = 30.0

router = APIRouter()


class Draining:
    """State of a shutdown: whether it has begun, and whether the server may exit."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_at: float | None = None
        self._sessions_s = 0.0

    @property
    def is_begun(self) -> bool:
        """Whether the shutdown has begun."""
        return self._begun_at is not None

    def begin(self, sessions_s: float) -> None:
        """Begin the shutdown; open sessions may continue for some seconds."""
        if self._begun_at is None:
            self._sessions_s = sessions_s
            self._begun_at = self._clock()

    def is_over(self, *, sessions: int, in_flight: int) -> bool:
        """Return whether the server may exit now."""
        if self._begun_at is None:
            return False
        waited = self._clock() - self._begun_at
        if sessions and waited < self._sessions_s:
            return False
        return not in_flight or waited >= self._sessions_s + _FINISH_S


class Operations:
    """Draining, traffic and metrics of an application.

    Attributes:
        in_flight: Number of requests not answered yet, without probes.
    """

    def __init__(self, app: FastAPI, *, wants_metrics: bool = False) -> None:
        self._app = app
        self.draining = Draining()
        self.in_flight = 0
        self.metrics = self._load_metrics(wants_metrics)

    @property
    def state(self) -> ServerState | None:
        """The server's state; None while it does not run."""
        return cast("ServerState | None", getattr(self._app.state, "server", None))

    @property
    def may_exit(self) -> bool:
        """Whether the server is drained and may exit."""
        state = self.state
        return self.draining.is_over(
            sessions=len(state.leases) if state else 0, in_flight=self.in_flight
        )

    @property
    def is_computing(self) -> bool:
        """Whether the compute thread is alive."""
        state = self.state
        return state is not None and state.queue.is_alive

    def why_not_ready(self) -> str | None:
        """Return why no new session can be opened; None if one can."""
        state = self.state
        if state is None:
            return "The server has not started yet."
        if self.draining.is_begun:
            return "The server is shutting down and accepts no new session."
        if not state.queue.is_alive:
            return "The server's compute thread has stopped; restart the server."
        memory = state.memory()
        if memory.scan_bytes + memory.embedding_bytes >= memory.limit_bytes:
            return "The server's memory for scans is used up."
        state.leases.sweep()
        if len(state.leases) >= state.limits.max_sessions:
            return "All sessions of the server are in use."
        return None

    def counting(self, app: ASGIApp) -> ASGIApp:
        """Return an ASGI layer around the application with its guard that counts its requests."""

        async def layer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
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

            under_way = int(scope["path"] not in _PROBES)
            self.in_flight += under_way
            try:
                await app(scope, counted_receive, counted_send)
            finally:
                self.in_flight -= under_way
                if self.metrics is not None:
                    # The router stores a matched route in the scope.
                    route = getattr(scope.get("route"), "path", _UNKNOWN_ROUTE)
                    status = scope.get("state", {}).get(STREAMED_STATUS, status)
                    self.metrics.count_request(route, status)
                    if scope["path"] in ARRAY_PATHS and is_whole and size:
                        self.metrics.count_upload(size)

        return layer

    def _load_metrics(self, is_required: bool) -> Metrics | None:
        try:
            from pumit.server.http.metrics import Metrics
        except ImportError:
            level = logging.WARNING if is_required else logging.INFO
            logger.log(level, "no /metrics: prometheus-client is not installed")
            return None
        return Metrics(lambda: self.state, self._gauges)

    def _gauges(self) -> dict[str, int]:
        return {
            "ready": self.why_not_ready() is None,
            "draining": self.draining.is_begun,
            "requests_in_flight": self.in_flight,
        }


def operations_of(request: Request) -> Operations:
    """Return the application's `Operations`."""
    return cast(Operations, request.app.state.operations)


async def refuse_claims_while_draining(request: Request) -> None:
    """Raise BusyError if the request opens a session and the server is shutting down."""
    opens = request.url.path == PATH_CLAIM or "start_session" in request.url.path  # ITK-SNAP's
    if opens and operations_of(request).draining.is_begun:
        raise BusyError("The server is shutting down; try again in a moment.")


_NOT_READY: dict[int | str, dict[str, Any]] = {
    int(HTTPStatus.SERVICE_UNAVAILABLE): {"description": "No new session can be opened now"}
}
_NO_METRICS: dict[int | str, dict[str, Any]] = {
    int(HTTPStatus.OK): {"content": {"text/plain": {"schema": {"type": "string"}}}},
    int(HTTPStatus.NOT_IMPLEMENTED): {"description": "prometheus-client is not installed"},
}


@router.get(PATH_READYZ, responses=_NOT_READY)
async def readyz(request: Request) -> JSONResponse:
    """Return whether a session could be opened now; needs no token, says nothing about users."""
    why_not = operations_of(request).why_not_ready()
    if why_not is None:
        return JSONResponse({"ok": True})
    return refusal(HTTPStatus.SERVICE_UNAVAILABLE, why_not, **{"Retry-After": "10"})


# Not async, so that it runs in a thread: querying GPU memory may take a moment.
@router.get(PATH_METRICS, responses=_NO_METRICS, response_class=PlainTextResponse)
def metrics(request: Request) -> Response:
    """Report counts, times and sizes for Prometheus; nothing about users or their images."""
    found = operations_of(request).metrics
    if found is None:
        return refusal(
            HTTPStatus.NOT_IMPLEMENTED,
            "This server has no metrics: `pip install prometheus-client` and start it again.",
        )
    return Response(found.text(), media_type=found.CONTENT_TYPE)
