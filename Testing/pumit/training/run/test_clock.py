"""The time of a run leaves out pauses and the computer's sleep."""

import pytest
from pumit.training.run.clock import GAP_SECONDS, RunClock
from pumit.training.run.reporter import RunReporter
from pumit.training.run.resume_state import LAST, read_run
from tiny_run import SCHEDULE, train_line


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


def test_parts_of_a_run_add_up_by_both_clocks(clocks, clock):
    clocks.go(3)
    clock.begin(before=60.0, other_clock_s=2.0)
    clocks.go(4, working=25)  # several threads
    assert (clock.read(), clock.other_clock_s) == (64.0, 27.0)
    clocks.go(5)
    assert clock.read() == 69.0


def test_sleep_does_not_count_and_is_reported(clocks, clock):
    reported: list[float] = []
    clock.on_sleep = reported.append
    clock.begin()
    clocks.go(2)
    assert clock.read() == 2.0
    clocks.go(3600)
    assert clock.read() == 2.0
    assert reported == [3600.0]
    clocks.go(10 * GAP_SECONDS, working=9 * GAP_SECONDS)  # busy, which is no sleep
    assert clock.read() == 2.0 + 10 * GAP_SECONDS


def test_a_pause_does_not_count(clocks, clock):
    reported: list[float] = []
    clock.on_sleep = reported.append
    clock.begin()
    clocks.go(1)
    with clock.halted():
        for _ in range(20):
            clocks.go(5)
            clock.read()
        clocks.go(1000)
    clocks.go(2)
    assert clock.read() == 3.0
    assert reported == []


def test_the_processors_time_counts_where_it_is_requested(clocks, clock):
    clock.begin(before=60.0, other_clock_s=100.0, is_processor=True)
    clocks.go(10, working=4)
    assert clock.read() == 64.0
    assert clock.other_clock_s == 110.0
    clocks.go(3600, working=1)  # another program had the processor, or the computer slept
    assert clock.read() == 65.0


@pytest.mark.parametrize(("kind", "steps"), [("processor", 4), ("wall", 1)])
def test_a_budget_is_counted_by_the_clock_of_the_schedule(clocks, clock, tmp_path, kind, steps):
    schedule = SCHEDULE.changed(clock=kind, seconds=35.0)

    def train_on() -> None:
        reporter = RunReporter(clock=clock)
        train_line(
            tmp_path, reporter, schedule=schedule, each_step=lambda: clocks.go(50, working=10)
        )

    train_on()
    saved = read_run(tmp_path / LAST, schedule)
    assert saved.position.step == steps
    both = (saved.position.elapsed_s, saved.position.other_clock_s)
    assert both == ((10.0 * steps, 50.0 * steps) if kind == "processor" else (50.0, 10.0))
    train_on()  # nothing is left of the budget
    again = read_run(tmp_path / LAST, schedule)
    assert again.position == saved.position
