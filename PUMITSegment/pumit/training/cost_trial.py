"""What a training step costs here, found out by taking some, in a process of its own.

`python -m pumit.training.cost_trial TASK` reads one request as a line of JSON and answers with one:
the peak of its memory is that of the training and of nothing else. Whatever is trained is measured
by the one training loop, as a `Task`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch

from pumit.training.hardware import free_memory, peak_process_bytes
from pumit.training.schedule import Schedule
from pumit.training.task import Task
from pumit.training.trainer import train

# Imported only when they are asked for: each maps a request to what it costs.
TRIALS = {
    "segmentation": ("pumit.training.segmentation_trial", "try_segmentation"),
    "promptable": ("pumit.training.click_trial", "try_clicks"),
}
WARM_UP_STEPS = 1
FEWEST_STEPS = 2
MOST_STEPS = 10
SECONDS = 1.5  # of measured steps
# A trial that takes all memory would cost the programs beside it theirs.
MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class StepCost:
    """What was measured.

    Attributes:
        seconds: Of a step: drawing, forward, backward, optimiser; the mean.
        steps: How many were measured.
        parameters: Numbers that the network has.
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
        task: Network and objective.
        schedule: Optimiser and precision; its length does not matter.
        device: Where to train.
        degrees: Share of steps per degree of anisotropy.
    """
    times: list[float] = []
    worked: list[float] = []

    def told(record: dict[str, Any]) -> None:
        times.append(time.perf_counter())
        worked.append(time.process_time())
        count = len(times) - 1 - WARM_UP_STEPS
        spent = times[-1] - times[min(WARM_UP_STEPS, len(times) - 1)]
        if count >= MOST_STEPS or (count >= FEWEST_STEPS and spent > SECONDS):
            raise _EnoughError

    short = replace(schedule, steps=10_000, seconds=None, log_every=1, checkpoint_seconds=1e9)
    shares = {0: 1.0} if degrees is None else degrees
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_EnoughError):
        train(task, Path(folder), short, degrees=shares, report=told, device=device)
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


def keep_memory_for_others() -> None:
    """Let allocations fail before the system has to end processes; Linux only."""
    free = free_memory()
    if sys.platform == "linux" and free is not None:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limits = [n for n in (soft, hard) if n != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([int(MEMORY_SHARE * free), *limits]), hard))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it was the memory that was too small."""
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "memory" in str(error).lower()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What a request costs.

    Args:
        request: With `task`, a key of `TRIALS`, and what that needs.

    Returns:
        What the trial found, or `{"out_of_memory": true}`.
    """
    trial = _trial(request["task"])
    try:
        return asdict(trial(request))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return {"out_of_memory": True}


def _trial(task: str) -> Callable[[dict[str, Any]], Any]:
    module, function = TRIALS[task]
    return cast(Callable[[dict[str, Any]], Any], getattr(import_module(module), function))


def main() -> None:
    """Answer the request on standard input; its task is the argument, to load it before."""
    _trial(sys.argv[1])
    starting = time.process_time()  # loading what a training loads
    line = sys.stdin.readline()
    if not line.strip():
        return
    request = json.loads(line)
    if request.get("device", "cpu") == "cpu":
        keep_memory_for_others()
    found = answer(request)
    sys.stdout.write(json.dumps({**found, "starting": starting}) + "\n")


if __name__ == "__main__":
    main()
