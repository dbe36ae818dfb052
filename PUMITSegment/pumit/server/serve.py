"""`pumit serve`: settings, tokens and start of the server."""

import argparse
import contextlib
import json
import logging
import os
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvicorn

from pumit.errors import PumitError
from pumit.itksnap.paths import PORT as ITKSNAP_PORT
from pumit.models.consent import require_consent
from pumit.server.app import LOOPBACK_NAMES, create_app
from pumit.server.http.connection import connection_class
from pumit.server.http.graceful_server import (
    GracefulServer,
    ServiceNotice,
    bind_address,
    bind_file,
    check_certificate,
    date_problem,
)
from pumit.server.sessions.engine import SegmenterEngine
from pumit.server.sessions.limits import MIB, Limits
from pumit.system.loopback import is_loopback
from pumit.volume import Volume
from pumit.wire.protocol import API_VERSION, PARENT_VARIABLE, TOKEN_VARIABLE

logger = logging.getLogger(__name__)

_MIN_TOKEN_LENGTH = 16
_SHUTDOWN_S = 2
_PARENT_POLL_S = 0.5
# The part of a lease token before the first dot, by which a proxy routes.
_INSTANCE_NAME = re.compile(r"[A-Za-z0-9-]{0,32}")

Announce = Callable[[dict[str, object]], None]


@dataclass(frozen=True)
class ServeSettings:
    """Address, security, model and limits of a server.

    Those of an option of `pumit serve` (`add_arguments`) are described there.

    Attributes:
        token: Bearer token; at least 16 characters.
        drain_s: Seconds that open sessions may continue after SIGTERM; 0 to end at once.
        keeps_graphs: Whether compiled graphs are cached in the user's folder, as by a local worker.

    Raises:
        PumitError: If the combination is unsafe or invalid.
    """

    token: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 0
    uds: Path | None = None
    certfile: Path | None = None
    keyfile: Path | None = None
    model: str = "default"
    device: str = "auto"
    limits: Limits = field(default_factory=Limits)
    allowed_hosts: Collection[str] = ()
    instance: str = ""
    metrics_token: str = field(default="", repr=False)
    drain_s: float = 0.0
    keeps_graphs: bool = False
    itksnap: bool = False

    def __post_init__(self) -> None:
        if self.uds is not None:
            if self.host != "127.0.0.1" or self.port or self.certfile or self.keyfile:
                raise PumitError(
                    "--uds replaces --host, --port, --certfile and --keyfile: leave them out, the "
                    "proxy in front has address and certificate."
                )
            if not self.token:
                # Others reach it through the proxy: the operator must choose the token.
                raise PumitError(
                    f"Behind a proxy (--uds), give a token: ${TOKEN_VARIABLE} or --token-file."
                )
        if self.itksnap and (not self.is_loopback or self.uds or self.certfile):
            raise PumitError(
                "ITK-SNAP sends neither token nor TLS: with --itksnap the server listens on "
                "127.0.0.1 only. From another computer, use the SSH tunnel in ITK-SNAP's "
                "settings."
            )
        if not self.is_loopback and (self.certfile is None or not self.token):
            raise PumitError(
                f"To accept connections from other machines on {self.host}, give a token "
                f"(${TOKEN_VARIABLE} or --token-file) and --certfile with --keyfile; otherwise "
                "listen on 127.0.0.1, or on a socket file (--uds) behind a proxy."
            )
        _check_token(self.token, "A token")
        if self.metrics_token:
            _check_token(self.metrics_token, "The token of --metrics-token-file")
            if self.metrics_token == self.token:
                raise PumitError(
                    "The token for /metrics must differ from the token that opens sessions; put "
                    "a new random one into --metrics-token-file."
                )
        if not 0 <= self.port <= 65535:
            raise PumitError(f"A port is 0 to 65535, got {self.port}.")
        if not _INSTANCE_NAME.fullmatch(self.instance):
            raise PumitError(
                "An --instance name is at most 32 ASCII letters, digits and hyphens, "
                f"got {self.instance!r}."
            )
        if not 0 <= self.drain_s < float("inf"):
            raise PumitError(f"--drain-seconds must be 0 or more, got {self.drain_s}.")
        if self.certfile is None and self.keyfile is not None:
            raise PumitError("A --keyfile needs its --certfile.")
        if self.certfile is not None:
            check_certificate(self.certfile, self.keyfile)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)


def serve(
    settings: ServeSettings,
    *,
    engine: SegmenterEngine | None = None,
    announce: Announce | None = None,
    scan: Volume | None = None,
) -> None:
    """Load the model, listen, and serve until a signal ends the process.

    Args:
        engine: The loaded model; None to load it from the settings.
        announce: Callback once clients can connect, with `event`, `url`, `port`, `pid` and
            `api_version`; with a socket file `url` is `unix:` and its path, and `port` is 0.
        scan: A scan that every session may open without an upload.

    Raises:
        PumitError: If the model cannot be loaded, or the address is in use.
    """
    notice = ServiceNotice.from_environment()
    if settings.certfile and (problem := date_problem(settings.certfile, settings.keyfile)):
        logger.warning("the certificate is out of date: %s", problem)
    engine = engine or SegmenterEngine(
        settings.model, device=settings.device, keeps_graphs=settings.keeps_graphs
    )
    app = create_app(
        engine,
        token=settings.token,
        limits=settings.limits,
        allowed_hosts=_allowed_hosts(settings),
        instance=settings.instance,
        metrics_token=settings.metrics_token,
        scan=scan,
        itksnap=settings.itksnap,
    )
    uds = settings.uds
    listener = bind_file(uds) if uds else bind_address(settings.host, settings.port)
    with listener:
        port = 0 if uds else listener.getsockname()[1]
        scheme = "https" if settings.certfile else "http"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        ready = {
            "event": "ready",
            "url": f"unix:{uds}" if uds else f"{scheme}://{host}:{port}",
            "port": port,
            "pid": os.getpid(),
            "api_version": API_VERSION,
        }
        config = uvicorn.Config(
            app,
            # No access log: paths and headers are private.
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
        server = GracefulServer(
            config,
            app.state.operations,
            on_ready=lambda: announce(ready) if announce else None,
            drain_s=settings.drain_s,
            notice=notice,
        )
        try:
            server.run(sockets=[listener])
        finally:
            if uds:
                uds.unlink(missing_ok=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pumit serve`."""
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port; 0 takes a free one (default)")
    parser.add_argument(
        "--uds",
        type=Path,
        metavar="PATH",
        help="listen on this Unix socket file instead, for a proxy on this machine that does TLS",
    )
    parser.add_argument(
        "--instance",
        default="",
        metavar="NAME",
        help="put NAME and a dot before each lease token, so that a proxy finds this server",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        help=f"file that holds the bearer token; else ${TOKEN_VARIABLE}, else a new one is shown",
    )
    parser.add_argument(
        "--metrics-token-file",
        type=Path,
        help="file that holds a second token, valid for /metrics only",
    )
    parser.add_argument(
        "--itksnap",
        action="store_true",
        help="also serve ITK-SNAP, which sends no token: every program on this machine can then "
        f"open sessions; on 127.0.0.1 only, and port {ITKSNAP_PORT} unless --port is given",
    )
    parser.add_argument("--certfile", type=Path, help="PEM certificate chain, for TLS")
    parser.add_argument("--keyfile", type=Path, help="PEM key of the certificate")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="additional host name to accept in requests; repeatable",
    )
    parser.add_argument("--model", default="default", help="model name or checkpoint file")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (%(default)s)")
    limits = Limits()
    for option, default, text in (
        ("--max-sessions", limits.max_sessions, "maximum number of open sessions"),
        (
            "--max-array-mib",
            limits.max_array_bytes // MIB,
            "largest volume after decompression, MiB",
        ),
        (
            "--max-memory-mib",
            limits.max_memory_bytes // MIB,
            "memory limit of all scans and embeddings, MiB; default: half of the machine's memory",
        ),
        (
            "--sleep-after",
            limits.sleep_after_s,
            "seconds after which an unused session keeps only its compressed scan",
        ),
        (
            "--idle-timeout",
            limits.idle_timeout_s,
            "seconds after which an unused session is freed",
        ),
        (
            "--liveness-timeout",
            limits.liveness_timeout_s,
            "seconds after which a session without heartbeat is freed",
        ),
        (
            "--drain-seconds",
            0.0,
            "on SIGTERM refuse new sessions, and let open ones continue for this many seconds (0)",
        ),
    ):
        parser.add_argument(option, type=type(default), default=default, help=text)
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")


def run(args: argparse.Namespace, *, engine: SegmenterEngine | None = None) -> int:
    """Run `pumit serve` with the options of `add_arguments`.

    Args:
        engine: The loaded model; None to load it from the options.

    Raises:
        PumitError: An error that the user can repair.
    """
    leave_no_files()
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if parent.isdigit():
        watch_parent(int(parent))
    else:  # a viewer has its user's consent before it starts a worker
        require_consent(args.model)
    token, is_new = _find_token(args.token_file)
    is_alone = is_loopback(args.host) and args.uds is None
    array_bytes = args.max_array_mib * MIB
    settings = ServeSettings(
        # Beyond loopback the operator must choose the token.
        token=token if is_alone or not is_new else "",
        host=args.host,
        port=args.port or (ITKSNAP_PORT if args.itksnap else 0),
        itksnap=args.itksnap,
        uds=args.uds,
        certfile=args.certfile,
        keyfile=args.keyfile,
        model=args.model,
        device=args.device,
        keeps_graphs=parent.isdigit(),
        limits=Limits(
            max_sessions=args.max_sessions,
            max_array_bytes=array_bytes,
            max_body_bytes=array_bytes + array_bytes // 64 + MIB,
            max_memory_bytes=args.max_memory_mib * MIB,
            sleep_after_s=args.sleep_after,
            idle_timeout_s=args.idle_timeout,
            liveness_timeout_s=args.liveness_timeout,
        ),
        allowed_hosts=tuple(args.allowed_host),
        instance=args.instance,
        metrics_token=(
            _read_token(args.metrics_token_file, "--metrics-token-file")
            if args.metrics_token_file
            else ""
        ),
        drain_s=args.drain_seconds,
    )
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")

    def announce(ready: dict[str, object]) -> None:
        shown = {**ready, "token": token} if is_new else ready
        if args.json:
            text = json.dumps(shown)
        else:
            text = f"PUMIT is ready at {ready['url']}"
            if args.itksnap:
                text += f"\nITK-SNAP: Server 127.0.0.1, Port {ready['port']}; no token is needed."
            text += f"\nBearer token, for this run only: {token}" if is_new else ""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    serve(settings, engine=engine, announce=announce)
    return 0


def watch_parent(
    parent_pid: int, *, stdin_fd: int = 0, on_gone: Callable[[], None] | None = None
) -> None:
    """End this process and its children when the parent process has gone; returns at once.

    A worker has nothing to save, so a killed viewer leaves no process behind. Two signs are
    watched, because a launcher may run between the two programs: the pipe on standard input
    closes, or the parent's process has ended.

    Args:
        stdin_fd: Pipe whose other end the parent keeps open.
        on_gone: Callback instead of the end; called on a watching thread, maybe on both.
    """
    end = on_gone or _end_process_tree

    def read_until_closed() -> None:
        # A pipe that cannot be read is closed.
        with contextlib.suppress(OSError):
            while os.read(stdin_fd, 64):
                pass
        end()

    def poll() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):  # it had already ended
            # psutil also compares the start time: the id may be reused by another process.
            parent = psutil.Process(parent_pid)
            while parent.is_running():
                time.sleep(_PARENT_POLL_S)
        end()

    threading.Thread(target=read_until_closed, name="pumit-parent-pipe", daemon=True).start()
    threading.Thread(target=poll, name="pumit-parent-pid", daemon=True).start()


def _end_process_tree() -> None:
    """End this process and, if it leads a process group, that group."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def leave_no_files() -> None:
    """Disable core dumps and .pyc files, so that serving writes nothing to disk."""
    sys.dont_write_bytecode = True
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _find_token(file: Path | None) -> tuple[str, bool]:
    """Return the token, and whether it was generated here."""
    # Removed, so that child processes do not inherit it.
    given = os.environ.pop(TOKEN_VARIABLE, "")
    if file is not None:
        given = _read_token(file, "--token-file")
    return (given, False) if given else (secrets.token_urlsafe(32), True)


def _read_token(file: Path, option: str) -> str:
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PumitError(
            f"The token file cannot be read ({type(error).__name__}); check {option}."
        ) from None
    if not token:
        raise PumitError(
            f"The token file of {option} is empty; put a random token of at least "
            f"{_MIN_TOKEN_LENGTH} characters into it."
        )
    return token


def _check_token(token: str, what: str) -> None:
    if len(token) < _MIN_TOKEN_LENGTH or not token.isascii():
        raise PumitError(
            f"{what} needs at least {_MIN_TOKEN_LENGTH} ASCII characters, "
            f"got {len(token)}; use a random one."
        )
    if not token.isprintable() or " " in token:
        raise PumitError(f"{what} has characters that clients cannot send; use letters and digits.")


def _allowed_hosts(settings: ServeSettings) -> Collection[str] | None:
    # Behind a proxy the host names are the proxy's, and no web page reaches a socket file.
    # Beyond loopback a machine has many names; token and certificate protect it.
    if (settings.uds or not settings.is_loopback) and not settings.allowed_hosts:
        return None
    names = {name.lower() for name in settings.allowed_hosts} | {settings.host.lower()}
    return names | LOOPBACK_NAMES
