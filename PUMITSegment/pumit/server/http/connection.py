"""A connection with time limits against slow clients.

uvicorn closes a connection that stays silent after an answer. It has no time limit for a first
request or the end of its headers, nor for a refused body or an unread answer. Each of these would
hold a connection, or the memory of an answer.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pumit.server.http.guard import IS_KNOWN
from pumit.server.http.refusals import refusal
from pumit.server.sessions.limits import Limits

# Connections for each session; a viewer opens a few.
_CONNECTIONS = 16
# Reading a chunk costs as much as reading a thousand bytes, whatever its size.
_FEW_PIECES = 256
_LEAST_PIECE_BYTES = 256


def connection_class(limits: Limits) -> type[H11Protocol]:
    """Return the connection class with these limits, for `uvicorn.Config(http=...)`."""
    return type("LimitedConnection", (TimedConnection,), {"_limits": limits})


class TimedConnection(H11Protocol):
    """uvicorn's connection with a time limit on every wait for its client."""

    _limits = Limits()
    _waiting: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _used_at = 0.0
    _is_known = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _FrugalParser(h11.SERVER)

    @property
    def is_at_work(self) -> bool:
        """Whether a request is being received or answered; its headers are complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a new connection; at the limit, drop an idle one or refuse the new one.

        Connections that never sent the token are dropped first, the longest idle of them first.
        """
        super().connection_made(transport)
        self._used_at = self.loop.time()
        self._expect_within(self._limits.header_timeout_s)
        if len(self.connections) > _CONNECTIONS * self._limits.max_sessions:
            idle = [
                c
                for c in self.connections
                if isinstance(c, TimedConnection) and c is not self and not c.is_at_work
            ]
            if idle:
                min(idle, key=lambda c: (c._is_known, c._used_at)).drop()
            else:
                self.app = _refuse_full

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._stop_waiting()
        self._stop_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received data, and limit the wait for the next."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._waiting is None:
                self._expect_within(self._limits.header_timeout_s)
        elif self.is_at_work:
            self._stop_waiting()  # the guard limits the time of the body

    def on_response_complete(self) -> None:
        """Continue with the next request, or receive the rest of a refused body for a while."""
        self._used_at = self.loop.time()
        self._is_known = self._is_known or IS_KNOWN in self.scope["state"]
        super().on_response_complete()
        if not self.transport.is_closing() and self.conn.their_state is h11.SEND_BODY:
            # A client may read the refusal only after it has sent the whole body.
            self._expect_within(self._limits.body_timeout_s)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with one sentence, unless another answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = refusal(HTTPStatus.BAD_REQUEST, "This is not a valid HTTP request.")
            headers = [*answer.raw_headers, (b"connection", b"close")]
            reason = HTTPStatus.BAD_REQUEST.phrase.encode()
            for event in (
                h11.Response(status_code=answer.status_code, headers=headers, reason=reason),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event))
            if self.is_at_work:  # the body is broken: wake its reader
                self.cycle.disconnected = True
                self.cycle.message_event.set()
        self.transport.close()

    def pause_writing(self) -> None:
        """Wait for a client that reads slowly, with a time limit."""
        super().pause_writing()
        self._expect_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Continue: the client has read enough."""
        self._stop_unread()
        super().resume_writing()

    def drop(self) -> None:
        """Abort the connection."""
        self._stop_waiting()
        self._stop_unread()
        self.transport.abort()

    def _expect_within(self, seconds: float) -> None:
        self._stop_waiting()
        self._waiting = self.loop.call_later(seconds, self.drop)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _expect_reading(self, size: int) -> None:
        def check() -> None:
            left = self.transport.get_write_buffer_size()
            if size - left < self._limits.min_body_rate * self._limits.body_timeout_s:
                self.drop()
            else:
                self._expect_reading(left)

        self._unread = self.loop.call_later(self._limits.body_timeout_s, check)

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class _FrugalParser(h11.Connection):
    """h11 parser that refuses a body in many tiny chunks."""

    _pieces = _bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._pieces = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._pieces += 1
            self._bytes += len(event.data)
            spared = max(0, self._pieces - _FEW_PIECES)
            if self._bytes < spared * _LEAST_PIECE_BYTES:
                raise h11.RemoteProtocolError("a body in too many tiny chunks")
        return event


async def _refuse_full(scope: Scope, receive: Receive, send: Send) -> None:
    answer = refusal(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "Too many requests at once; try again in a moment.",
        **{"Retry-After": "5", "Connection": "close"},
    )
    await answer(scope, receive, send)
