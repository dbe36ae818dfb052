"""A server that is busy is not taken for one that is gone."""

from __future__ import annotations

from typing import Any

import pytest
from pumit.client.heartbeat import Heartbeat
from pumit.client.http_client import TimedOut, Unreachable


class Silent:
    """A client whose server answers nothing."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def call(self, *arguments: Any, **options: Any) -> None:
        raise self._error


def beating(error: Exception, silence_s: float) -> Heartbeat:
    client: Any = Silent(error)
    made = Heartbeat(client, "lease", interval_s=3600)
    made._heard_at -= silence_s
    made.beat()
    made.stop()
    return made


@pytest.mark.parametrize(("silence_s", "is_alive"), [(0, True), (30, True), (120, False)])
def test_a_server_that_is_busy_for_half_a_minute_is_not_gone(
    silence_s: float, is_alive: bool
) -> None:
    assert beating(TimedOut("No answer in time."), silence_s).is_server_alive == is_alive


def test_a_server_that_refuses_is_gone_at_once() -> None:
    assert not beating(Unreachable("Nothing answers."), 0).is_server_alive
