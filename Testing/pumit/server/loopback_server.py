"""A server on loopback in this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import uvicorn
from fake_engine import FakeEngine
from fastapi import FastAPI
from pumit.client.http_client import Client
from pumit.server.app import create_app
from pumit.server.http.connection import connection_class
from pumit.server.sessions.limits import Limits
from pumit.server.sessions.state import ServerState

TOKEN = "a-token-for-tests-0123456789"


@dataclass
class Running:
    """One uvicorn on loopback."""

    url: str
    engine: FakeEngine
    stop: Callable[[], None] = field(repr=False)
    app: FastAPI = field(repr=False)

    @property
    def state(self) -> ServerState:
        """Sessions and queue."""
        state: ServerState = self.app.state.server
        return state

    def client(self, token: str = TOKEN) -> Client:
        return Client(self.url, token)


def start_server(limits: Limits) -> Running:
    engine = FakeEngine()
    app = create_app(engine, token=TOKEN, limits=limits)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=connection_class(limits),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)

    def stop() -> None:
        server.should_exit = True
        thread.join(10)
        listener.close()

    return Running(f"http://127.0.0.1:{listener.getsockname()[1]}", engine, stop, app)
