"""Sockets that a server listens on: an address, and a socket file for a proxy."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from pumit.errors import PumitError, ServiceError
from pumit.server.app import create_app
from pumit.server.http.graceful_server import bind_address, bind_file
from pumit.server.serve import ServeSettings
from pumit.server.sessions.limits import Limits
from starlette.testclient import TestClient

TOKEN = "a-token-for-tests-0123456789"

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
    app = create_app(FakeEngine(), token=TOKEN, limits=Limits(), instance="gpu-0")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(app, base_url="http://127.0.0.1", headers=headers) as http:
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
