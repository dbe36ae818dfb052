"""Connections: no one holds one by being slow, and what is no request gets a sentence."""

import contextlib
import socket

import pytest
from app_client import AUTH, claim_with_scan, make_client, refused
from app_client import claim as claim_headers
from pumit.server.sessions.limits import Limits
from pumit.wire import protocol
from raw_requests import (
    claim,
    connect,
    dripping,
    everything,
    head,
    one_answer,
    status_and_sentence,
    upload_head,
)

CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"GET /healthz HTTP/1.1\r\nHost: 127"])
def test_a_request_that_never_begins_or_ends_its_headers_is_closed(serving, sent):
    with connect(serving(header_timeout_s=0.2)) as connection, dripping(connection, sent[-1:]):
        connection.sendall(sent)
        assert everything(connection) == b""


def test_a_second_request_has_to_end_its_headers_too(serving):
    with connect(serving(header_timeout_s=0.2)) as connection:
        connection.sendall(head("GET", "/healthz"))
        assert b" 200 " in one_answer(connection)
        with dripping(connection, b"x"):
            assert everything(connection) == b""


def test_a_body_of_a_byte_now_and_then_is_given_up(serving):
    server = serving(body_timeout_s=0.3)
    lease = claim(server)
    find = head("POST", protocol.PATH_FIND, "Content-Length: 100000")
    for start, piece in [
        (upload_head(lease, "Content-Length: 100000"), b""),
        (upload_head(lease, "Content-Length: 100000"), b"N"),
        (upload_head(lease, CHUNKED), b"1\r\nN\r\n"),
        (find, b" "),
    ]:
        with connect(server) as connection, dripping(connection, piece):
            connection.sendall(start)
            status, sentence = status_and_sentence(one_answer(connection))
        assert status == 408
        assert "more slowly than 64 KiB a second" in sentence


@pytest.mark.parametrize("kind", ["Content-Length: 100000", CHUNKED])
def test_a_refused_body_does_not_go_on_for_ever(serving, kind):
    server = serving(body_timeout_s=0.3)
    with connect(server) as connection, dripping(connection, b"1\r\nx\r\n"):
        connection.sendall(head("POST", "/claim", kind, token=None))
        assert status_and_sentence(everything(connection))[0] == 401


def test_what_follows_a_refused_body_is_answered(serving):
    """A client that reads only when it has sent all may use the connection again."""
    with connect(serving()) as connection:
        connection.sendall(head("POST", "/claim", "Content-Length: 5", token=None) + b"12345")
        assert b" 401 " in one_answer(connection)
        connection.sendall(head("GET", "/healthz", "Connection: close"))
        assert b" 200 " in everything(connection)


def test_a_client_that_never_reads_is_dropped(serving):
    with connect(serving(body_timeout_s=0.3)) as connection:
        requests = head("GET", "/openapi.json") * 1_000_000
        with pytest.raises(ConnectionError):
            connection.sendall(requests)


def test_the_longest_idle_connection_without_the_token_makes_room(serving):
    server = serving(max_sessions=1)
    with contextlib.ExitStack() as stack:
        known = stack.enter_context(connect(server))
        known.sendall(head("GET", "/capabilities"))
        assert b" 200 " in one_answer(known)
        silent = [stack.enter_context(connect(server)) for _ in range(15)]
        for connection in silent:
            connection.sendall(b"GET ")
        with server.client() as client:
            assert client.capabilities()
        assert everything(silent[0]) == b""
        for connection in (known, silent[-1]):
            rest = head("GET", "/healthz")
            connection.sendall(rest if connection is known else rest[4:])
            assert b" 200 " in one_answer(connection)


def test_where_every_connection_works_another_gets_a_sentence(serving):
    server = serving(max_sessions=1)
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            busy = stack.enter_context(connect(server))
            expecting = "Expect: 100-continue"
            busy.sendall(head("POST", protocol.PATH_FIND, "Content-Length: 10", expecting))
            assert b" 100 " in busy.recv(1 << 16)
        with connect(server) as connection:
            connection.sendall(head("GET", "/capabilities"))
            status, sentence = status_and_sentence(everything(connection))
    assert status == 503
    assert "try again" in sentence


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"\r\n" * 3 + b"\0",
        b"x" * 100_000,
        head("POST", "/claim", "Content-Length: -1"),
        head("POST", "/claim", "Content-Length: 1", "Content-Length: 2"),
        head("POST", "/claim", "Content-Length: 1", CHUNKED),
        head("POST", protocol.PATH_FIND, CHUNKED) + b"zz\r\n",
        head("POST", protocol.PATH_FIND, CHUNKED) + b"f" * 40_000,
        head("POST", protocol.PATH_FIND, CHUNKED) + b"1\r\nx\r\n" * 2000,
    ],
)
def test_what_is_no_request_gets_a_sentence(server, sent):
    with connect(server) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        status, _ = status_and_sentence(everything(connection))
    assert status == 400
    with server.client() as client:
        assert client.is_alive()


def test_pipelined_requests_are_answered_in_order_up_to_the_first_bad_one(server):
    with connect(server) as connection:
        connection.sendall(head("GET", "/healthz") * 3 + b"\0\r\n\r\n" + head("GET", "/healthz"))
        statuses = [answer[:3] for answer in everything(connection).split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"200", b"200", b"400"]


@pytest.fixture
def http():
    with make_client() as made:
        yield made


def test_headers_have_a_length_to_keep(http):
    assert refused(http.get("/capabilities", headers={"X-Other": "x" * 40_000}), 431, "headers")
    lease = claim_headers(http)
    long = lease | {protocol.META_HEADER: "x" * 9_000}
    assert refused(http.post(protocol.PATH_VOLUME, content=b"", headers=long), 422)


@pytest.mark.parametrize(
    "bomb",
    [
        b"[" + b"[]," * 300_000 + b"[]]",
        b"[" * 300_000,
        b'{"prompts":[{"kind":"scribble","points_lps":[' + b"[1,2,3]," * 70_000 + b"[1,2,3]]}]}",
        b"{" + b",".join(b'"%d":0' % i for i in range(50_000)) + b"}",
    ],
)
def test_json_that_costs_more_than_it_weighs_is_refused_unread(http, bomb):
    headers = AUTH | {"Content-Type": "application/json"}
    lease = claim_headers(http)
    for path in (protocol.PATH_PREDICT, protocol.PATH_FIND):
        answer = http.post(path, content=bomb, headers=headers | lease)
        assert refused(answer, 413, "items", "names")


def test_only_prompts_may_be_many(http):
    lease = claim_headers(http)
    body = {str(i): 0 for i in range(2_000)}
    assert refused(http.post(protocol.PATH_FIND, json=body, headers=lease), 413, "1000 names")
    assert refused(http.post(protocol.PATH_PREDICT, json=body, headers=lease), 422)


def test_as_many_prompts_as_a_segment_takes_and_the_longest_scribble_are_taken(http):
    lease = claim_with_scan(http)
    point = {"kind": "point", "point_lps": [9, 1 / 3, 1 / 7], "positive": True}
    line = {
        "kind": "scribble",
        "points_lps": [[i % 10 + 1e-15, 1 / 3, 1 / 7] for i in range(20_000)],
    }
    for prompts in ([point] * Limits().max_prompts, [line]):
        body = {"segment": "a, [b]: c", "prompts": prompts}
        assert http.post(protocol.PATH_PREDICT, json=body, headers=lease).status_code == 200


def test_a_segment_takes_no_more_prompts_than_the_limit():
    with make_client(max_prompts=2) as http:
        lease = claim_with_scan(http)
        body = {"prompts": [{"kind": "point", "point_lps": [5, 5, 5]}] * 3}
        answer = http.post(protocol.PATH_PREDICT, json=body, headers=lease)
        assert refused(answer, 400, "takes at most 2 prompts")
