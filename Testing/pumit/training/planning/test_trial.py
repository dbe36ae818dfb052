"""A trial takes real steps of any task, and says what it found as JSON."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from line_task import LineTask
from pumit.training.planning import step_cost
from pumit.training.planning import trial as cost_trial
from pumit.training.planning.step_cost import FEWEST_STEPS, MOST_STEPS, measure_steps
from pumit.training.planning.trial import answer
from pumit.training.recipes.schedule import Schedule


def test_any_task_is_measured_by_real_steps():
    task = LineTask()
    before = task.network[0].weight.detach().clone()
    cost = measure_steps(task, Schedule(optimizer="adamw", steps=3), torch.device("cpu"))
    assert FEWEST_STEPS <= cost.steps <= MOST_STEPS
    assert cost.steps < len(task.drawn) <= MOST_STEPS + 2
    assert cost.seconds > 0
    assert cost.parameters == sum(p.numel() for p in task.network.parameters())
    assert not torch.equal(before, task.network[0].weight)


def test_workers_draw_while_a_gpu_computes(monkeypatch):
    def train(*given: Any, report: Callable[[dict[str, Any]], None], **named: Any) -> None:
        for _ in range(5):
            report({"drawing": 0.25})

    monkeypatch.setattr(step_cost, "train", train)
    monkeypatch.setattr(step_cost, "clock_of", lambda schedule: itertools.count().__next__)

    def seconds(device: str, workers: int) -> float:
        task, schedule = LineTask(), Schedule()
        return measure_steps(task, schedule, torch.device(device), workers=workers).seconds

    assert seconds("cuda", 0) == 1.0
    assert seconds("cuda", 2) == 0.75
    assert seconds("cpu", 2) == 1.0  # on the same cores
    monkeypatch.setattr(step_cost, "_drawing_seconds", lambda task, degrees: 4.0)
    assert seconds("cuda", 2) == 2.0


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't allocate memory: you tried to allocate")]
)
def test_want_of_memory_is_an_answer(error, monkeypatch):
    def fail(request: dict[str, Any]) -> None:
        raise error

    monkeypatch.setattr(cost_trial, "_trial", lambda task: fail)
    assert answer({"task": "segmentation"}) == {"out_of_memory": True}
    error = RuntimeError("shapes differ")  # another fault
    with pytest.raises(RuntimeError, match="shapes"):
        answer({"task": "segmentation"})
