"""A server that is busy is not taken for one that is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pumit.client.heartbeat import Heartbeat
from pumit.client.http_client import TimedOut, Unreachable
from pumit.client.watched_call import PendingRequest, call_watched
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


def test_a_worker_that_computes_for_an_hour_on_a_starved_machine_is_not_gone() -> None:
    assert beating(LATE, beats=1200).is_server_alive


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

    answer = call_watched(ask, PendingRequest("1", UNWATCHED), is_alive=is_alive)
    assert answer == "mask"


@pytest.mark.parametrize(("beats", "is_alive"), [(10, True), (40, False)])
def test_a_server_elsewhere_that_answers_nothing_for_a_minute_is_gone(
    beats: int, is_alive: bool
) -> None:
    assert beating(LATE, beats=beats, is_loopback=False).is_server_alive == is_alive


def test_a_server_elsewhere_that_answers_again_is_back() -> None:
    heartbeat = beating(*[LATE] * 40, ANSWERED, beats=41, is_loopback=False)
    assert heartbeat.is_server_alive


def test_a_computer_that_was_asleep_does_not_take_its_server_for_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the clock continues, hours pass between two beats."""
    heartbeat = beating(ANSWERED, is_loopback=False)
    import time

    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 8 * 3600)
    assert heartbeat.is_server_alive


@pytest.mark.parametrize("is_loopback", [True, False])
def test_a_server_that_refuses_is_gone_at_once(is_loopback: bool) -> None:
    assert not beating(BROKEN, is_loopback=is_loopback).is_server_alive


@pytest.mark.parametrize("after", [ANSWERED, LATE, ServiceError("The session has ended.")])
def test_one_broken_connection_is_not_the_end_of_a_server(after: Exception | None) -> None:
    """It closes a connection that was not used for some seconds, just as the beat is sent."""
    assert beating(BROKEN, after).is_server_alive
