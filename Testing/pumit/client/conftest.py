"""A server on loopback, workers, and a scan to send to them."""

import time
from collections.abc import Callable, Iterator

import pytest
from asking import Asking
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


@pytest.fixture
def asking(session: RemoteSession, server: Running) -> Callable[..., Asking]:  # noqa: F811
    """Ask in another thread, and wait until the server computes."""

    def ask(request: Callable[[], object]) -> Asking:
        started = Asking(request)
        while not server.is_predicting(session._lease):
            time.sleep(0.01)
        return started

    return ask
