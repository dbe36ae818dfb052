"""Python client of a server.

`LocalWorker` starts a local server, `Client` connects to any server, and `RemoteSession` is an
`InteractiveSession` on it. None of them imports torch, FastAPI or uvicorn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumit.client.http_client import Client
    from pumit.client.remote_session import RemoteSession
    from pumit.client.worker import LocalWorker

__all__ = ["Client", "LocalWorker", "RemoteSession"]

_HOMES = {
    "Client": "pumit.client.http_client",
    "LocalWorker": "pumit.client.worker",
    "RemoteSession": "pumit.client.remote_session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pumit.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
