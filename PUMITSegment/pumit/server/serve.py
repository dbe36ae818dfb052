"""`pumit serve`: where the server listens, with which token and certificate."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import logging
import os
import secrets
import socket
import ssl
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from pumit.errors import PumitError, ServiceError
from pumit.server.app import LOOPBACK_NAMES, create_app
from pumit.server.connection import connection_class
from pumit.server.engine import Engine, SegmenterEngine
from pumit.server.limits import MIB, Limits
from pumit.server.parent_watch import watch_parent
from pumit.server.protocol import API_VERSION, PARENT_VARIABLE, TOKEN_VARIABLE

_MIN_TOKEN_LENGTH = 16
_SHUTDOWN_S = 2

Announce = Callable[[dict[str, object]], None]


@dataclass(frozen=True)
class ServeSettings:
    """Where and how a server listens.

    Attributes:
        token: Bearer token; at least 16 characters.
        host: Address to bind; loopback unless there is a certificate.
        port: 0 for a free one.
        certfile: PEM certificate chain for TLS.
        keyfile: PEM key of the certificate.
        model: A name from the model index, or a checkpoint file.
        device: `auto`, `cpu`, `cuda`, ...
        limits: What clients may take.
        allowed_hosts: Further host names that requests may be meant for.

    Raises:
        PumitError: If the combination would be unsafe, or cannot be used.
    """

    token: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 0
    certfile: Path | None = None
    keyfile: Path | None = None
    model: str = "default"
    device: str = "auto"
    limits: Limits = field(default_factory=Limits)
    allowed_hosts: Collection[str] = ()

    def __post_init__(self) -> None:
        if not self.is_loopback and (self.certfile is None or not self.token):
            raise PumitError(
                f"To listen on {self.host}, outside this machine, give a token "
                f"(${TOKEN_VARIABLE} or --token-file) and --certfile with --keyfile; "
                "without them listen on 127.0.0.1."
            )
        if len(self.token) < _MIN_TOKEN_LENGTH or not self.token.isascii():
            raise PumitError(
                f"A token needs at least {_MIN_TOKEN_LENGTH} ASCII characters, "
                f"got {len(self.token)}; use a random one."
            )
        if not 0 <= self.port <= 65535:
            raise PumitError(f"A port is 0 to 65535, got {self.port}.")
        if self.certfile is None and self.keyfile is not None:
            raise PumitError("A --keyfile needs its --certfile.")
        if self.certfile is not None:
            _check_certificate(self.certfile, self.keyfile)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine only; unknown names count as outside."""
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def serve(
    settings: ServeSettings, *, engine: Engine | None = None, announce: Announce | None = None
) -> None:
    """Load the model, listen, and serve until a signal ends the process.

    Args:
        settings: Where and how.
        engine: The model; loaded as the settings say where None.
        announce: Called once clients can connect, with `event`, `url`, `port`, `pid` and
            `api_version`.

    Raises:
        PumitError: If the model cannot be loaded, or the address is taken.
    """
    engine = engine or SegmenterEngine(settings.model, device=settings.device)
    app = create_app(
        engine,
        token=settings.token,
        limits=settings.limits,
        allowed_hosts=_allowed_hosts(settings),
    )
    with _bind(settings.host, settings.port) as listener:
        port = listener.getsockname()[1]
        scheme = "https" if settings.certfile else "http"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        ready = {
            "event": "ready",
            "url": f"{scheme}://{host}:{port}",
            "port": port,
            "pid": os.getpid(),
            "api_version": API_VERSION,
        }
        config = uvicorn.Config(
            app,
            # Requests leave no trace: their paths and headers are nobody's business.
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            http=connection_class(settings.limits),
            ws="none",
            timeout_graceful_shutdown=_SHUTDOWN_S,
            ssl_certfile=settings.certfile,
            ssl_keyfile=settings.keyfile,
        )
        _Server(config, lambda: announce(ready) if announce else None).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A uvicorn server that says when it is ready."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pumit serve`."""
    defaults = Limits()
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port; 0 takes a free one (default)")
    parser.add_argument(
        "--token-file",
        type=Path,
        help=f"file that holds the bearer token; else ${TOKEN_VARIABLE}, else a new one is shown",
    )
    parser.add_argument("--certfile", type=Path, help="PEM certificate chain, for TLS")
    parser.add_argument("--keyfile", type=Path, help="PEM key of the certificate")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="further host name that requests may be meant for; repeatable",
    )
    parser.add_argument("--model", default="default", help="model name or checkpoint file")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (%(default)s)")
    parser.add_argument("--max-sessions", type=int, default=defaults.max_sessions)
    parser.add_argument(
        "--max-array-mib",
        type=int,
        default=defaults.max_array_bytes // MIB,
        help="largest volume after decompression, MiB (%(default)s)",
    )
    parser.add_argument(
        "--idle-timeout",
        type=float,
        default=defaults.idle_timeout_s,
        help="seconds after which an unused session is freed (%(default)s)",
    )
    parser.add_argument(
        "--liveness-timeout",
        type=float,
        default=defaults.liveness_timeout_s,
        help="seconds after which a session without heartbeat is freed (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="say what happens as JSON lines")


def run(args: argparse.Namespace, *, engine: Engine | None = None) -> int:
    """Run `pumit serve` with the options of `add_arguments`.

    Args:
        args: Parsed options.
        engine: The model; loaded as the options say where None.

    Returns:
        Exit status.

    Raises:
        PumitError: What the user can repair.
    """
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if parent.isdigit():
        watch_parent(int(parent))
    token, is_new = _find_token(args.token_file)
    array_bytes = args.max_array_mib * MIB
    settings = ServeSettings(
        # Outside this machine a token must be chosen by whoever runs the server.
        token=token if is_loopback(args.host) or not is_new else "",
        host=args.host,
        port=args.port,
        certfile=args.certfile,
        keyfile=args.keyfile,
        model=args.model,
        device=args.device,
        limits=Limits(
            max_sessions=args.max_sessions,
            max_array_bytes=array_bytes,
            max_body_bytes=array_bytes + array_bytes // 64 + MIB,
            idle_timeout_s=args.idle_timeout,
            liveness_timeout_s=args.liveness_timeout,
        ),
        allowed_hosts=tuple(args.allowed_host),
    )
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")

    def announce(ready: dict[str, object]) -> None:
        shown = {**ready, "token": token} if is_new else ready
        if args.json:
            text = json.dumps(shown)
        else:
            text = f"PUMIT is ready at {ready['url']}"
            text += f"\nBearer token, for this run only: {token}" if is_new else ""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    serve(settings, engine=engine, announce=announce)
    return 0


def _find_token(file: Path | None) -> tuple[str, bool]:
    """The token, and whether it was made up here."""
    # Removed, so that no process started from here inherits it.
    given = os.environ.pop(TOKEN_VARIABLE, "")
    if file is not None:
        try:
            given = file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PumitError(
                f"The token file cannot be read ({type(error).__name__}); check --token-file."
            ) from None
        if not given:
            raise PumitError("The token file is empty; put a random token of 16 or more into it.")
    return (given, False) if given else (secrets.token_urlsafe(32), True)


def _allowed_hosts(settings: ServeSettings) -> Collection[str] | None:
    if not settings.is_loopback and not settings.allowed_hosts:
        return None  # the machine's names are many; token and certificate stand before it
    names = {name.lower() for name in settings.allowed_hosts} | {settings.host.lower()}
    return names | LOOPBACK_NAMES


def _check_certificate(certfile: Path, keyfile: Path | None) -> None:
    try:
        # A key with a passphrase would ask for it on the terminal: better to refuse.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile, password="")
    except (OSError, ssl.SSLError) as error:
        raise PumitError(
            f"The certificate or its key cannot be used ({type(error).__name__}); --certfile and "
            "--keyfile must be PEM files that belong together, without a passphrase."
        ) from None


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ServiceError(
            f"Cannot listen on {host}, port {port} ({error.strerror}); choose another --port."
        ) from None
    return listener
