"""Measure the time and memory of a few real training steps."""

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pumit.system.process import peak_process_bytes
from pumit.training.loop.task import StepDraws, Task
from pumit.training.loop.trainer import train
from pumit.training.recipes.schedule import Schedule

WARM_UP_STEPS = 1
FEWEST_STEPS = 2
MOST_STEPS = 10
SECONDS = 1.5  # minimum time of measured steps
DRAWN = 3  # batches drawn without a step


@dataclass(frozen=True)
class StepCost:
    """Measured cost of a step.

    Attributes:
        seconds: Mean time of a step: data, forward, backward, optimizer.
        busy: Share of the time in which other programs used the CPU; 0 on a GPU.
    """

    seconds: float
    steps: int
    parameters: int
    busy: float = 0.0


@dataclass(frozen=True)
class MeasuredCost:
    """Measured cost of a planned run.

    Attributes:
        peak_bytes: Peak memory on the training device.
        process_bytes: Peak main memory of the process.
    """

    step: StepCost
    peak_bytes: int | None
    process_bytes: int | None


class _EnoughError(Exception):
    """Enough steps were measured."""


def measure_steps(
    task: Task,
    schedule: Schedule,
    device: torch.device,
    *,
    degrees: dict[int, float] | None = None,
    workers: int = 0,
) -> StepCost:
    """Run real training steps and time them.

    Args:
        schedule: Optimizer and precision; its length is ignored.
        workers: Processes that will draw batches while a GPU computes. On a CPU they share its
            cores, and do not count.
    """
    times: list[float] = []
    worked: list[float] = []
    drawing: list[float] = []  # share of each step
    clock = clock_of(schedule)

    def measured(record: dict[str, Any]) -> None:
        times.append(clock())
        worked.append(time.process_time())
        drawing.append(record["drawing"])
        count = len(times) - 1 - WARM_UP_STEPS
        spent = times[-1] - times[min(WARM_UP_STEPS, len(times) - 1)]
        if count >= MOST_STEPS or (count >= FEWEST_STEPS and spent > SECONDS):
            raise _EnoughError

    short = schedule.changed(steps=10_000, seconds=None, log_every=1, checkpoint_seconds=1e9)
    shares = {0: 1.0} if degrees is None else degrees
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_EnoughError):
        train(task, Path(folder), short, degrees=shares, report=measured, device=device)
    gaps = [b - a for a, b in itertools.pairwise(times)][WARM_UP_STEPS:]
    parameters = sum(p.numel() for p in task.network.parameters())
    seconds = sum(gaps) / len(gaps)
    if workers and device.type != "cpu":
        waits = drawing[1 + WARM_UP_STEPS :]
        computing = sum(gap * (1 - wait) for gap, wait in zip(gaps, waits, strict=True))
        seconds = max(computing / len(gaps), _drawing_seconds(task, shares) / workers)
    # Without other programs, at least one thread would have worked all the time.
    used = (worked[-1] - worked[WARM_UP_STEPS]) / max(sum(gaps), 1e-9)
    busy = max(0.0, 1 - used) if device.type == "cpu" else 0.0
    return StepCost(seconds, len(gaps), parameters, round(busy, 3))


def _drawing_seconds(task: Task, degrees: dict[int, float]) -> float:
    """Return the mean time in which a worker, which has one thread, draws a batch, s."""
    draws = StepDraws(task.worker_draw(), seed=0, rank=0, degrees=degrees)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    began = time.perf_counter()
    try:
        for step in range(DRAWN):
            draws.batch(step)
    finally:
        torch.set_num_threads(threads)
    return (time.perf_counter() - began) / DRAWN


def clock_of(schedule: Schedule) -> Callable[[], float]:
    """Return the clock that a schedule's times are measured with."""
    return time.process_time if schedule.clock == "processor" else time.perf_counter


def peak_bytes(device: torch.device) -> int | None:
    """Return the peak memory of this process on the training device."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    return peak_process_bytes()


def striped_labels(shape: Sequence[int], values: Sequence[int]) -> npt.NDArray[Any]:
    """Return a synthetic label map (d, h, w): stripes in its middle, one per value."""
    labels = np.zeros(shape, dtype=np.min_scalar_type(max(values)))
    middle = tuple(slice(n // 4, max(n // 4 + 1, 3 * n // 4)) for n in shape)
    width = labels[middle].shape[-1]
    labels[middle] = np.array(values, dtype=labels.dtype)[np.arange(width) * len(values) // width]
    return labels
