"""A uvicorn server that drains before it exits, and notifies its service manager."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from pumit.server.http.operations_routes import Operations
from pumit.server.http.service_notice import ALIVE, READY, STOPPING, ServiceNotice


class GracefulServer(uvicorn.Server):
    """A server that reports readiness and liveness to systemd, and can drain on SIGTERM.

    Args:
        drain_s: Seconds that open sessions may continue after the first SIGTERM; 0 to exit at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        operations: Operations,
        *,
        on_ready: Callable[[], None],
        drain_s: float = 0.0,
        notice: ServiceNotice | None = None,
    ) -> None:
        super().__init__(config)
        self._operations = operations
        self._on_ready = on_ready
        self._drain_s = drain_s
        self._notice = notice or ServiceNotice()
        self._reported_at = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first SIGTERM; any other signal ends the server as in uvicorn."""
        draining = self._operations.draining
        if sig == signal.SIGTERM and self._drain_s > 0 and not draining.is_begun:
            draining.begin(self._drain_s)
            self._notice.notify(STOPPING, "STATUS=Waiting for open sessions")
            return
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and announce that clients can connect."""
        await super().startup(sockets)
        if self.started:
            self._notice.notify(READY)
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """Exit when drained, and report liveness; called ten times a second."""
        if self._operations.may_exit:
            self.should_exit = True
        self._notify_alive()
        return await super().on_tick(counter)

    def _notify_alive(self) -> None:
        period_s = self._notice.watchdog_s
        now = time.monotonic()
        # Without its compute thread the server is dead: let the service manager restart it.
        if period_s and now - self._reported_at > period_s / 3 and self._operations.is_computing:
            self._reported_at = now
            self._notice.notify(ALIVE)
