"""A server that is busy is not taken for one that is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pumit.client.http_client import TimedOut, Unreachable
from pumit.client.recoverable_session import Heartbeat, call_watched
from pumit.errors import ServiceError
from pumit.system.watch import UNWATCHED, Watch

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


def test_the_answer_of_a_starved_worker_is_awaited() -> None:
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
def test_who_is_gone_is_told_by_the_beats(
    where: bool, answers: list[Exception | None], beats: int, is_alive: bool
) -> None:
    found = beating(*answers, beats=beats, is_loopback=where)
    assert found.is_server_alive == is_alive


def test_a_computer_that_was_asleep_does_not_take_its_server_for_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the clock continues, hours pass between two beats."""
    heartbeat = beating(ANSWERED, is_loopback=False)
    import time

    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 8 * 3600)
    assert heartbeat.is_server_alive
