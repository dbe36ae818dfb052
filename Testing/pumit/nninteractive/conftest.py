"""A server on loopback, workers, a scan to send to them, and the published server."""

from collections.abc import Iterator

import pytest
from fake_engine import FakeEngine
from nninteractive_server import NNInteractiveServer, serve_nninteractive
from pumit.nninteractive.client.session import NNInteractiveSession
from pumit.volume import Volume
from serving import fake_worker, server, serving, volume  # noqa: F401
from starlette.testclient import TestClient
from viewer_requests import Buffer, load, viewer_of


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def http(engine: FakeEngine) -> Iterator[TestClient]:
    """A client of the nnInteractive protocol with a lease."""
    with viewer_of(engine) as made:
        yield made


@pytest.fixture
def buffer(http: TestClient) -> Buffer:
    """The target buffer of a client that has sent its image."""
    load(http)
    return Buffer()


@pytest.fixture
def theirs() -> Iterator[NNInteractiveServer]:
    with serve_nninteractive() as made:
        yield made


@pytest.fixture
def session(theirs: NNInteractiveServer, volume: Volume) -> Iterator[NNInteractiveSession]:  # noqa: F811
    """A session on the published server, with the scan."""
    with theirs.client() as client, NNInteractiveSession(client) as made:
        made.set_volume(volume)
        yield made
