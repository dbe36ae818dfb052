"""A trial takes real steps of any task, and says what it found as JSON."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pumit.training.planning import trial as cost_trial
from pumit.training.planning.step_cost import FEWEST_STEPS, MOST_STEPS, measure_steps
from pumit.training.planning.trial import answer
from pumit.training.recipes.schedule import Schedule
from torch import Tensor, nn


class Line:
    """Fits a line, as small a task as there is."""

    def __init__(self) -> None:
        self.network = nn.Linear(3, 1)
        self.draws = 0

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Tensor:
        self.draws += 1
        return torch.randn(4, 3, generator=generator)

    def worker_draw(self) -> Any:
        return self.draw

    def forward(self, batch: Tensor) -> dict[str, Tensor]:
        return {"loss": self.network(batch).square().mean()}


def test_any_task_is_measured_by_real_steps() -> None:
    task = Line()
    before = task.network.weight.detach().clone()
    cost = measure_steps(task, Schedule(optimizer="adamw", steps=3), torch.device("cpu"))
    assert FEWEST_STEPS <= cost.steps <= MOST_STEPS
    assert cost.steps < task.draws <= MOST_STEPS + 2
    assert cost.seconds > 0
    assert cost.parameters == 4
    assert not torch.equal(before, task.network.weight)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't allocate memory: you tried to allocate")]
)
def test_want_of_memory_is_an_answer(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: dict[str, Any]) -> None:
        raise error

    monkeypatch.setattr(cost_trial, "_trial", lambda task: fail)
    assert answer({"task": "segmentation"}) == {"out_of_memory": True}


def test_other_faults_are_not_taken_for_want_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: dict[str, Any]) -> None:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(cost_trial, "_trial", lambda task: fail)
    with pytest.raises(RuntimeError, match="shapes"):
        answer({"task": "segmentation"})
