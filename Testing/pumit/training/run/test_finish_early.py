"""A run ends with the best model that it has, when someone asks for it."""

import math
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import segmentation_runs
from labelled_scans import write_pairs
from pumit.errors import PumitError
from pumit.models.checkpoint import read_recipe, save_checkpoint
from pumit.models.index import find_model
from pumit.runs import CONTROL, RunStatus, read_log, read_status, send_command, write_status
from pumit.training.run.reporter import RunReporter, RunStopped
from pumit.training.segmentation.task import SegmentationTask
from pumit.training.segmentation.validation import SegmentationValidation
from segmentation_runs import RECIPE, assert_same_weights
from tiny_run import during_step, run_line

SCHEDULE = {
    "steps": 50,
    "log_every": 1,
    "validate_every": 2,
    "learning_rate": 1e-3,
    "precision": "fp32",
}
train = partial(segmentation_runs.train, schedule=SCHEDULE)
pytestmark = pytest.mark.usefixtures("swift", "blank_pictures")


def assert_finished(folder: Path, best_step: int) -> None:
    status = read_status(folder)
    assert (status.state, status.best_step, status.model) == (
        *("finished", best_step, "made.safetensors"),
    )
    assert read_recipe(find_model(status.registered))[0]["step"] == best_step
    assert (folder / "validation.json").is_file()
    assert (folder / "card.md").is_file()
    assert not (folder / CONTROL).exists()


def test_a_stopped_run_is_finished_without_another_step(tmp_path, monkeypatch):
    write_pairs(tmp_path / "set", 3)
    out = tmp_path / "out"
    with pytest.raises(PumitError, match="no validated model"):
        train(tmp_path, finish=True)
    assert not out.exists()
    during_step(monkeypatch, SegmentationTask, 3, lambda: send_command(out, "stop"))
    with pytest.raises(RunStopped):
        train(tmp_path)
    stopped = read_status(out)
    assert (stopped.state, stopped.step, stopped.best_step) == ("stopped", 3, 2)
    before = (out / "made.safetensors").rename(tmp_path / "before.safetensors")
    shutil.copy(before, out / "made.safetensors")
    train(tmp_path, finish=True)
    assert_finished(out, 2)
    assert [r["step"] for r in read_log(out)[0] if "loss" in r] == [1, 2, 3]
    assert_same_weights(before, out / "made.safetensors")


def test_a_wish_to_finish_before_there_is_a_model_is_reported_and_dropped(tmp_path):
    steps: list[int] = []

    def each_step() -> None:
        steps.append(1)
        if len(steps) == 2:
            send_command(tmp_path, "finish")

    run_line(tmp_path, each_step=each_step)
    assert len(steps) == 24
    assert any(r.get("event") == "no model" for r in read_log(tmp_path)[0])


def test_a_run_without_validation_cases_finishes_with_its_latest_step(tmp_path, monkeypatch):
    write_pairs(tmp_path / "set", 2)
    out = tmp_path / "out"
    during_step(monkeypatch, SegmentationTask, 3, lambda: send_command(out, "finish"))
    train(tmp_path, data={**RECIPE["data"], "validation": []})
    assert_finished(out, 3)


def test_a_run_whose_validation_has_no_score_finishes_with_the_newest_model(tmp_path):
    """As of better clicks without validation cases: there was never a model to finish with."""
    steps: list[int] = []

    def each_step() -> None:
        steps.append(1)
        if len(steps) == 10:
            send_command(tmp_path, "finish")

    run_line(tmp_path, each_step=each_step, validate=lambda state: {"score": math.nan})
    assert len(steps) == 10
    assert (tmp_path / "best.safetensors").is_file()


def test_a_run_that_is_stopped_before_its_last_model_is_written_writes_it_when_it_goes_on(
    tmp_path, monkeypatch
):
    write_pairs(tmp_path / "set", 2)
    schedule = {**SCHEDULE, "steps": 2, "checkpoint_seconds": 0.0}
    whole = partial(train, data={**RECIPE["data"], "validation": []}, schedule=schedule)

    def full(path: Path, state: Any, recipe: Mapping[str, Any]) -> str:
        if recipe["step"] == 2:
            raise RunStopped("Stopped while the disk was full.")
        return save_checkpoint(path, state, recipe)

    with monkeypatch.context() as patch:
        patch.setattr("pumit.training.loop.fit.save_checkpoint", full)
        with pytest.raises(RunStopped):
            whole(tmp_path)
    best = whole(tmp_path)
    assert read_recipe(best)[0]["step"] == 2
    assert_same_weights(best, whole(tmp_path, "undisturbed"))


def test_a_model_that_no_validation_chose_has_the_step_at_which_the_time_was_used_up(
    tmp_path, monkeypatch
):
    write_pairs(tmp_path / "set", 2)
    monkeypatch.setattr(SegmentationValidation, "__call__", lambda *given: {"score": math.nan})
    best = train(tmp_path, schedule={**SCHEDULE, "seconds": 0.0})
    assert read_recipe(best)[0]["step"] == 1


def test_a_run_that_is_taken_up_tells_from_the_start_what_it_has(tmp_path):
    best = tmp_path / "made.safetensors"
    best.touch()
    write_status(tmp_path, RunStatus("stopped", step=7, steps=9, model=best.name, best_step=4))
    status = RunReporter(tmp_path).status
    assert (status.state, status.step, status.steps) == ("preparing", 7, 9)
    assert (status.model, status.best_step) == (best.name, 4)
    best.unlink()
    assert RunReporter(tmp_path).status.best_step is None
