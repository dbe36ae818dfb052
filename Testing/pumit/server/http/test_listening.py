"""Sockets that a server listens on: an address, and a socket file for a proxy."""

from __future__ import annotations

import asyncio
import socket
import stat

import pytest
from fake_engine import FakeEngine
from pumit.errors import PumitError, ServiceError
from pumit.server.app import create_app
from pumit.server.http.listening import bind_address, bind_file
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
def test_the_file_is_for_user_and_group_only(tmp_path):
    with bind_file(tmp_path / "s"):
        mode = (tmp_path / "s").stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o660


@needs_unix
def test_what_a_killed_server_left_is_replaced(tmp_path):
    bind_file(tmp_path / "s").close()
    assert (tmp_path / "s").exists()
    with bind_file(tmp_path / "s"):
        pass


@needs_unix
def test_a_server_that_listens_is_not_robbed(tmp_path):
    with bind_file(tmp_path / "s") as listener:
        listener.listen()
        with pytest.raises(ServiceError, match="Another server"):
            bind_file(tmp_path / "s")


@needs_unix
def test_no_other_file_is_removed(tmp_path):
    (tmp_path / "s").write_text("mine")
    with pytest.raises(ServiceError, match="not a socket"):
        bind_file(tmp_path / "s")
    assert (tmp_path / "s").read_text() == "mine"


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


def test_behind_a_proxy_the_token_is_chosen_and_not_printed(tmp_path):
    with pytest.raises(PumitError, match="give a token"):
        ServeSettings("", uds=tmp_path / "s")


@pytest.mark.parametrize("name", ["a.b", "a b", "é", "x" * 33, "a/b", "a\n"])
def test_an_instance_name_is_what_a_proxy_can_read(name):
    with pytest.raises(PumitError, match="--instance"):
        ServeSettings(TOKEN, instance=name)


def test_a_lease_begins_with_the_instance():
    app = create_app(FakeEngine(), token=TOKEN, limits=Limits(), instance="gpu-0")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(app, base_url="http://127.0.0.1", headers=headers) as http:
        assert http.post("/claim").json()["lease_token"].startswith("gpu-0.")


@pytest.mark.parametrize(("token", "why"), [("short", "at least 16"), (TOKEN, "must differ")])
def test_the_token_of_the_metrics_is_long_and_another(token, why):
    with pytest.raises(PumitError, match=why):
        ServeSettings(TOKEN, metrics_token=token)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_draining_takes_a_time(seconds):
    with pytest.raises(PumitError, match="--drain-seconds"):
        ServeSettings(TOKEN, drain_s=seconds)
