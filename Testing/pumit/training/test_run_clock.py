"""The time of a run leaves out pauses and the computer's sleep."""

from __future__ import annotations

import pytest
from pumit.training.run_clock import GAP_SECONDS, RunClock


class Clocks:
    """A steady clock, and what the processor worked."""

    def __init__(self) -> None:
        self.now, self.worked = 100.0, 5.0

    def go(self, seconds: float, *, working: float = 0.0) -> None:
        self.now += seconds
        self.worked += working


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def clock(clocks: Clocks) -> RunClock:
    return RunClock(lambda: clocks.now, lambda: clocks.worked)


def test_parts_of_a_run_add_up(clocks: Clocks, clock: RunClock) -> None:
    clocks.go(3)
    clock.begin(before=60.0)
    clocks.go(4)
    assert clock.look() == 64.0
    clocks.go(5)
    assert clock.look() == 69.0


def test_sleep_does_not_count_and_is_told(clocks: Clocks, clock: RunClock) -> None:
    told: list[float] = []
    clock.on_sleep = told.append
    clock.begin()
    clocks.go(2)
    assert clock.look() == 2.0
    clocks.go(3600)
    assert clock.look() == 2.0
    assert told == [3600.0]
    clocks.go(2)
    assert clock.look() == 4.0


def test_work_that_lets_nobody_look_is_no_sleep(clocks: Clocks, clock: RunClock) -> None:
    clock.begin()
    clocks.go(10 * GAP_SECONDS, working=9 * GAP_SECONDS)
    assert clock.look() == 10 * GAP_SECONDS


def test_a_pause_does_not_count(clocks: Clocks, clock: RunClock) -> None:
    told: list[float] = []
    clock.on_sleep = told.append
    clock.begin()
    clocks.go(1)
    with clock.halted():
        for _ in range(20):
            clocks.go(5)
            clock.look()
        clocks.go(1000)
    clocks.go(2)
    assert clock.look() == 3.0
    assert told == []
