"""What a training step costs: the time and memory of a few real ones."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pumit.system.process import peak_process_bytes
from pumit.training.loop.task import Task
from pumit.training.loop.trainer import train
from pumit.training.recipes.schedule import Schedule

WARM_UP_STEPS = 1
FEWEST_STEPS = 2
MOST_STEPS = 10
SECONDS = 1.5  # of measured steps


@dataclass(frozen=True)
class StepCost:
    """Measured time and memory of a step.

    Attributes:
        seconds: Time of a step: drawing, forward, backward, optimiser; the mean.
        busy: Part of the time in which other programs had the processor, 0 on a GPU.
    """

    seconds: float
    steps: int
    parameters: int
    busy: float = 0.0


class _EnoughError(Exception):
    """As many steps are taken as the trial needs."""


def measure_steps(
    task: Task, schedule: Schedule, device: torch.device, *, degrees: dict[int, float] | None = None
) -> StepCost:
    """Take real training steps and time them.

    Args:
        schedule: Optimiser and precision; its length does not matter.
    """
    times: list[float] = []
    worked: list[float] = []

    def measured(record: dict[str, Any]) -> None:
        times.append(time.perf_counter())
        worked.append(time.process_time())
        count = len(times) - 1 - WARM_UP_STEPS
        spent = times[-1] - times[min(WARM_UP_STEPS, len(times) - 1)]
        if count >= MOST_STEPS or (count >= FEWEST_STEPS and spent > SECONDS):
            raise _EnoughError

    short = replace(schedule, steps=10_000, seconds=None, log_every=1, checkpoint_seconds=1e9)
    shares = {0: 1.0} if degrees is None else degrees
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_EnoughError):
        train(task, Path(folder), short, degrees=shares, report=measured, device=device)
    gaps = [b - a for a, b in itertools.pairwise(times)][WARM_UP_STEPS:]
    parameters = sum(p.numel() for p in task.network.parameters())
    seconds = sum(gaps) / len(gaps)
    # One of the threads at least would have worked all the time.
    used = (worked[-1] - worked[WARM_UP_STEPS]) / max(sum(gaps), 1e-9)
    busy = max(0.0, 1 - used) if device.type == "cpu" else 0.0
    return StepCost(seconds, len(gaps), parameters, round(busy, 3))


def peak_bytes(device: torch.device) -> int | None:
    """Most memory that this process has held where it trains."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    return peak_process_bytes()
