"""One HTTP API for the local worker and for a remote machine.

`LocalWorker` starts a server of one's own, `Client` talks to any, and `RemoteSession` is an
`InteractiveSession` on it. None of the three imports torch, FastAPI or uvicorn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumit.server.client import Client
    from pumit.server.remote_session import RemoteSession
    from pumit.server.worker import LocalWorker

__all__ = ["Client", "LocalWorker", "RemoteSession"]

_HOMES = {
    "Client": "pumit.server.client",
    "LocalWorker": "pumit.server.worker",
    "RemoteSession": "pumit.server.remote_session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pumit.server' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
