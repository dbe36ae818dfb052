"""Listening sockets: an address of this machine, or a socket file for a proxy."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from pathlib import Path

from pumit.errors import PumitError, ServiceError

# Read and write for user and group only: the proxy's user joins the group.
_SOCKET_MODE = 0o660


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


def bind_address(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address of this machine.

    Args:
        port: 0 for a free one.

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
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ServiceError("The path of --uds is a file that is not a socket; remove it.")
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ServiceError("Another server listens on that socket file; choose another --uds.")
