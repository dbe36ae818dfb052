"""The published nnInteractive server's own application on loopback, around a stand-in model."""

from __future__ import annotations

import importlib
import importlib.util
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from painting_session import PaintingSession
from pumit.client.http_client import Client

KEY = "a-key-for-tests"
_SESSION = "nnInteractive.inference.inference_session"


def published_app() -> Any:
    """The module of the published server; skips the test where it is not installed.

    It is installed without what its model needs, so that its session cannot be imported.
    """
    pytest.importorskip("nnInteractive", reason="nninteractive is not installed")
    if importlib.util.find_spec("nnInteractive.inference.server") is None:
        pytest.skip("nninteractive is not installed, only its client")
    if "nnInteractive.inference.server.app" not in sys.modules:
        stand_in = types.ModuleType(_SESSION)
        stand_in.nnInteractiveInferenceSession = PaintingSession  # type: ignore[attr-defined]
        sys.modules[_SESSION] = stand_in
        try:
            importlib.import_module("nnInteractive.inference.server.app")
        finally:
            del sys.modules[_SESSION]
    return sys.modules["nnInteractive.inference.server.app"]


@dataclass
class NNInteractiveServer:
    """One published server.

    Attributes:
        url: Where.
        sessions: Every stand-in that it made, the first one for its capabilities only.
        gate: Interactions wait while it is cleared.
        stop: Ends it.
    """

    url: str
    sessions: list[PaintingSession]
    gate: threading.Event
    stop: Callable[[], None] = field(repr=False)

    @property
    def said(self) -> list[tuple[Any, ...]]:
        """What arrived in the newest session."""
        return self.sessions[-1].said

    def client(self, key: str = KEY) -> Client:
        return Client(self.url, key)


def start_nninteractive(
    *,
    key: str | None = KEY,
    port: int = 0,
    tls: tuple[str, str] | None = None,
    **options: Any,
) -> NNInteractiveServer:
    """Start one; options of `make_app`, and those of the stand-in's artifacts.

    `tls` names a certificate and its key, as a proxy before the server would have them.
    """
    torch = pytest.importorskip("torch")
    module = published_app()
    gate = threading.Event()
    gate.set()
    told = ("supported", "takes_mask", "thickness", "license")
    artifacts = {name: options.pop(name) for name in told if name in options}
    sessions: list[PaintingSession] = []
    artifacts.update(gate=gate, sessions=sessions)
    options.setdefault("max_sessions", 4)
    app = module.make_app(artifacts, torch.device("cpu"), api_key=key, **options)
    listener = socket.create_server(("127.0.0.1", port))
    certfile, keyfile = tls or (None, None)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
        ssl_certfile=certfile,
        ssl_keyfile=keyfile,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)

    def stop() -> None:
        gate.set()
        server.should_exit = True
        thread.join(10)
        listener.close()

    scheme = "https" if tls else "http"
    return NNInteractiveServer(
        f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", sessions, gate, stop
    )


@contextmanager
def serve_nninteractive(**options: Any) -> Iterator[NNInteractiveServer]:
    """One that ends with the block."""
    server = start_nninteractive(**options)
    try:
        yield server
    finally:
        server.stop()
