"""A training objective as the loop uses it, and its batches in the order of the steps."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from pumit.errors import PumitError

PREFETCHED = 2  # batches that each worker keeps ready
B = TypeVar("B", bound="Batch")


class Batch:
    """Base of batches: their tensors move together, and what is no tensor stays."""

    def to(self: B, device: torch.device) -> B:
        """Return the same batch on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self: B) -> B:
        """Return the batch in memory that a GPU reads without waiting, as `DataLoader` asks."""
        return self._each(Tensor.pin_memory)

    def _each(self: B, change: Callable[[Tensor], Tensor]) -> B:
        moved = copy(self)
        tensors = {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}
        moved.__dict__.update((key, change(tensor)) for key, tensor in tensors.items())
        return moved


class Draw(Protocol):
    """Draw a batch of one degree of anisotropy; `shared` is the same in every process."""

    def __call__(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
        """Draw it."""


class StepDraws(Dataset[Any]):
    """The batch of every step: a function of the seed, the step and the process alone.

    Args:
        draw: Source of batches; pickled where processes are not forked, so it holds no network.
    """

    def __init__(self, draw: Draw, *, seed: int, rank: int, degrees: Mapping[int, float]) -> None:
        self.draw = draw
        self.seed = seed
        self.rank = rank
        self.degrees = dict(degrees)

    def __getitem__(self, step: int) -> Any:
        shared = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        shares = torch.tensor(list(self.degrees.values()))
        da0 = list(self.degrees)[int(torch.multinomial(shares, 1, generator=shared))]
        own = torch.Generator().manual_seed((self.seed * 1_000_003 + step) * 64 + self.rank + 1)
        return self.draw(da0, own, shared)


def batches(draws: StepDraws, steps: range, *, workers: int, pinned: bool) -> Iterator[Any]:
    """Batches of `steps`, in their order, the same whatever the number of workers.

    Args:
        draws: Batch of every step.
        workers: Processes that draw in advance; 0 draws in this one when a batch is requested.
        pinned: Whether to put them in memory that a GPU reads without waiting.
    """
    if workers == 0:
        yield from (draws[step] for step in steps)
        return
    drawn = DataLoader(
        _DrawnSteps(draws),
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        prefetch_factor=PREFETCHED,
        pin_memory=pinned,
        generator=torch.Generator(),  # its seed for workers shall not come from the global one
        worker_init_fn=_leave_stopping_to_the_run,
    )
    for batch in drawn:
        if isinstance(batch, _WorkerError):
            raise PumitError(batch.message)
        yield batch


def _leave_stopping_to_the_run(number: int) -> None:
    """Ctrl+C reaches all processes of a terminal; the run still needs a batch or two to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True)
class _WorkerError:
    """The error message of a worker process instead of a batch."""

    message: str


class _DrawnSteps(Dataset[Any]):
    """Batches, or the one line that says why there is none: a loader would send a traceback."""

    def __init__(self, draws: StepDraws) -> None:
        self.draws = draws

    def __getitem__(self, step: int) -> Any:
        try:
            return self.draws[step]
        except PumitError as error:
            return _WorkerError(str(error))


class Task(Protocol):
    """An objective: its batches and its loss.

    It may also have `parameter_groups(schedule)`: a list of dictionaries with `params`, and on
    request `weight_decay` and `rate`, a factor on the learning rate.
    """

    @property
    def network(self) -> nn.Module:
        """The network to train."""

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
        """Draw a batch of one degree of anisotropy; `shared` is the same in every process.

        The batch tells by `len` how many fields it holds. It may tell `cases` (their names, for a
        message) and `voxels` (how many, for the log).
        """

    def worker_draw(self) -> Draw:
        """Return what draws the same in worker processes, without the network."""

    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Score a batch: `loss`, and whatever else the log should show.

        Torch's global generators may be used: they are seeded by step and process.
        """


class SourceTask(nn.Module):
    """A task whose batches come from a source that needs no network.

    Args:
        source: Has `draw`, as `Task` has.
    """

    def __init__(self, network: nn.Module, source: Any) -> None:
        super().__init__()
        self.network: Any = network
        self.source: Any = source

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
        """Draw a batch of one degree of anisotropy."""
        return self.worker_draw()(da0, generator, shared)

    def worker_draw(self) -> Draw:
        """Return what draws the same in worker processes."""
        draw: Draw = self.source.draw
        return draw


def cases_of(batch: Any) -> list[str]:
    """Return the names of a batch's cases, where it tells."""
    return [str(case) for case in getattr(batch, "cases", [])]


def voxels_of(batch: Any) -> int:
    """How many voxels a batch has, where it tells; else 0."""
    return int(getattr(batch, "voxels", 0))
