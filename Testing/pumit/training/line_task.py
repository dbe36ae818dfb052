"""A task of one number, whose training is known beforehand."""

from pathlib import Path
from typing import Any, Literal

import torch
from pumit.training.loop.task import Draw
from pumit.training.loop.trainer import train
from pumit.training.recipes.schedule import Schedule
from torch import Tensor, nn

SCHEDULE = Schedule(steps=12, learning_rate=0.05, warm_up=3, decay=4, log_every=1)
DEGREES = {0: 0.5, 2: 0.5}


def draw_line(da0: int, generator: torch.Generator, shared: torch.Generator) -> Tensor:
    return torch.randn(16, 3, generator=generator)


class LineTask:
    """Fit a line; `poison` spoils the gradient of some steps, or the loss itself."""

    def __init__(self, *poison: int, spoilt: Literal["gradient", "loss"] = "gradient") -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 1))
        self.poison, self.spoilt = poison, spoilt
        self.drawn: list[int] = []

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Tensor:
        self.drawn.append(da0)
        return draw_line(da0, generator, shared)

    def worker_draw(self) -> Draw:
        return draw_line

    def forward(self, batch: Tensor) -> dict[str, Tensor]:
        loss = (self.network(batch).squeeze(-1) - batch.sum(1)).float().square().mean()
        if len(self.drawn) in self.poison:
            # The root of zero has no gradient.
            loss = loss * torch.nan if self.spoilt == "loss" else loss + (loss - loss).sqrt()
        return {"loss": loss}


def run(
    folder: Path, schedule: Schedule = SCHEDULE, task: LineTask | None = None, *, workers: int = 0
) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    records: list[dict[str, Any]] = []
    state = train(
        task or LineTask(),
        folder,
        schedule,
        seed=4,
        degrees=DEGREES,
        report=records.append,
        workers=workers,
    )
    return records, state


def losses(records: list[dict[str, Any]]) -> list[float]:
    return [r["loss"] for r in records]
