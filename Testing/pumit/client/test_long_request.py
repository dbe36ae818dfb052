"""The wait for a long answer ends when the user cancels, and when the server is gone, not busy."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from pumit.client.http_client import Client, TimedOut, Unreachable
from pumit.client.recoverable_session import Heartbeat, call_watched
from pumit.errors import Cancelled, ServiceError
from pumit.system.watch import UNWATCHED, Watch
from pumit.wire.stream import stream_line

LATE, BROKEN, ANSWERED = TimedOut("No answer in time."), Unreachable("Nothing answers."), None


class Answers:
    """A client whose server answers beats in given ways, the last one for ever after."""

    def __init__(self, *answers: Exception | None, is_loopback: bool = True) -> None:
        self._answers: Iterator[Exception | None] = iter(answers)
        self._last = answers[-1]
        self.is_loopback = is_loopback

    def call(self, *arguments: Any, **options: Any) -> None:
        answer = next(self._answers, self._last)
        if answer is not None:
            raise answer


def beating(*answers: Exception | None, beats: int = 1, is_loopback: bool = True) -> Heartbeat:
    client: Any = Answers(*answers, is_loopback=is_loopback)
    made = Heartbeat(client, "lease", interval_s=1)
    made.stop()
    for _ in range(beats):
        made.beat()
    return made


def test_the_answer_of_a_starved_worker_is_awaited():
    """A neighbour takes the processors: no beat is answered, and in the end the answer comes."""
    heartbeat = beating(LATE, beats=1200)
    may_end, calls = threading.Event(), []

    def is_alive() -> bool:
        calls.append(True)
        heartbeat.beat()
        if len(calls) == 10:
            may_end.set()
        return heartbeat.is_server_alive

    def ask(watch: Watch) -> str:
        may_end.wait(60)
        return "mask"

    answer = call_watched(ask, UNWATCHED, is_alive=is_alive)
    assert answer == "mask"


LOCAL, ELSEWHERE = True, False
ENDED = ServiceError("The session has ended.")


@pytest.mark.parametrize(
    ("where", "answers", "beats", "is_alive"),
    [
        # A worker that computes for an hour on a starved machine is not gone.
        (LOCAL, [LATE], 1200, True),
        # A server elsewhere that answers nothing for a minute is; it may come back.
        (ELSEWHERE, [LATE], 10, True),
        (ELSEWHERE, [LATE], 40, False),
        (ELSEWHERE, [*[LATE] * 40, ANSWERED], 41, True),
        # One that refuses is gone at once.
        (LOCAL, [BROKEN], 1, False),
        (ELSEWHERE, [BROKEN], 1, False),
        # It closes a connection that was not used for some seconds, just as the beat is sent.
        *((LOCAL, [BROKEN, after], 1, True) for after in (ANSWERED, LATE, ENDED)),
    ],
)
def test_who_is_gone_is_told_by_the_beats(where, answers, beats, is_alive):
    found = beating(*answers, beats=beats, is_loopback=where)
    assert found.is_server_alive == is_alive


def test_a_computer_that_was_asleep_does_not_take_its_server_for_gone(monkeypatch):
    """Where the clock continues, hours pass between two beats."""
    heartbeat = beating(ANSWERED, is_loopback=False)
    import time

    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 8 * 3600)
    assert heartbeat.is_server_alive


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Play = Callable[[socket.socket], None]


def alive() -> bool:
    return True


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

    def ask(self, caller: Watch, *, is_alive: Callable[[], bool] = alive) -> bytearray:
        with Client(self.url, "token") as client:
            ask = partial(client.ask, "/x", lease="lease", body={})
            return call_watched(lambda watch: ask(watch=watch), caller, is_alive=is_alive)

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
    """Say nothing until the client has gone, as at the end of a tunnel that has vanished."""
    connection.settimeout(20)
    with suppress(OSError):
        connection.recv(1)


def told(connection: socket.socket) -> None:
    """Tell the progress until the client has gone."""
    with suppress(OSError):
        connection.sendall(HEAD)
        while True:
            connection.sendall(chunk(stream_line(progress=0.5)))
            time.sleep(0.02)


@pytest.mark.parametrize("play", [silent, told])
def test_another_thread_stops_the_wait(scripted, play):
    server, stop = scripted(play), threading.Event()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(Cancelled):
        server.ask(Watch(stop.is_set))


def test_a_cancelled_request_closes_its_connection(scripted):
    """So the server stops computing."""
    server, wishes = scripted(told), threading.Event()
    with pytest.raises(Cancelled):
        server.ask(Watch(wishes.is_set, lambda share: wishes.set()))
    assert server.is_over.wait(20)


def test_a_request_that_was_cancelled_before_is_not_sent():
    with Client("http://127.0.0.1:9", "token") as client, pytest.raises(Cancelled):
        client.ask("/x", lease="lease", body={}, watch=Watch(lambda: True))


def test_a_server_that_dies_while_it_answers_is_out_of_reach(scripted):
    server = scripted(lambda c: c.sendall(HEAD + chunk(stream_line(progress=0.5))))
    with pytest.raises(Unreachable, match="start the server again"):
        server.ask(UNWATCHED)


def test_a_silent_server_is_waited_for_as_long_as_it_answers_heartbeats(scripted):
    """It is starved, or a proxy holds its lines back until the answer is complete."""
    beats: list[bool] = []

    def late(connection: socket.socket) -> None:
        while len(beats) < 10:
            time.sleep(0.01)
        connection.sendall(HEAD + chunk(stream_line(bytes=1) + b"m") + b"0\r\n\r\n")

    answer = scripted(late).ask(UNWATCHED, is_alive=lambda: not beats.append(True))
    assert answer == b"m"


def test_a_silent_server_that_answers_no_heartbeat_is_gone(scripted):
    with pytest.raises(ServiceError, match="prompts are kept"):
        scripted(silent).ask(UNWATCHED, is_alive=lambda: False)
