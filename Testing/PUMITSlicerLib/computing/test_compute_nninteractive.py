"""An nnInteractive server computes from the same settings as a server of ours."""

from __future__ import annotations

import pytest
from fake_compute import FakeWorkers, MemoryStore, wait_for
from nninteractive_server import KEY, serve_nninteractive
from pumit.nninteractive.client.session import NNInteractiveSession
from PUMITSlicerLib.computing.compute import Compute
from PUMITSlicerLib.computing.connection import describe, is_in_the_clear, is_nninteractive
from PUMITSlicerLib.computing.settings import ComputeMode, ComputeSettings

SENTENCE = "nnInteractive 2.6.0 computes; the licence of its model: CC BY-NC-SA 4.0."


@pytest.fixture
def compute(background):
    made = Compute(
        *(background, MemoryStore()),
        makeWorker=FakeWorkers(),
        whyNotInstalled=lambda mode: "",
    )
    yield made
    made.close()


def connected(compute, background, settings):
    """What connecting with settings ended in."""
    reports = []
    compute.changeSettings(settings)
    compute.ensureReady(lambda: reports.append("ready"), reports.append)
    assert wait_for(background, lambda: reports)
    return reports[0]


def tried(compute, background, settings):
    reports = []
    compute.testConnection(reports.append, reports.append, settings)
    assert wait_for(background, lambda: reports)
    return reports[0]


@pytest.mark.parametrize("key", [KEY, None])
def test_it_is_reached_with_and_without_a_key_and_says_what_answers(compute, background, key):
    with serve_nninteractive(key=key) as server:
        settings = ComputeSettings(ComputeMode.REMOTE, url=server.url, token=key or "")
        assert tried(compute, background, settings) == SENTENCE
        assert connected(compute, background, settings) == "ready"
        assert compute.sentence == SENTENCE
        assert is_nninteractive(compute.capabilities)
        assert compute.capabilities["model"] == {"name": "nnInteractive", "version": "2.6.0"}
        with compute.openSession() as session:
            assert isinstance(session, NNInteractiveSession)
        compute.stop()
        assert background.drain()


def test_a_licence_that_nobody_tells_is_not_made_up():
    reports = {"kind": "nninteractive", "version": "2.6.0", "license": None}
    text = describe(reports)
    assert "2.6.0" in text
    assert "unknown" in text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://gpu.example:1527", True),
        ("http://192.168.0.4", True),
        ("https://gpu.example", False),
        ("http://127.0.0.1:1527", False),
        ("http://localhost:1527", False),
        ("http://[::1", False),
        ("", False),
    ],
)
def test_what_can_be_read_on_its_way_is_known(url, expected):
    assert is_in_the_clear(url) is expected
