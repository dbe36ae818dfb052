"""A connection with time limits against slow clients.

uvicorn answers one request after the other and closes a connection that stays silent after an
answer. It waits for ever, though, for a request that never begins or never ends its headers, for
a body that it has refused already, and for a client that does not read its answer; each of these
would hold one of the server's connections, or an answer's memory.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pumit.server.http.guard import IS_KNOWN, refusal
from pumit.server.sessions.limits import Limits

# Reading a piece costs as much as reading a thousand bytes, whatever it holds.
_FEW_PIECES = 256
_LEAST_PIECE_BYTES = 256


def connection_class(limits: Limits) -> type[H11Protocol]:
    """Return the connection that a server with these limits gives to `uvicorn.Config(http=...)`."""

    class LimitedConnection(TimedConnection):
        _limits = limits

    return LimitedConnection


class TimedConnection(H11Protocol):
    """uvicorn's connection with an end to every wait for its client."""

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
        """Take a new connection; where there are too many, in the place of an idle one.

        Those go first that never showed the token, and of them the one that was idle for longest.
        """
        super().connection_made(transport)
        self._used_at = self.loop.time()
        self._expect_within(self._limits.header_timeout_s)
        if len(self.connections) > self._limits.max_connections:
            others = [
                c for c in self.connections if isinstance(c, TimedConnection) and c is not self
            ]
            idle = [c for c in others if not c.is_at_work]
            if idle:
                min(idle, key=lambda c: (c._is_known, c._used_at)).drop()
            else:
                self.app = _refuse_full

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._cancel_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what arrived, and wait no longer than allowed for what has to follow."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._waiting is None:
                self._expect_within(self._limits.header_timeout_s)
        elif self.is_at_work and self._waiting is not None:
            # From here on the guard watches the body.
            self._waiting.cancel()
            self._waiting = None

    def on_response_complete(self) -> None:
        """Continue to the next request, or let the rest of a refused body come for a while."""
        self._used_at = self.loop.time()
        self._is_known = self._is_known or IS_KNOWN in self.scope["state"]
        super().on_response_complete()
        if not self.transport.is_closing() and self.conn.their_state is h11.SEND_BODY:
            # So that its sender, who may read only when all is sent, learns why.
            self._expect_within(self._limits.body_timeout_s)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP with a sentence, unless an answer is on its way already."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = refusal(HTTPStatus.BAD_REQUEST, "This is no HTTP request that can be read.")
            headers = [*answer.raw_headers, (b"connection", b"close")]
            reason = HTTPStatus.BAD_REQUEST.phrase.encode()
            for event in (
                h11.Response(status_code=answer.status_code, headers=headers, reason=reason),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event))
            if self.is_at_work:  # its body went wrong: its reader learns that it ends here
                self.cycle.disconnected = True
                self.cycle.message_event.set()
        self.transport.close()

    def pause_writing(self) -> None:
        """Wait for a client that reads slowly, but not for ever."""
        super().pause_writing()
        self._expect_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Continue, since the client has read."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def drop(self) -> None:
        """End the connection at once."""
        self._cancel_timers()
        self.transport.abort()

    def _expect_within(self, seconds: float) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self.loop.call_later(seconds, self.drop)

    def _expect_reading(self, size: int) -> None:
        def check() -> None:
            left = self.transport.get_write_buffer_size()
            if size - left < self._limits.min_body_rate * self._limits.body_timeout_s:
                self.drop()
            else:
                self._expect_reading(left)

        self._unread = self.loop.call_later(self._limits.body_timeout_s, check)

    def _cancel_timers(self) -> None:
        for timer in (self._waiting, self._unread):
            if timer is not None:
                timer.cancel()


class _FrugalParser(h11.Connection):
    """h11's parser, which refuses a body that comes in crumbs: chunks of a byte each."""

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
                raise h11.RemoteProtocolError("a body in crumbs")
        return event


async def _refuse_full(scope: Scope, receive: Receive, send: Send) -> None:
    answer = refusal(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "Too many requests are under way; try again in a moment.",
        **{"Retry-After": "5", "Connection": "close"},
    )
    await answer(scope, receive, send)
