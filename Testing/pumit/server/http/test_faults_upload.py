"""Uploads of many at once: memory is counted over all of them, and always given back."""

import asyncio
import socket
import time

import numpy as np
import pytest
from app_client import GEOMETRY, SCAN, make_client, refused
from app_client import claim as claim_headers
from pumit.server.sessions.limits import GIB, ByteBudget, Limits, UploadBudget
from pumit.system.machine import machine_bytes
from pumit.wire import protocol
from pumit.wire.arrays import pack_array
from pumit.wire.protocol import BusyError
from raw_requests import (
    claim,
    connect,
    everything,
    one_answer,
    status_and_sentence,
    upload_head,
)

NOISE = np.random.default_rng(0).integers(0, 255, (16, 128, 128), np.uint8)


def test_a_purse_holds_what_it_holds():
    purse = ByteBudget(10)
    purse.take(6)
    with pytest.raises(BusyError, match="its memory allows"):
        purse.take(5)
    purse.take(4)
    purse.give(6)
    assert purse.taken == 4
    assert not purse.has(1000)
    purse.give(4)
    assert purse.has(1000), "the largest one is let in alone"


def test_a_purse_is_waited_for():
    async def wait():
        purse = ByteBudget(10)
        purse.take(10)
        with pytest.raises(BusyError):
            await purse.take_when_free(1, patience_s=0.0)
        asyncio.get_running_loop().call_later(0.1, purse.give, 10)
        await purse.take_when_free(10, patience_s=10.0)
        assert purse.taken == 10

    asyncio.run(wait())


def test_the_largest_upload_always_fits():
    limits = Limits(max_upload_bytes=1, max_array_bytes=100, max_body_bytes=110)
    budget = UploadBudget(limits)
    assert (budget.bodies.size, budget.arrays.size) == (110, 100)


def test_what_sessions_could_never_hold_is_not_received():
    limits = {"max_memory_bytes": 1 << 20, "max_upload_bytes": 1}
    assert UploadBudget(Limits(**limits)).bodies.size < 3 << 20
    with make_client(**limits) as http:
        lease = claim_headers(http)
        body = pack_array(np.zeros((1, 1025, 1024), np.uint8))
        answer = http.post(protocol.PATH_VOLUME, content=body[:80], headers=GEOMETRY | lease)
        assert refused(answer, 507, "1 MiB", "crop it")


def test_uploads_leave_most_of_the_machine_to_others():
    assert Limits().max_upload_bytes <= min(4 * GIB, (machine_bytes() or 64 * GIB) // 8)


def test_bodies_of_all_sessions_share_the_memory(serving):
    size = 300_000
    server = serving(max_upload_bytes=size, max_body_bytes=size, body_timeout_s=5)
    body = pack_array(NOISE)
    start = f"Content-Length: {len(body)}"
    with connect(server) as first:
        first.sendall(upload_head(claim(server), start) + body[:-100])
        time.sleep(0.2)  # it has arrived
        with connect(server) as second:
            second.sendall(upload_head(claim(server), start))
            status, sentence = status_and_sentence(one_answer(second))
            assert status == 503
            assert "try again" in sentence
        first.sendall(body[-100:])
        assert b" 200 " in one_answer(first)
    with connect(server) as third:
        third.sendall(upload_head(claim(server), start, "Connection: close") + body)
        assert b" 200 " in everything(third)


def test_an_array_that_is_too_large_is_refused_before_it_is_sent(serving):
    server = serving(max_array_bytes=1000)
    body = pack_array(NOISE)
    with connect(server) as connection:
        connection.sendall(upload_head(claim(server), f"Content-Length: {len(body)}") + body[:80])
        status, sentence = status_and_sentence(one_answer(connection))
    assert status == 413
    assert "1000" in sentence


def test_a_session_released_during_its_upload_gets_no_volume(serving):
    server = serving()
    lease, body = claim(server), pack_array(NOISE)
    with connect(server) as connection:
        connection.sendall(upload_head(lease, f"Content-Length: {len(body)}") + body[:-10])
        with server.client() as client:
            client.call("POST", protocol.PATH_RELEASE, lease=lease)
        connection.sendall(body[-10:])
        assert status_and_sentence(one_answer(connection))[0] == 410


def test_whatever_happens_the_memory_is_given_back():
    with make_client(max_array_bytes=1 << 20) as http:
        uploads = http.app.state.server.uploads
        lease = claim_headers(http)
        good, bits = pack_array(SCAN), pack_array(np.packbits(np.ones(64, bool)))
        for path, body, status in [
            (protocol.PATH_VOLUME, good, 200),
            (protocol.PATH_VOLUME, good[:-1], 400),
            (protocol.PATH_VOLUME, b"", 400),
            (protocol.PATH_VOLUME, pack_array(np.zeros((9, 9, 9))), 400),
            (protocol.PATH_VOLUME, pack_array(np.zeros((200, 99, 99))), 413),
            (protocol.PATH_MASK_PRIOR, bits, 422),
        ]:
            answer = http.post(path, content=body, headers=GEOMETRY | lease)
            assert answer.status_code == status, answer.text
        box = {protocol.META_HEADER: '{"bbox": [[0, 4], [0, 4], [0, 4]]}'}
        assert http.post(protocol.PATH_MASK_PRIOR, content=bits, headers=box | lease).is_success
        assert (uploads.bodies.taken, uploads.arrays.taken) == (0, 0)


def test_a_client_that_leaves_gives_its_memory_back(serving):
    size = 300_000
    server = serving(max_upload_bytes=size, max_body_bytes=size)
    body = pack_array(NOISE)
    start = upload_head(claim(server), f"Content-Length: {len(body)}")
    for _ in range(3):  # the lease is free again, and the memory too
        with connect(server) as connection:
            connection.sendall(start + body[:-100])
            connection.shutdown(socket.SHUT_RDWR)
        time.sleep(0.1)
    with connect(server) as connection:
        connection.sendall(start + body)
        assert b" 200 " in one_answer(connection)
