"""A remote server that is killed and started again: the next click continues with all prompts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fake_compute import FakeWorkers, MemoryStore, wait_for
from loopback_server import TOKEN
from mask_requester import FIRST, NEGATIVE, SECOND, MaskRequester, ball
from pumit.client.http_client import Client
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.settings import ComputeMode, ComputeSettings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")

_SCRIPT = Path(__file__).parents[2] / "pumit" / "server" / "fixtures" / "fake_worker.py"


class Killable:
    """`pumit serve` around the fake model, always at the same address."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), "--port", str(self.port)],
            env={**os.environ, "PUMIT_TOKEN": TOKEN},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with Client(self.url, TOKEN) as client:
            while not client.is_alive():
                assert self._process.poll() is None
                time.sleep(0.05)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def server():
    made = Killable()
    yield made
    made.kill()


@pytest.fixture
def requester(background, server):
    compute = Compute(
        *(background, MemoryStore()),
        makeWorker=FakeWorkers(),
        whyNotInstalled=lambda mode: "",
    )
    compute.changeSettings(ComputeSettings(ComputeMode.REMOTE, url=server.url, token=TOKEN))
    made = MaskRequester(compute, background)
    made.compute = compute
    yield made
    made.requests.close()
    compute.close()


@pytest.mark.slow
def test_a_server_killed_at_any_time_loses_no_prompt(requester, server):
    """One test, since every start of a server takes seconds."""
    first, both = ball((4, 10, 10)), ball((4, 10, 10), (4, 20, 20))
    requester.answer([FIRST])
    requester.answer([SECOND], segment="2")

    # Between two clicks: no one notices, and not even the scan is read again.
    server.kill()
    server.start()
    corrected = both.copy()
    corrected[2:7, 9:14, 9:14] = False
    np.testing.assert_array_equal(requester.answer([FIRST, SECOND, NEGATIVE]), corrected)
    np.testing.assert_array_equal(requester.answer([SECOND], segment="2"), ball((4, 20, 20)))
    assert requester.reads == ["scan"]

    # While it computes, and gone for a while: one sentence for each try.
    requester.request([FIRST], segment="slow")
    assert wait_for(requester.background, lambda: ("Segmenting", 0.9) in requester.progress)
    server.kill()
    requester.wait()
    assert "Nothing answers" in requester.errors.pop()
    assert requester.compute.state is ComputeState.FAILED
    requester.request([FIRST, SECOND])
    requester.wait()
    assert "Nothing answers" in requester.errors.pop()
    server.start()
    np.testing.assert_array_equal(requester.answer([FIRST, SECOND]), both)
    np.testing.assert_array_equal(requester.answer([FIRST]), first)
    assert requester.errors == []
