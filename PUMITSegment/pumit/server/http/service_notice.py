"""Notices to systemd from a service of `Type=notify`: ready, alive, stopping.

Each is one datagram to the socket in `$NOTIFY_SOCKET`; without that variable nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping

READY = "READY=1"
ALIVE = "WATCHDOG=1"
STOPPING = "STOPPING=1"


class ServiceNotice:
    """Sends notices to the service manager.

    Args:
        address: Socket path, with `@` for an abstract one; empty for none.
        watchdog_s: The manager's watchdog period, seconds; None for no watchdog.
    """

    def __init__(self, address: str = "", *, watchdog_s: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = watchdog_s

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> ServiceNotice:
        """Read the manager's variables and remove them, so that child processes do not use them."""
        address = environment.pop("NOTIFY_SOCKET", "")
        period_us = environment.pop("WATCHDOG_USEC", "")
        is_ours = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watched = period_us.isdigit() and int(period_us) > 0 and is_ours
        return cls(address, watchdog_s=int(period_us) / 1e6 if watched else None)

    def notify(self, *lines: str) -> None:
        """Send lines such as `READY`; errors of the socket are ignored."""
        if not self._address or not hasattr(socket, "AF_UNIX"):
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)
            ) as line,
        ):
            line.sendto("\n".join(lines).encode(), self._address)
