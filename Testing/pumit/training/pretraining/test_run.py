"""A pre-training is a run like others: held, followed, paused, stopped, finished, described."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pumit.models.checkpoint import load_checkpoint
from pumit.runs import list_runs, read_log, read_status, send_command
from pumit.training.pretrain import pretrain
from pumit.training.promptable.task import PromptableTask
from pumit.training.run.reporter import RunStopped
from pumit.training.train import finetune
from safetensors.torch import load_file
from tiny_run import during_step

STEPS = 3
pytestmark = pytest.mark.usefixtures("swift")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_sizes: dict[str, Any]) -> Path:
    content = {
        "name": "tiny",
        "network_sizes": {**tiny_sizes, "widths": list(tiny_sizes["widths"])},
        "seed": 3,
        "threads": 1,
        "batch_size": 2,
        "field_sizes": {16: 0.5, 24: 0.5},
        "device": "cpu",
        "schedule": {
            "steps": STEPS,
            "warm_up": 1,
            "decay": 1,
            "log_every": 1,
            "precision": "fp32",
            "checkpoint_seconds": 0.0,
        },
    }
    path = tmp_path_factory.mktemp("pretraining") / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def whole(recipe: Path) -> Path:
    """A run that no one disturbed."""
    pretrain(recipe, recipe.with_name("whole"))
    return recipe.with_name("whole")


def losses(folder: Path) -> list[float]:
    return [record["loss"] for record in read_log(folder)[0] if "loss" in record]


def assert_alike(ours: Path, theirs: Path) -> None:
    assert losses(ours) == losses(theirs)
    for name in ("last.safetensors", "tiny.safetensors"):
        one, other = load_file(ours / name), load_file(theirs / name)
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_folder_of_an_earlier_version_goes_on_exactly(recipe, whole, tmp_path):
    """It has no status and no recipe."""
    parts = tmp_path / "parts"
    pretrain(recipe, parts, changes={"schedule": {"seconds": 0}})
    for path in parts.iterdir():
        if path.name not in ("last.safetensors", "log.jsonl", "tiny.safetensors"):
            path.unlink()
    pretrain(recipe, parts)
    assert_alike(parts, whole)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_stopped_run_is_taken_up_by_the_recipe_in_its_folder(
    recipe, whole, tmp_path, monkeypatch
):
    parts = tmp_path / "parts"
    with monkeypatch.context() as patch:
        during_step(patch, PromptableTask, 2, lambda: send_command(parts, "stop"))
        with pytest.raises(RunStopped, match="Step 2 is saved"):
            pretrain(recipe, parts)
    status = read_status(parts)
    assert (status.state, status.task, status.step) == ("stopped", "pretraining", 2)
    finetune(parts / "recipe.yaml", parts)
    assert_alike(parts, whole)


@pytest.mark.usefixtures("undrawn")
def test_a_finished_run_keeps_the_last_weights(recipe, tmp_path, monkeypatch):
    during_step(monkeypatch, PromptableTask, 2, lambda: send_command(tmp_path / "run", "finish"))
    model = pretrain(recipe, tmp_path / "run")
    assert load_checkpoint(model).recipe["step"] == 2
    status = read_status(tmp_path / "run")
    assert (status.state, status.best_step, status.model) == ("finished", 2, "tiny.safetensors")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_stopped_run_is_finished_without_another_step(recipe, tmp_path):
    pretrain(recipe, tmp_path / "run", changes={"schedule": {"seconds": 0}})
    model = pretrain(recipe, tmp_path / "run", finish=True)
    assert load_checkpoint(model).recipe["step"] == 1


def test_a_card_tells_what_it_is(recipe, whole, tmp_path):
    model = whole / "tiny.safetensors"
    card = (whole / "card.md").read_text()
    assert "no validation cases" in card
    assert f"weights of step {STEPS}, averaged" in card
    assert "| Initial weights | random weights |" in card
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump({**yaml.safe_load(recipe.read_text()), "initial": str(model)}))
    pretrain(again, tmp_path / "again", changes={"schedule": {"steps": 1}})
    card = (tmp_path / "again" / "card.md").read_text()
    assert f"| Initial weights | weights {load_checkpoint(model).sha256[:16]} |" in card
    status = read_status(tmp_path / "again")
    assert status.registered is None  # it is there for further trainings
    assert [folder.name for folder, _ in list_runs(tmp_path)] == ["again"]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_memory_that_does_not_suffice_halves_the_batch(recipe, tmp_path, monkeypatch):
    def fail() -> None:
        raise MemoryError

    during_step(monkeypatch, PromptableTask, 2, fail)
    pretrain(recipe, tmp_path / "run")
    said = [str(record.get("sentence")) for record in read_log(tmp_path / "run")[0]]
    assert any("1 of 2 images" in sentence for sentence in said)
    assert read_log(tmp_path / "run")[0][-2]["step"] == STEPS
