"""`pumit train` of a segmentation stays whole: resumed, refused, out of memory, watched."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import segmentation_runs
import torch
import yaml
from labelled_scans import write_pairs
from line_task import LineTask, draw_line
from pumit.errors import CheckpointError, DiskFullError, TrainingError, VolumeError
from pumit.models.checkpoint import read_recipe
from pumit.models.index import find_model
from pumit.runs import RECIPE, read_log, read_status, send_command
from pumit.training.loop.step import MemoryShortError, fewer_workers, retry_with_less_memory
from pumit.training.run.reporter import RunStopped
from pumit.training.run.resume_state import LAST, step_saved
from pumit.training.run.session import run_session
from pumit.training.segmentation import run as segmentation_run
from pumit.training.segmentation.task import SegmentationTask
from pumit.training.segmentation.validation import SegmentationValidation
from pumit.training.train import finetune
from segmentation_runs import assert_same_weights
from tiny_run import forks, run_line, train_line

pytestmark = pytest.mark.usefixtures("undrawn")

SCHEDULE = {
    "steps": 3,
    "log_every": 1,
    "validate_every": 2,
    "learning_rate": 1e-3,
    "precision": "fp32",  # bf16 does not even repeat itself on every processor
}
PLAN = {"patch_size": [16, 32, 64], "batch_size": 2}
train = partial(segmentation_runs.train, plan=PLAN, schedule=SCHEDULE)


def records(folder: Path) -> list[dict[str, Any]]:
    return read_log(folder)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set, and a run in "whole" that no one disturbed."""
    made = tmp_path_factory.mktemp("durable")
    write_pairs(made / "set", 3)
    train(made, "whole")
    return made


def test_a_finished_run_has_all_that_a_user_looks_for(folder):
    out = folder / "whole"
    status = read_status(out)
    assert (status.state, status.step, status.steps) == ("finished", 3, 3)
    assert (status.name, status.task, status.model) == ("made", "segmentation", "made.safetensors")
    entered = find_model(status.registered)
    assert read_recipe(entered)[1] == read_recipe(out / "made.safetensors")[1]
    steps = [r["step"] for r in records(out) if "overlay" in r]
    assert steps == [2, 3]
    lines = [r for r in records(out) if "loss" in r]
    assert [line["left_seconds"] is not None for line in lines] == [True] * 3
    text = (out / "log.txt").read_text(encoding="utf-8")
    assert "3 cases found, 2 to train on, 1 " in text
    assert str(folder) not in text + (out / "log.jsonl").read_text(encoding="utf-8")
    assert (out / "validation.json").is_file()
    assert (out / "card.md").is_file()


@pytest.mark.slow
def test_the_kept_recipe_makes_the_same_model_elsewhere(folder):
    again = finetune(folder / "whole" / RECIPE, folder / "again")
    assert_same_weights(folder / "whole" / "made.safetensors", again)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["looking", "validating"])
def test_a_stop_is_followed_whatever_the_run_does(folder, when, monkeypatch):
    out = folder / when
    monkeypatch.setattr("pumit.training.run.reporter.CHECK_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        if when == "validating":
            answer = SegmentationValidation._answer

            def asking(self: SegmentationValidation, case: Any) -> Any:
                send_command(out, "stop")
                return answer(self, case)

            patch.setattr(SegmentationValidation, "_answer", asking)
        else:
            work = segmentation_run.examine_cases

            def asking_first(*args: Any, **options: Any) -> Any:
                send_command(out, "stop")
                return work(*args, **options)

            patch.setattr(segmentation_run, "examine_cases", asking_first)
        with pytest.raises(RunStopped):
            train(folder, when)
    status = read_status(out)
    assert status.state == "stopped"
    assert step_saved(out / LAST) == (2 if when == "validating" else None)
    train(folder, when)
    assert_same_weights(folder / "whole" / "made.safetensors", out / "made.safetensors")


@pytest.fixture
def short_of_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """Memory for patches of 16 x 32 x 64 voxels, from the second step on."""
    tried: list[tuple[int, ...]] = []
    forward = SegmentationTask.forward

    def limited(self: SegmentationTask, batch: Any) -> Any:
        tried.append(tuple(batch.image.shape))
        if len(tried) > 1 and batch.image[0, 0].numel() > 16 * 32 * 64:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] not enough memory: you tried")
        return forward(self, batch)

    monkeypatch.setattr(SegmentationTask, "forward", limited)
    return tried


@pytest.mark.slow
def test_out_of_memory_makes_patches_smaller_and_goes_on(folder, short_of_memory):
    schedule = {**SCHEDULE, "checkpoint_seconds": 0}
    plan = {"patch_size": [16, 64, 64], "batch_size": 2}
    best = train(folder, "short", schedule=schedule, plan=plan)
    out = folder / "short"
    assert [shape[2:] for shape in short_of_memory] == [(16, 64, 64)] * 2 + [(16, 32, 64)] * 2
    (event,) = [r for r in records(out) if r.get("event") == "smaller patch"]
    assert "16 x 32 x 64 voxels" in event["sentence"]
    assert event["sentence"] in (out / "log.txt").read_text(encoding="utf-8")
    assert [r["step"] for r in records(out) if "loss" in r] == [1, 2, 3]
    assert read_recipe(best)[0]["plan"]["patch_size"] == [16, 32, 64]
    assert yaml.safe_load((out / RECIPE).read_text())["plan"]["patch_size"] == [16, 32, 64]
    # It stays so when the recipe that requested more is given again.
    short_of_memory.clear()
    train(folder, "short", plan=plan, schedule={**schedule, "steps": 4})
    assert [shape[2:] for shape in short_of_memory] == [(16, 32, 64)]


def test_a_disk_that_is_full_at_the_end_is_waited_for(folder, swift, monkeypatch):
    monkeypatch.setattr("pumit.training.run.reporter.ROOM_TRY_SECONDS", 0.1)
    save, tried = segmentation_run.save_checkpoint, []

    def full_at_first(*given: Any) -> str:
        tried.append(given)
        if len(tried) == 1:
            raise DiskFullError("The disk is full.")
        return save(*given)

    monkeypatch.setattr(segmentation_run, "save_checkpoint", full_at_first)
    train(folder, "whole")  # a finished run measures its best model again
    assert len(tried) == 2
    assert read_status(folder / "whole").state == "finished"


@pytest.mark.slow
def test_memory_for_nothing_at_all_is_reported(folder, monkeypatch):
    def fail(self: SegmentationTask, batch: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(SegmentationTask, "forward", fail)
    with pytest.raises(TrainingError, match="activation_checkpointing"):
        train(folder, "nothing")
    status = read_status(folder / "nothing")
    assert status.state == "failed"
    assert "not enough memory" in status.sentence


class KilledOnce:
    """Draws; its first worker process ends as those do that the system takes the memory from."""

    def __init__(self, mark: Path) -> None:
        self.mark, self.main = mark, os.getpid()

    def __call__(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
        if os.getpid() != self.main and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return draw_line(da0, generator, shared)


@pytest.mark.slow
@forks
def test_a_worker_that_the_system_kills_costs_no_run(tmp_path, monkeypatch):
    expected = run_line(tmp_path / "whole")
    draw = KilledOnce(tmp_path / "killed")
    monkeypatch.setattr(LineTask, "worker_draw", lambda self: draw)
    out = tmp_path / "out"
    workers = [2]

    def fewer(short: MemoryShortError) -> str:
        left, sentence = fewer_workers(workers[-1])
        workers.append(left)
        return sentence

    with run_session(out, since=0.0) as reporter:
        state = retry_with_less_memory(
            lambda: train_line(out, reporter, workers=workers[-1]), fewer, reporter
        )
    assert draw.mark.exists()
    (event,) = [r["sentence"] for r in records(out) if r.get("event") == "fewer workers"]
    assert "1 of 2 such processes" in event
    torch.testing.assert_close(state, expected, rtol=0, atol=0)


def test_a_run_whose_cases_are_renamed_goes_on_when_they_are_back(folder, tmp_path, monkeypatch):
    write_pairs(tmp_path / "set", 3)
    validate = SegmentationValidation.__call__

    def away(self: Any, *given: Any, **named: Any) -> Any:
        (tmp_path / "set").rename(tmp_path / "elsewhere")
        return validate(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentationValidation, "__call__", away)
        with pytest.raises(VolumeError, match="case_"):
            train(tmp_path, "mine")
    status = read_status(tmp_path / "mine")
    assert (status.state, "\n" in status.sentence) == ("failed", False)
    assert "case_" in status.sentence
    assert str(tmp_path) not in status.sentence
    assert step_saved(tmp_path / "mine" / LAST) == 2  # nothing that was learnt is lost
    (tmp_path / "elsewhere").rename(tmp_path / "set")
    assert_same_weights(folder / "whole" / "made.safetensors", train(tmp_path, "mine"))


def test_another_recipe_is_refused_and_nothing_is_lost(folder):
    before = (folder / "whole" / LAST).read_bytes()
    with pytest.raises(CheckpointError, match=r"schedule.learning_rate was 0.001, is 0.5"):
        train(folder, "whole", schedule={**SCHEDULE, "learning_rate": 0.5})
    assert (folder / "whole" / LAST).read_bytes() == before
