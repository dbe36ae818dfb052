"""Sockets that a server listens on, and what it reports to the service manager."""

import asyncio
import os
import socket
import stat
import sys
from pathlib import Path

import pytest
from app_client import make_client
from loopback_server import TOKEN
from pumit.errors import PumitError, ServiceError
from pumit.server.http.graceful_server import READY, ServiceNotice, bind_address, bind_file
from pumit.server.serve import ServeSettings

on_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="systemd runs on Linux only"
)
needs_unix = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")


async def no_delay_of_a_connection(listener: socket.socket) -> int:
    """TCP_NODELAY of what asyncio, as uvicorn uses it, accepts from a listener."""
    accepted = asyncio.get_running_loop().create_future()

    def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = writer.get_extra_info("socket")
        accepted.set_result(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(connected, sock=listener):
        _reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        try:
            return await asyncio.wait_for(accepted, 30)
        finally:
            writer.close()


def test_an_answer_does_not_wait_for_the_packet_before_it_to_be_confirmed():
    listener = bind_address("127.0.0.1", 0)
    assert asyncio.run(no_delay_of_a_connection(listener))


@needs_unix
def test_the_file_is_for_user_and_group_only_and_takes_no_others_place(tmp_path):
    path = tmp_path / "s"
    with bind_file(path) as listener:
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o660
        listener.listen()
        with pytest.raises(ServiceError, match="Another server"):
            bind_file(path)
    assert path.exists()
    bind_file(path).close()  # what a killed server left is replaced
    path.unlink()
    path.write_text("mine")
    with pytest.raises(ServiceError, match="not a socket"):
        bind_file(path)
    assert path.read_text() == "mine"


@needs_unix
@pytest.mark.parametrize("name", ["none/s", "x" * 200])
def test_a_file_that_cannot_be_made_is_one_sentence(tmp_path, name):
    with pytest.raises(ServiceError, match="socket file") as caught:
        bind_file(tmp_path / name)
    assert str(tmp_path) not in str(caught.value)


def test_a_socket_file_stands_instead_of_an_address(tmp_path):
    uds = tmp_path / "s"
    assert ServeSettings(TOKEN, uds=uds)
    for other in ({"host": "0.0.0.0"}, {"port": 8443}, {"certfile": uds}, {"keyfile": uds}):
        with pytest.raises(PumitError, match="replaces"):
            ServeSettings(TOKEN, uds=uds, **other)


def test_a_lease_begins_with_the_instance():
    with make_client(instance="gpu-0") as http:
        assert http.post("/claim").json()["lease_token"].startswith("gpu-0.")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"token": "", "uds": Path("s")}, "give a token"),
        *(({"instance": n}, "--instance") for n in ("a.b", "a b", "é", "x" * 33, "a/b", "a\n")),
        ({"metrics_token": "short"}, "at least 16"),
        ({"metrics_token": TOKEN}, "must differ"),
        *(({"drain_s": s}, "--drain-seconds") for s in (-1, float("nan"), float("inf"))),
    ],
)
def test_impossible_settings_are_refused(options, sentence):
    with pytest.raises(PumitError, match=sentence):
        ServeSettings(**{"token": TOKEN, **options})


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        yield listening


@on_linux
def test_lines_arrive_as_one_message_and_nobody_listening_is_no_error(manager, tmp_path):
    ServiceNotice().notify(READY)
    ServiceNotice(str(tmp_path / "none")).notify(READY)
    ServiceNotice(manager.getsockname()).notify(READY, "STATUS=Well")
    assert manager.recv(100) == b"READY=1\nSTATUS=Well"


@on_linux
def test_an_abstract_address_is_understood():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0pumit-test-{os.getpid()}")
        listening.settimeout(10)
        ServiceNotice(f"@pumit-test-{os.getpid()}").notify(READY)
        assert listening.recv(100) == b"READY=1"


@on_linux
def test_the_variables_are_taken_away_and_a_watchdog_that_is_not_ours_is_left_alone():
    given = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "9000000", "WATCHDOG_PID": str(os.getpid())}
    assert ServiceNotice.from_environment(given).watchdog_s == 9.0
    assert given == {}
    for others in ({}, {"WATCHDOG_USEC": "no"}, {"WATCHDOG_USEC": "9000000", "WATCHDOG_PID": "1"}):
        assert ServiceNotice.from_environment(dict(others)).watchdog_s is None


@on_linux
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
