"""The loop resumes exactly, follows its schedule, and survives a bad step."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from line_task import DEGREES, SCHEDULE, LineTask, losses, run
from pumit.errors import AmbiguousSeriesError, CheckpointError, PumitError, TrainingError
from pumit.training.loop.state import WeightAverage
from pumit.training.loop.task import Draw
from pumit.training.loop.trainer import train
from pumit.training.recipes.schedule import Schedule
from pumit.training.run.resume_state import read_run, step_saved
from torch import Tensor, nn


def test_batches_prefetched_are_those_drawn_in_line(tmp_path):
    """Whatever the number of workers, and after a stop as well."""
    whole, expected = run(tmp_path / "whole")
    prefetched, state = run(tmp_path / "prefetched", workers=2)
    assert losses(prefetched) == losses(whole)
    first, _ = run(tmp_path / "parts", SCHEDULE.changed(seconds=0.0), workers=1)
    second, resumed = run(tmp_path / "parts", workers=2)
    assert len(first) == 1
    assert losses(first + second) == losses(whole)
    torch.testing.assert_close(state, expected, rtol=0, atol=0)
    torch.testing.assert_close(resumed, expected, rtol=0, atol=0)


def refuse(da0: int, generator: torch.Generator, shared: torch.Generator) -> Tensor:
    raise AmbiguousSeriesError("Case 7 is empty.", [])


@pytest.mark.parametrize("workers", [0, 1])
def test_bad_data_are_reported_in_one_line_by_worker_processes_too(tmp_path, workers):
    class Refused(LineTask):
        draw = staticmethod(refuse)  # type: ignore[assignment]

        def worker_draw(self) -> Draw:
            return refuse

    with pytest.raises(PumitError, match=r"^Case 7 is empty\.$"):
        run(tmp_path, task=Refused(), workers=workers)


def test_degrees_are_drawn_by_their_shares(tmp_path):
    task = LineTask()
    records, _ = run(tmp_path, SCHEDULE.changed(steps=60), task)
    assert set(task.drawn) == {0, 2}
    assert 18 < task.drawn.count(0) < 42
    for record in records:  # a line tells speed, waiting and memory
        assert record["fields_per_second"] > 0
        assert 0 <= record["drawing"] <= 1
        assert sys.platform == "win32" or record["memory_gib"] > 0


def test_the_rate_rises_stays_and_falls():
    schedule = Schedule(steps=100, learning_rate=1.0, warm_up=10, decay=20)
    rates = [schedule.rate_at(step) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert all(a < b for a, b in pairwise(rates[:10]))
    assert rates[9:81] == [1.0] * 72
    assert all(a > b for a, b in pairwise(rates[80:]))
    assert rates[100] == 0.0


def test_a_step_without_a_finite_gradient_is_skipped(tmp_path):
    task = LineTask(4)
    records, state = run(tmp_path, task=task)
    assert all(torch.isfinite(v).all() for v in task.network.state_dict().values())
    assert all(torch.isfinite(v).all() for v in state.values())
    assert "norm" not in records[3]  # JSON has no NaN
    assert "norm" in records[4]


def test_gradients_that_stay_useless_stop_the_run(tmp_path):
    with pytest.raises(TrainingError, match=r"Step 8: the gradient .* 5 steps"):
        run(tmp_path, task=LineTask(*range(3, 20)))
    records, _ = run(tmp_path / "again", task=LineTask(*range(3, 8), *range(9, 12)))
    assert len(records) == SCHEDULE.steps
    with pytest.raises(TrainingError, match="too large"):
        run(tmp_path / "huge", SCHEDULE.changed(largest_norm=1e-6))
    # Those before a stop count.
    run(tmp_path / "stopped", SCHEDULE.changed(seconds=0.0), LineTask(1))
    saved = read_run(tmp_path / "stopped" / "last.safetensors", SCHEDULE)
    assert saved.position.skipped == 1


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    run(tmp_path, SCHEDULE.changed(seconds=0.0))
    before = (tmp_path / "last.safetensors").read_bytes()
    with pytest.raises(TrainingError, match=r"^Step 5: the loss") as caught:
        run(tmp_path, task=LineTask(4, spoilt="loss"))
    assert "last.safetensors holds step 1." in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "last.safetensors").read_bytes() == before


def test_the_cases_of_such_a_loss_are_named(tmp_path):
    class NamedTask(LineTask):
        def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
            return Named(super().draw(da0, generator, shared), f"case {len(self.drawn)}")

        def forward(self, batch: Any) -> dict[str, Tensor]:
            return super().forward(batch.tensor)

    with pytest.raises(TrainingError, match=r"Step 2: the loss of case 4, other "):
        run(tmp_path, SCHEDULE.changed(accumulate=2), NamedTask(4, spoilt="loss"))


class Refusing(LineTask):
    """Has a loss that does not take what is not a number."""

    def forward(self, batch: Tensor) -> dict[str, Tensor]:
        chance = self.network(batch).squeeze(-1).sigmoid()
        return {"loss": nn.functional.binary_cross_entropy(chance.float(), (batch > 0)[:, 0] * 1.0)}


def test_a_loss_that_refuses_such_numbers_stops_the_run_alike(tmp_path):
    task = Refusing()
    nn.init.constant_(task.network[2].weight, torch.inf)
    with pytest.raises(TrainingError, match=r"Step 1: the loss .* in 2\.$"):
        run(tmp_path, task=task)


def test_a_mistake_is_no_bad_number(tmp_path):
    class Wrong(LineTask):
        def forward(self, batch: Tensor) -> dict[str, Tensor]:
            return {"loss": self.network(batch[:, :2]).mean()}

    with pytest.raises(RuntimeError, match="shapes"):
        run(tmp_path, task=Wrong())


class Named:
    def __init__(self, tensor: Tensor, name: str) -> None:
        self.tensor = tensor
        self.cases = [name, "other"]

    def __len__(self) -> int:
        return len(self.tensor)


def test_the_average_forgets_the_start():
    network = nn.Linear(2, 1, bias=False)
    average = WeightAverage(network, 0.9)
    nn.init.constant_(network.weight, 1.0)
    for step in range(100):
        average.update(network, step)
    torch.testing.assert_close(average.state["weight"], torch.ones(1, 2), atol=1e-3, rtol=0)


def validated(
    folder: Path, schedule: Schedule, scores: dict[int, float]
) -> tuple[list[int], list[int]]:
    """Run with a validation that finds `scores`; the steps it ran at, and the best ones."""
    steps_validated: list[int] = []
    best: list[int] = []

    def report(record: dict[str, Any]) -> None:
        if "validation" in record:
            steps_validated.append(record["step"])

    def validate(state: dict[str, Tensor]) -> dict[str, float]:
        assert all(torch.isfinite(v).all() for v in state.values())
        step = len(steps_validated) * schedule.validate_every + validated_before
        return {"score": scores.get(step, 0.0), "other": float("nan")}

    last = folder / "last.safetensors"
    validated_before = (step_saved(last) or 0) + schedule.validate_every
    train(
        LineTask(),
        folder,
        schedule,
        degrees=DEGREES,
        report=report,
        validate=validate,
        on_best=lambda state, step, found: best.append(step),
    )
    return steps_validated, best


def test_the_best_of_the_validations_is_kept(tmp_path):
    schedule = SCHEDULE.changed(validate_every=3)
    scores = {3: 0.5, 6: 0.7, 9: 0.6, 12: float("nan")}
    assert validated(tmp_path, schedule, scores) == ([3, 6, 9, 12], [3, 6])
    # What was the best before a stop stays it.
    longer = schedule.changed(steps=18)
    assert validated(tmp_path, longer, {15: 0.65, 18: 0.71}) == ([15, 18], [18])
    # Without a number of steps the end is validated.
    assert validated(tmp_path / "other", SCHEDULE, {}) == ([12], [12])


@pytest.mark.parametrize("content", [b"", b"\x80\x04pickle", b"\x00" * 64, "cut off"])
def test_a_damaged_save_is_refused(tmp_path, content):
    path = tmp_path / "last.safetensors"
    if isinstance(content, str):
        run(tmp_path)
        content = path.read_bytes()[:-10]
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged") as caught:
        run(tmp_path)
    assert str(tmp_path) not in str(caught.value)


def test_the_training_of_another_network_is_refused(tmp_path):
    run(tmp_path)
    task = LineTask()
    task.network = nn.Sequential(nn.Linear(3, 1))
    with pytest.raises(CheckpointError, match="another network"):
        run(tmp_path, SCHEDULE.changed(steps=99), task)


def test_the_last_step_is_in_the_log(tmp_path):
    for steps, every in ((12, 5), (12, 6), (3, 4)):
        schedule = SCHEDULE.changed(steps=steps, log_every=every)
        lines, _ = run(tmp_path / f"{steps} {every}", schedule=schedule)
        logged = [line["step"] for line in lines if "loss" in line]
        assert logged == sorted({*range(every, steps + 1, every), steps})
        assert lines[-1]["left_seconds"] == 0.0
    # Within a budget of time, too.
    schedule = SCHEDULE.changed(seconds=1e-6, decay_seconds=1e-7, log_every=9)
    lines, _ = run(tmp_path, schedule=schedule)
    assert [line["step"] for line in lines] == [1]
