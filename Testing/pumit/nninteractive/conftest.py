"""A server on loopback, workers, a scan to send to them, and the published server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from nninteractive_server import NNInteractiveServer, serve_nninteractive
from pumit.nninteractive.client.session import NNInteractiveSession
from pumit.volume import Volume
from serving import fake_worker, server, serving, volume  # noqa: F401


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
