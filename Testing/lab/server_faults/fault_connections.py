"""Fault cases: connections, headers, tokens, leases and JSON of hostile and careless clients.

Used by `server_faults.py`: each case breaks one thing and returns the outcomes.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable

import numpy as np
from fault_server import TOKEN, FaultServer, Outcome, head, receive, scan, volume_head
from pumit.client.remote_session import RemoteSession
from pumit.wire import protocol
from pumit.wire.arrays import pack_array

Case = Callable[[FaultServer], list[Outcome]]
SMALL = pack_array(np.arange(1000, dtype=np.int16).reshape(10, 10, 10))
CLICK = {"prompts": [{"kind": "point", "point_lps": [4, 4, 4]}]}


def drip(server: FaultServer, start: bytes, *, byte: bytes = b"a", pause_s: float = 0.4) -> Outcome:
    """Send `start`, then a byte at intervals, for at most 15 s."""
    with server.connect() as connection:
        connection.sendall(start)
        stop = threading.Event()

        def feed() -> None:
            with contextlib.suppress(OSError):
                while not stop.wait(pause_s):
                    connection.sendall(byte)

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        connection.settimeout(15)
        try:
            return receive(connection)
        except TimeoutError:
            return Outcome(-1, "held for 15 s")
        finally:
            stop.set()
            thread.join()


def slow_headers(server: FaultServer) -> list[Outcome]:
    """Send the request line or the headers a byte at a time, or nothing at all."""
    return [
        drip(server, b"", byte=b"G"),
        drip(server, b"GET /healthz HTTP/1.1\r\nX-A: "),
        drip(server, b"", byte=b""),
    ]


def slow_bodies(server: FaultServer) -> list[Outcome]:
    """Send bodies that stop, or that bring one byte within each allowed pause."""
    lease = server.claim()
    json_head = head("POST", "/pumit/v3/predict", lease=lease, length=500)
    return [
        server.send(volume_head(lease, 1000), SMALL[:20]),
        drip(server, volume_head(lease, 100_000)),
        drip(server, json_head),
        drip(server, volume_head(lease, None, "Transfer-Encoding: chunked"), byte=b"1\r\nx\r\n"),
    ]


def refused_bodies(server: FaultServer) -> list[Outcome]:
    """Send bodies that continue after they were refused."""
    outcomes = []
    for extra in ("Content-Length: 100000", "Transfer-Encoding: chunked"):
        with server.connect() as connection:
            connection.sendall(head("POST", "/claim", token=None, headers=[extra]))
            outcomes.append(receive(connection))
            begun = time.monotonic()
            with contextlib.suppress(OSError):
                while time.monotonic() < begun + 15:
                    connection.sendall(b"1\r\nx\r\n")
                    time.sleep(0.1)
                outcomes.append(Outcome(-1, "held for 15 s"))
    return outcomes


def wrong_lengths(server: FaultServer) -> list[Outcome]:
    """Send bodies with wrong or contradictory lengths."""
    lease = server.claim()
    half = volume_head(lease, len(SMALL) * 2) + SMALL
    with server.connect() as connection:
        connection.sendall(half)
        connection.shutdown(1)
        cut = receive(connection)
    both = ["Content-Length: 5", "Transfer-Encoding: chunked"]
    chunked = head("POST", "/claim", headers=["Transfer-Encoding: chunked"])
    return [
        cut,
        server.send(half),
        server.send(volume_head(lease, len(SMALL) // 2) + SMALL),
        server.send(head("POST", "/claim", headers=both) + b"0\r\n\r\n"),
        server.send(head("POST", "/claim", headers=["Content-Length: 5", "Content-Length: 6"])),
        server.send(head("POST", "/claim", headers=["Content-Length: -1"])),
        server.send(head("POST", "/claim", headers=["Content-Length: 99999999999999999999"])),
        server.send(
            head("POST", "/pumit/v3/predict", lease=lease, headers=["Transfer-Encoding: chunked"])
            + b"zz\r\nx\r\n"
        ),
        server.send(chunked + b"f" * 40_000),
    ]


def endless_chunks(server: FaultServer) -> list[Outcome]:
    """Send endless chunks, large ones and single bytes."""
    chunked = "Transfer-Encoding: chunked"
    # A valid beginning of a very large array.
    envelope = pack_array(np.zeros((100, 1000, 1000), np.uint8))[:60]
    begun = b"%x\r\n%b\r\n" % (len(envelope), envelope)
    large = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    outcomes = []
    for start, chunk, count in (
        (volume_head(server.claim(), None, chunked) + begun, large, 200),
        (volume_head(server.claim(), None, chunked) + begun, b"1\r\nx\r\n" * 20_000, 40),
        (volume_head(server.claim(), None, chunked), large, 200),
        (head("POST", "/claim", token=None, headers=[chunked]), b"1\r\nx\r\n" * 20_000, 40),
    ):
        with server.connect() as connection:
            with contextlib.suppress(OSError):
                connection.sendall(start)
                for _ in range(count):
                    connection.sendall(chunk)
            outcomes.append(receive(connection))
    return outcomes


def crowd(server: FaultServer) -> list[Outcome]:
    """Open more connections than allowed, none of which completes a request."""
    opened = []
    try:
        for _ in range(500):
            connection = server.connect()
            connection.sendall(b"GET /healthz HT")
            opened.append(connection)
        return [server.send(head("GET", "/lease_status", lease="none"))]
    finally:
        for connection in opened:
            connection.close()


def unread_answers(server: FaultServer) -> list[Outcome]:
    """Send requests and never read the answers."""
    with server.connect() as connection:
        connection.settimeout(15)
        with contextlib.suppress(ConnectionError):
            while True:
                connection.sendall(head("GET", "/openapi.json") * 1000)
            return [Outcome(-1, "held for 15 s")]
    return [Outcome(0)]


def malformed_requests(server: FaultServer) -> list[Outcome]:
    """Send invalid or barely valid HTTP."""
    return [
        server.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)),
        server.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        server.send(b"\0" * 20_000),
        server.send(b"GET /healthz HTTP/1.1\r\n\r\n"),
        server.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: localhost\r\n\r\n"),
        server.send(b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
        server.send(b"GET http://evil.example/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        server.send(b"GET /capabilities HTTP/1.0\r\n\r\n"),
        server.send(b"GET /capabilities HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"),
        server.send(head("GET", "/capabilities", headers=["X-A: " + "a" * 100_000])),
        server.send(head("GET", "/%2e%2e/%00/etc/passwd")),
        server.send(head("BREW", "/claim")),
        server.send(head("GET", "/claim", headers=["Connection: Upgrade", "Upgrade: websocket"])),
        server.send(head("POST", "/claim", length=10**9, headers=["Expect: 100-continue"])),
    ]


def pipelining(server: FaultServer) -> list[Outcome]:
    """Pipeline several requests, the last one invalid."""
    outcomes = []
    with server.connect() as connection:
        connection.sendall(head("GET", "/lease_status", lease="none") * 3 + b"\r\n\0\0\r\n\r\n")
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 16):
                data += piece
    for answer in data.split(b"HTTP/1.1 ")[1:]:
        outcomes.append(
            Outcome(int(answer[:3]), json.loads(answer.split(b"\r\n\r\n")[1])["detail"])
        )
    return [*outcomes, Outcome(0)]


def tokens(server: FaultServer) -> list[Outcome]:
    """Send wrong, missing, other-case, truncated, doubled and unprintable tokens."""
    wrong = [None, "", "wrong", TOKEN.upper(), TOKEN[:-1], TOKEN + "x", f"{TOKEN}, {TOKEN}", "é"]
    outcomes = [server.send(head("POST", "/claim", token=token)) for token in wrong]
    for token in ("a\0b", "a\x07" + TOKEN, TOKEN + "\rX"):
        outcomes.append(server.send(head("POST", "/claim", token=token)))
    twice = head("POST", "/claim", token="x", headers=[f"Authorization: Bearer {TOKEN}"])
    return [*outcomes, server.send(twice)]


def metas(server: FaultServer) -> list[Outcome]:
    """Send `X-Meta` that is missing, huge, deeply nested, invalid JSON or an invalid geometry."""
    lease = server.claim()
    outcomes = []
    for meta in (
        *("", "{", "[]", "[" * 8000, "null", '{"spacing_mm": [1,1]}', "x" * 9000, "\xff\xfe"),
        *('{"spacing_mm":[1,1,1],"channel":-1}', '{"spacing_mm":[NaN,1,1]}', '{"a":' * 1500),
        '{"spacing_mm":[1,1,1],"origin_lps":[' + "9" * 4000 + ",1,1]}",
    ):
        extra = [f"{protocol.META_HEADER}: {meta}", f"Content-Length: {len(SMALL)}"]
        start = head("POST", protocol.PATH_VOLUME, lease=lease, headers=extra)
        outcomes.append(server.send(start + SMALL))
    missing = head("POST", protocol.PATH_VOLUME, lease=lease, length=len(SMALL))
    return [*outcomes, server.send(missing + SMALL)]


def json_bombs(server: FaultServer) -> list[Outcome]:
    """Send JSON bodies that are expensive for their size."""
    lease = server.claim()
    server.send(volume_head(lease, len(SMALL)) + SMALL)
    bombs = [
        b"[" * 4_000_000,
        b'{"a":' * 700_000,
        b"[" + b"[]," * 1_300_000 + b"[]]",
        b'{"prompts":[{"kind":"scribble","points_lps":[' + b"[]," * 1_300_000 + b"[]]}]}",
        b'{"prompts":[{"kind":"scribble","points_lps":[' + b"[1,2,3]," * 500_000 + b"[1,2,3]]}]}",
        b'{"prompts":[{"kind":"point","point_lps":[' + b"9" * 4_000_000 + b",1,1]}]}",
        b'{"segment":"' + b"\xf0\x9f\x92\xa9" * 1_000_000 + b'"}',
        b'{"segment":"\xff"}',
        b"{" + b",".join(b'"k%d":0' % i for i in range(300_000)) + b"}",
        b"{" + b",".join(b'"k%d":0' % i for i in range(900)) + b"}",
        b'{"prompts":[{"kind":"scribble","points_lps":[' + b"[]," * 120_000 + b"[]]}]}",
        bytes(5_000_000),
    ]
    outcomes = []
    for bomb in bombs:
        start = head(
            *("POST", protocol.PATH_PREDICT),
            lease=lease,
            length=len(bomb),
            headers=["Content-Type: application/json"],
        )
        outcomes.append(server.send(start + bomb))
    return outcomes


def leases(server: FaultServer) -> list[Outcome]:
    """Send lease tokens that are missing, invented, truncated, altered or released."""
    lease = server.claim()
    server.send(head("POST", "/release", lease=lease))
    other = server.claim()
    wrong = [None, "", "x", "x" * 8000, lease, other[:-1], other.swapcase(), other + "A", "é"]
    outcomes = []
    for path in (protocol.PATH_FIND, protocol.PATH_HEARTBEAT):
        outcomes += [server.send(head("POST", path, lease=token)) for token in wrong]
    return outcomes


def lease_ends_meanwhile(server: FaultServer) -> list[Outcome]:
    """Release a session during an upload, and during a prediction."""
    lease = server.claim()
    with server.connect() as connection:
        connection.sendall(volume_head(lease, len(SMALL)) + SMALL[:200])
        server.send(head("POST", "/release", lease=lease))
        connection.sendall(SMALL[200:])
        outcomes = [receive(connection)]
    lease = server.claim()
    server.send(volume_head(lease, len(SMALL)) + SMALL)
    with server.connect() as connection:
        connection.sendall(_json(protocol.PATH_PREDICT, lease, {**CLICK, "segment": "slow"}))
        time.sleep(0.2)
        server.send(head("POST", "/release", lease=lease))
        answered = receive(connection)
    # Only the fake model has a slow segment; a real one may have answered before.
    return outcomes if answered.status == 200 and server.model != "fake" else [*outcomes, answered]


def two_uploads_at_once(server: FaultServer) -> list[Outcome]:
    """Send two uploads on one lease at once."""
    lease = server.claim()
    with server.connect() as first:
        first.sendall(volume_head(lease, len(SMALL)) + SMALL[:200])
        time.sleep(0.1)
        second = server.send(volume_head(lease, len(SMALL)) + SMALL)
        first.sendall(SMALL[200:])
        assert receive(first).status == 200
    return [second]


def hang_ups(server: FaultServer) -> list[Outcome]:
    """Disconnect in the headers, the body, the queue, the computation and the answer."""
    lease = server.claim()
    volume = volume_head(lease, len(SMALL))
    server.send(volume + SMALL)
    slow = _json(protocol.PATH_PREDICT, lease, {**CLICK, "segment": "slow"})
    for sent in (volume[:50], volume + SMALL[:300], volume + SMALL, slow[:-3], slow, slow * 3):
        connection = server.connect()
        connection.sendall(sent)
        time.sleep(0.05)
        connection.close()
    # The queue is in order: an answer comes only when nothing is computed for those who left.
    started = time.monotonic()
    server.send(_json(protocol.PATH_PREDICT, lease, CLICK))
    if time.monotonic() - started > 10:
        return [Outcome(-1, "still computing for a client that left")]
    return [Outcome(0)]


def one_sees_the_other(server: FaultServer) -> list[Outcome]:
    """Check that two sessions with the same segment names do not affect each other."""
    a, b = scan(1), scan(2)
    with server.client() as client, RemoteSession(client) as one, RemoteSession(client) as other:
        one.set_volume(a)
        other.set_volume(b)
        one.add_point(tuple(a.index_to_world((4, 20, 20)).tolist()))
        other.add_point(tuple(b.index_to_world((2, 9, 9)).tolist()))
        mine, theirs = one.predict(), other.predict()
        if server.model == "fake" and (mine & theirs).any():
            return [Outcome(-1, "a prompt of another session")]
        other.reset()
        if not np.array_equal(one.predict(), mine):
            return [Outcome(-1, "another session changed an answer")]
        other.undo()
        if other.undo() and not other.prompts():
            return [Outcome(400, "There are no prompts of the other.")]
    return [Outcome(-1, "a prompt of another session")]


def _json(path: str, lease: str, body: object) -> bytes:
    sent = json.dumps(body).encode()
    kind = ["Content-Type: application/json"]
    return head("POST", path, lease=lease, length=len(sent), headers=kind) + sent


CASES: dict[str, Case] = {
    "slow request line, headers, silence": slow_headers,
    "slow and stalled bodies": slow_bodies,
    "bodies that go on after the refusal": refused_bodies,
    "bodies of another length": wrong_lengths,
    "chunks without end": endless_chunks,
    "500 silent connections": crowd,
    "answers that nobody reads": unread_answers,
    "what is no HTTP": malformed_requests,
    "pipelined requests": pipelining,
    "wrong tokens": tokens,
    "malformed X-Meta": metas,
    "JSON bombs": json_bombs,
    "wrong and expired leases": leases,
    "a lease that ends meanwhile": lease_ends_meanwhile,
    "two uploads on one lease": two_uploads_at_once,
    "clients that hang up": hang_ups,
    "one session in another": one_sees_the_other,
}
