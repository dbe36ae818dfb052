"""A uvicorn server on given sockets that drains before it exits, and notifies its service manager.

Each notice to systemd is one datagram to the socket in `$NOTIFY_SOCKET` (`Type=notify`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import stat
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from types import FrameType

import uvicorn

from pumit.errors import PumitError, ServiceError
from pumit.server.http.operations_routes import Operations

READY = "READY=1"
ALIVE = "WATCHDOG=1"
STOPPING = "STOPPING=1"
# Read and write for user and group only: the proxy's user joins the group.
_SOCKET_MODE = 0o660
# By result of OpenSSL's verification: `X509_V_ERR_...` in its `x509_vfy.h`.
_DATE_PROBLEMS = {
    9: "it is not valid yet, so viewers refuse it; check this computer's date",
    10: "it has expired, so viewers refuse it; renew it and start the server again",
}


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


def check_certificate(certfile: Path, keyfile: Path | None) -> None:
    """Check that a certificate and its key can be loaded.

    Raises:
        PumitError: If they cannot, or the key has a passphrase.
    """
    try:
        # With an empty password a key with a passphrase fails instead of prompting.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile, password="")
    except (OSError, ssl.SSLError) as error:
        raise PumitError(
            f"The certificate or its key cannot be used ({type(error).__name__}); --certfile and "
            "--keyfile must be PEM files that belong together, without a passphrase."
        ) from None


def date_problem(certfile: Path, keyfile: Path | None) -> str | None:
    """Return what is wrong with the dates of a certificate, or None.

    Python's standard library has no public reader of certificates: a client in this process, which
    trusts the certificate regardless of its issuer, connects to a server with it, both in memory.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certfile, keyfile, password="")
    verifying = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    verifying.check_hostname = False
    verifying.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = verifying.wrap_bio(down, up)
    server = context.wrap_bio(up, down, server_side=True)
    try:
        verifying.load_verify_locations(certfile)
        for side in (client, server, client):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return _DATE_PROBLEMS.get(error.verify_code)
    except ssl.SSLError:  # nothing is known of its dates
        return None
    return None


def bind_address(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address of this machine.

    Raises:
        ServiceError: If the address is in use, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Explicit IPPROTO_TCP: asyncio sets TCP_NODELAY only on such sockets. Without it the body of
    # each answer waits 40 ms on Linux, for the client's acknowledgement of the headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # on Windows it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ServiceError(
            f"Cannot listen on {host}, port {port} ({error.strerror}); choose another --port."
        ) from None
    return listener


def bind_file(path: Path) -> socket.socket:
    """Return a socket bound to a file that only its user and group can open.

    A stale file of a killed server is replaced.

    Raises:
        ServiceError: If another server listens there, or the file cannot be created.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise ServiceError("This system has no Unix sockets; give --host and --port, not --uds.")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path, listener.family)
        listener.bind(str(path))
        # No client can connect before `listen`.
        path.chmod(_SOCKET_MODE)
    except OSError as error:
        listener.close()
        why = error.strerror or str(error)
        raise ServiceError(
            f"Cannot listen on the socket file ({why}); give --uds a path of at most 100 "
            "characters in a folder that this user may write to."
        ) from None
    except ServiceError:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path, family: int) -> None:
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise ServiceError("The path of --uds is a file that is not a socket; remove it.")
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ServiceError("Another server listens on that socket file; choose another --uds.")


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
        period_s = self._notice.watchdog_s
        now = time.monotonic()
        # Without its compute thread the server is dead: let the service manager restart it.
        if period_s and now - self._reported_at > period_s / 3 and self._operations.is_computing:
            self._reported_at = now
            self._notice.notify(ALIVE)
        return await super().on_tick(counter)
