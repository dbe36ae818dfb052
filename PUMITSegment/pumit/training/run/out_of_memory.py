"""Memory that ran out: try again with a smaller plan."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from pumit.errors import TrainingError
from pumit.system.out_of_memory import is_out_of_memory
from pumit.training.run.reporter import RunReporter

logger = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")
# What torch says of a worker process that the system ended, most often for the memory it took.
WORKER_SAYINGS = ("dataloader worker (pid",)


class MemoryShortError(TrainingError):
    """A run needs more memory than there is."""


class WorkerLostError(MemoryShortError):
    """A process that draws batches was ended by the system."""


def memory_short(error: BaseException) -> MemoryShortError | None:
    """Return what an error says of memory, or None where it is about something else."""
    if isinstance(error, MemoryShortError):
        return error
    text = " ".join(str(error).lower().split())
    if isinstance(error, RuntimeError) and any(s in text for s in WORKER_SAYINGS):
        return WorkerLostError("A process that prepares patches was ended by the system.")
    return MemoryShortError("There is not enough memory.") if is_out_of_memory(error) else None


def retry_with_less_memory(
    attempt: Callable[[S], R],
    settings: S,
    smaller: Callable[[S, MemoryShortError], tuple[S, str] | None],
    reporter: RunReporter,
) -> R:
    """Do something; where memory does not suffice, again with less of it.

    Args:
        attempt: Function of the settings. It continues where it was saved.
        smaller: Settings that need less and the sentence that says which, or None where there
            are none.

    Raises:
        TrainingError: If no settings need less.
    """
    while True:
        try:
            return attempt(settings)
        except (RuntimeError, MemoryError, MemoryShortError) as error:
            short = memory_short(error)
            if short is None:
                raise
        # Out of the block, for the error holds on to everything that was being computed.
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        less = smaller(settings, short)
        if less is None:
            raise TrainingError(
                f"{short} Steps cannot be made smaller any more: close other programs, set "
                "activation_checkpointing: true in schedule, or give a smaller network in "
                "network_sizes."
            )
        settings, sentence = less
        kind = "fewer workers" if isinstance(short, WorkerLostError) else "smaller patch"
        reporter.event(kind, f"{short} {sentence} It goes on from the last save.")


def fewer_workers(workers: int) -> tuple[int, str] | None:
    """How many processes draw batches after one was lost; batches stay the same.

    Returns:
        The number and the sentence that says so, or None where there are none to be spared.
    """
    if workers == 0:
        return None
    left = workers // 2
    who = f"{left} of {workers} such processes go on" if left else "Training does it itself now"
    return left, f"{who}."
