"""A training objective as the loop uses it."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pumit.training.loop.prefetch import Draw


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
