"""A server on loopback, workers, and a scan to send to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loopback_server import Running
from pumit.client.remote_session import RemoteSession
from pumit.volume import Volume
from serving import fake_worker, server, serving, volume  # noqa: F401


@pytest.fixture
def session(server: Running, volume: Volume) -> Iterator[RemoteSession]:  # noqa: F811
    """A session on the server, with the scan."""
    with server.client() as client, RemoteSession(client) as remote:
        remote.set_volume(volume)
        yield remote
