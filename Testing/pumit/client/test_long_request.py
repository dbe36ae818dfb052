"""The wait for a long answer ends when the user cancels, and when the server is gone."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from pumit.client import http_client
from pumit.client.heartbeat import Heartbeat
from pumit.client.http_client import Client, PendingRequest, TimedOut, Unreachable
from pumit.errors import Cancelled, PromptError
from pumit.system.watch import UNWATCHED, Watch
from pumit.wire.stream import stream_line

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Play = Callable[[socket.socket], None]


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


class Scripted:
    """A server that reads one request and sends what a test says."""

    def __init__(self, play: Play) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(play,), daemon=True)
        self._thread.start()

    def _run(self, play: Play) -> None:
        connection, _ = self._listener.accept()
        with connection:
            asked = b""
            while not asked.endswith(b"{}"):
                asked += connection.recv(1 << 16)
            play(connection)
        self.is_over.set()

    def ask(self, pending: PendingRequest, *, is_loopback: bool = True) -> bytearray:
        with Client(self.url, "token") as client:
            client.is_loopback = is_loopback
            return client.ask("/x", lease="lease", body={}, pending=pending)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def scripted() -> Iterator[Callable[[Play], Scripted]]:
    started: list[Scripted] = []

    def start(play: Play) -> Scripted:
        started.append(Scripted(play))
        return started[-1]

    yield start
    for server in started:
        server.close()


def silent(connection: socket.socket) -> None:
    """Begin, and then say nothing until the client has gone."""
    connection.sendall(HEAD + chunk(stream_line(progress=0.5)))
    connection.settimeout(20)
    assert connection.recv(1) == b""


def test_progress_and_result_are_told(scripted: Callable[[Play], Scripted]) -> None:
    lines = stream_line(progress=0.5), stream_line(bytes=4)
    server = scripted(
        lambda c: c.sendall(HEAD + b"".join(map(chunk, (*lines, b"mask"))) + b"0\r\n\r\n")
    )
    seen: list[float] = []
    assert server.ask(PendingRequest("1", Watch(progress=seen.append))) == b"mask"
    assert seen == [0.5, 1.0]


def test_an_error_within_the_stream_is_the_same_error(
    scripted: Callable[[Play], Scripted],
) -> None:
    line = stream_line(status=400, detail="There is no prompt yet.", error="PromptError")
    server = scripted(lambda c: c.sendall(HEAD + chunk(line) + b"0\r\n\r\n"))
    with pytest.raises(PromptError, match="no prompt yet"):
        server.ask(PendingRequest("1", UNWATCHED))


def test_another_thread_stops_the_wait_though_the_server_says_nothing(
    scripted: Callable[[Play], Scripted],
) -> None:
    server, begun = scripted(silent), threading.Event()
    pending = PendingRequest("1", Watch(progress=lambda share: begun.set()))

    def stop() -> None:
        begun.wait(20)
        pending.stop()

    threading.Thread(target=stop).start()
    with pytest.raises(Cancelled):
        server.ask(pending)
    assert server.is_over.wait(20)  # the connection was closed


def test_a_wish_to_cancel_is_heard_after_a_heartbeat_though_the_server_says_nothing(
    scripted: Callable[[Play], Scripted],
) -> None:
    server, wishes = scripted(silent), threading.Event()
    pending = PendingRequest("1", Watch(wishes.is_set, lambda share: wishes.set()))

    class Late:
        is_loopback = True

        def call(self, *arguments: object, **options: object) -> None:
            raise TimedOut("No answer in time.")

    heartbeat = Heartbeat(Late(), "lease", interval_s=0.05, pending={pending})  # type: ignore[arg-type]
    with pytest.raises(Cancelled):
        server.ask(pending)
    heartbeat.stop()


def test_a_request_that_was_cancelled_before_is_not_sent() -> None:
    pending = PendingRequest("1", Watch(lambda: True))
    with Client("http://127.0.0.1:9", "token") as client, pytest.raises(Cancelled):
        client.ask("/x", lease="lease", body={}, pending=pending)


def test_a_server_that_dies_while_it_answers_is_out_of_reach(
    scripted: Callable[[Play], Scripted],
) -> None:
    server = scripted(lambda c: c.sendall(HEAD + chunk(stream_line(progress=0.5))))
    with pytest.raises(Unreachable, match="start the server again"):
        server.ask(PendingRequest("1", UNWATCHED))


def test_a_server_elsewhere_that_is_silent_for_long_is_out_of_reach(
    scripted: Callable[[Play], Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_SILENCE_S", 0.2)
    server = scripted(silent)
    with pytest.raises(Unreachable, match="prompts are kept") as caught:
        server.ask(PendingRequest("1", UNWATCHED), is_loopback=False)
    assert not isinstance(caught.value, TimedOut)


def test_a_silent_server_on_this_machine_is_waited_for(
    scripted: Callable[[Play], Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_SILENCE_S", 0.1)

    def starved(connection: socket.socket) -> None:
        connection.sendall(HEAD + chunk(stream_line(progress=0.5)))
        time.sleep(0.5)
        connection.sendall(chunk(stream_line(bytes=1) + b"m") + b"0\r\n\r\n")

    assert scripted(starved).ask(PendingRequest("1", UNWATCHED)) == b"m"
