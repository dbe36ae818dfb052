"""A server on loopback, workers, and a scan to send to them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from loopback_server import Running, start_server
from pumit.client.worker import LocalWorker
from pumit.server.sessions.limits import Limits
from pumit.volume import Volume


@pytest.fixture
def serving() -> Iterator[Callable[..., Running]]:
    """Start servers with limits of one's own; they end with the test."""
    started: list[Running] = []

    def start(**limits: float) -> Running:
        started.append(start_server(Limits(**limits)))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def server(serving: Callable[..., Running]) -> Running:
    return serving()


@pytest.fixture
def volume() -> Volume:
    """An oblique, anisotropic scan."""
    angle = 0.3
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    voxels = np.random.default_rng(0).normal(size=(9, 30, 28)) * 100
    return Volume(voxels.astype(np.int16), (5.0, 0.8, 0.9), (-20.0, 7.0, 100.0), turn)


@pytest.fixture
def fake_worker() -> Iterator[Callable[..., LocalWorker]]:
    """Make workers around the fake model; they end with the test."""
    made: list[LocalWorker] = []

    def make(*options: str, **settings: object) -> LocalWorker:
        script = Path(__file__).with_name("fake_worker.py")
        command = [sys.executable, str(script), *options]
        made.append(LocalWorker(command=command, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for worker in made:
        worker.close()
