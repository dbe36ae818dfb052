"""What is reported to the service manager, and when."""

from __future__ import annotations

import os
import socket
import sys

import pytest
from pumit.server.http.graceful_server import READY, ServiceNotice

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="systemd runs on Linux only"
)


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        yield listening


def test_lines_arrive_as_one_message_and_nobody_listening_is_no_error(manager, tmp_path):
    ServiceNotice().notify(READY)
    ServiceNotice(str(tmp_path / "none")).notify(READY)
    ServiceNotice(manager.getsockname()).notify(READY, "STATUS=Well")
    assert manager.recv(100) == b"READY=1\nSTATUS=Well"


def test_an_abstract_address_is_understood():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0pumit-test-{os.getpid()}")
        listening.settimeout(10)
        ServiceNotice(f"@pumit-test-{os.getpid()}").notify(READY)
        assert listening.recv(100) == b"READY=1"


def test_the_variables_are_taken_away_and_a_watchdog_that_is_not_ours_is_left_alone():
    given = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "9000000", "WATCHDOG_PID": str(os.getpid())}
    assert ServiceNotice.from_environment(given).watchdog_s == 9.0
    assert given == {}
    for others in ({}, {"WATCHDOG_USEC": "no"}, {"WATCHDOG_USEC": "9000000", "WATCHDOG_PID": "1"}):
        assert ServiceNotice.from_environment(dict(others)).watchdog_s is None


@pytest.mark.slow
def test_a_server_says_ready_alive_and_stopping(manager, fake_worker):
    variables = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "300000"}
    with fake_worker("--drain-seconds", "5", environment={**os.environ, **variables}) as worker:
        assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"WATCHDOG=1"
        os.kill(worker.pid, 15)
        received = b""
        while b"STOPPING=1" not in received:
            received = manager.recv(100)
        # Drained, a process ends without a fault.
        assert worker.ended.wait(10)
        assert worker._process.returncode == 0
