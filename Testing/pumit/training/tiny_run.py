"""A training that takes a second, as `pumit train` does it: with a folder, status and logs."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from line_task import LineTask
from pumit.models.tensor_file import write_tensors
from pumit.training.loop.trainer import train
from pumit.training.recipes.schedule import Schedule
from pumit.training.run.reporter import RunReporter, RunStopped
from pumit.training.run.session import run_session
from torch import Tensor

STEPS = 24
SCHEDULE = Schedule(
    steps=STEPS,
    learning_rate=0.05,
    warm_up=3,
    decay=4,
    log_every=1,
    validate_every=8,
    checkpoint_seconds=0.0,
)
forks = pytest.mark.skipif(sys.platform == "win32", reason="this system does not fork")


class SteppedTask(LineTask):
    """Fit a line; `each_step` is called before each."""

    def __init__(self, each_step: Callable[[], None]) -> None:
        super().__init__()
        self.each_step = each_step

    def forward(self, batch: Tensor) -> dict[str, Tensor]:
        self.each_step()
        return super().forward(batch)


def score(state: dict[str, Tensor]) -> dict[str, float]:
    return {"score": float(sum(v.sum() for v in state.values()))}


def train_line(
    folder: Path,
    reporter: RunReporter,
    *,
    schedule: Schedule = SCHEDULE,
    each_step: Callable[[], None] = lambda: None,
    validate: Callable[[dict[str, Tensor]], dict[str, float]] = score,
    **more: Any,
) -> dict[str, Tensor]:
    return train(
        SteppedTask(each_step),
        folder,
        schedule,
        seed=4,
        degrees={0: 1.0},
        report=reporter.report,
        validate=validate,
        on_best=lambda state, step, found: write_tensors(folder / "best.safetensors", state, {}),
        reporter=reporter,
        **more,
    )


def run_line(folder: Path, **more: Any) -> dict[str, Tensor]:
    """A whole start, as the command makes it."""
    with run_session(folder, since=0.0) as reporter:
        state = train_line(folder, reporter, **more)
        reporter.state("finished", "Finished.")
    return state


def started(work: Callable[[], object]) -> multiprocessing.process.BaseProcess:
    """Do something in its own process, which has torch already."""

    def alone() -> None:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        try:
            work()
        except RunStopped:
            os._exit(7)
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=alone)
    process.start()
    return process


def during_step(
    monkeypatch: pytest.MonkeyPatch, task: type[Any], number: int, what: Callable[[], object]
) -> None:
    """Do something while a step of the run is taken."""
    taken: list[int] = []
    forward = task.forward

    def counted(self: Any, batch: Any) -> Any:
        taken.append(1)
        if len(taken) == number:
            what()
        return forward(self, batch)

    monkeypatch.setattr(task, "forward", counted)


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.005)
