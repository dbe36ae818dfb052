"""Interface of training tasks, and loading of their batches in step order."""

import signal
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from pumit.errors import PumitError

PREFETCHED = 2  # batches prefetched per worker
B = TypeVar("B", bound="Batch")


class Batch:
    """Base class of batches: moves all tensor attributes together."""

    def to(self: B, device: torch.device) -> B:
        """Return a copy of the batch on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self: B) -> B:
        """Return a copy of the batch in pinned memory; called by `DataLoader`."""
        return self._each(Tensor.pin_memory)

    def _each(self: B, change: Callable[[Tensor], Tensor]) -> B:
        moved = copy(self)
        tensors = {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}
        moved.__dict__.update((key, change(tensor)) for key, tensor in tensors.items())
        return moved


class Draw(Protocol):
    """Function that draws a batch; pickled for worker processes that are not forked."""

    def __call__(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
        """Draw a batch of one degree of anisotropy; `shared` is the same in every process."""


class StepDraws(Dataset[Any]):
    """Batch of every step, which depends only on the seed, the step and the process.

    Args:
        draw: Function that draws batches; should hold no network if it is pickled.
    """

    def __init__(self, draw: Draw, *, seed: int, rank: int, degrees: Mapping[int, float]) -> None:
        self.draw = draw
        self.seed = seed
        self.rank = rank
        self.degrees = dict(degrees)

    def batch(self, step: int) -> Any:
        """Draw the batch of a step."""
        shared = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        shares = torch.tensor(list(self.degrees.values()))
        da0 = list(self.degrees)[int(torch.multinomial(shares, 1, generator=shared))]
        own = torch.Generator().manual_seed((self.seed * 1_000_003 + step) * 64 + self.rank + 1)
        return self.draw(da0, own, shared)

    def __getitem__(self, step: int) -> Any:
        try:
            return self.batch(step)
        except PumitError as error:  # as a value, without the loader's traceback
            return PumitError(str(error))  # of this class, as not all subclasses can be pickled


def batches(draws: StepDraws, steps: range, *, workers: int, pinned: bool) -> Iterator[Any]:
    """Yield the batches of `steps` in order, independent of the number of workers.

    Without worker processes, each batch is drawn on demand in this one.

    Raises:
        PumitError: If a batch could not be drawn.
    """
    if workers == 0:
        yield from map(draws.batch, steps)
        return
    drawn = DataLoader(
        draws,
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        prefetch_factor=PREFETCHED,
        pin_memory=pinned,
        generator=torch.Generator(),  # do not draw the workers' seed from the global generator
        worker_init_fn=_leave_stopping_to_the_run,
    )
    for batch in drawn:
        if isinstance(batch, PumitError):
            raise batch
        yield batch


def _leave_stopping_to_the_run(number: int) -> None:
    """Ignore Ctrl+C in a worker: the main process may need another batch or two to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Task(Protocol):
    """A training objective: network, batches and loss.

    A task may define `parameter_groups(schedule)`, which returns dictionaries with `params` and
    optionally `weight_decay` and `rate`, a factor on the learning rate.
    """

    @property
    def network(self) -> nn.Module:
        """Network to train."""

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
        """Draw a batch of one degree of anisotropy; `shared` is the same in every process.

        The `len` of a batch is its number of fields. It may have `cases` (their names, for error
        messages) and `voxels` (their number, for the log).
        """

    def worker_draw(self) -> Draw:
        """Return a function without the network that draws the same batches in worker processes."""

    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Compute `loss` and further values for the log.

        May use torch's global generators, which are seeded by step and process.
        """


class SourceTask(nn.Module):
    """Base class of tasks whose batches come from a source independent of the network."""

    def __init__(self, network: nn.Module, source: Any) -> None:
        super().__init__()
        self.network: Any = network
        self.source: Any = source

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
        """Draw a batch of one degree of anisotropy."""
        return self.worker_draw()(da0, generator, shared)

    def worker_draw(self) -> Draw:
        """Return the function that draws batches in worker processes."""
        return self.source.draw


def cases_of(batch: Any) -> list[str]:
    """Return the names of a batch's cases; empty if it has none."""
    return [str(case) for case in getattr(batch, "cases", [])]
