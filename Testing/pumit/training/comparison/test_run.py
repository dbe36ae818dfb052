"""A comparison trains what is missing, continues after a kill, and names what failed."""

import json
import os
import platform
import signal
from pathlib import Path
from typing import Any

import pytest
from labelled_scans import TINY_SIZES, write_pairs
from made_comparison import RECIPE, PretendedProcesses, written
from pumit.cli.main import main
from pumit.errors import PumitError
from pumit.runs import RunStatus, read_status, send_command, write_status
from pumit.training.comparison import run as comparison
from pumit.training.comparison.results import ROWS, read_rows
from pumit.training.comparison.run import compare, compare_again
from pumit.training.recipes.reader import read_yaml
from pumit.training.run.reporter import RunReporter, RunStopped
from tiny_run import forks, started, wait_for

UNET, SWIN = RECIPE["networks"][0], {"feature_size": 12}


@pytest.fixture(autouse=True)
def data(tmp_path: Path) -> Path:
    return write_pairs(tmp_path / "data", 3)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> type[PretendedProcesses]:
    """Trainings that pretend, and a page."""
    PretendedProcesses.forget()
    monkeypatch.setattr(comparison, "TrainingProcesses", PretendedProcesses)
    monkeypatch.setattr(comparison, "POLL_SECONDS", 0.0)
    return PretendedProcesses


@pytest.fixture
def pretended(
    drawn: type[PretendedProcesses], monkeypatch: pytest.MonkeyPatch
) -> type[PretendedProcesses]:
    """The same without the page, which takes a second to draw."""
    monkeypatch.setattr(comparison, "_write_page", lambda output, found: True)
    return drawn


@forks
@pytest.mark.slow
def test_networks_are_trained_alike_and_go_on_after_a_kill(tmp_path, monkeypatch):
    pumit = {"network": "pumit_segmentation_small", "network_sizes": TINY_SIZES}
    changes: dict[str, Any] = {"networks": [{"name": "PUMIT", **pumit}, RECIPE["networks"][0]]}
    changes |= {"plan": None, "seconds": None, "seeds": [5]}
    changes |= {"schedule": {"steps": 2, "warm_up": 1, "log_every": 1, "precision": "fp32"}}
    path = written(tmp_path, **changes, processes=1)
    out = tmp_path / "out"
    runs = [out / "runs" / name for name in ("PUMIT_5", "U-Net_5")]
    process = started(lambda: compare(path, out))
    wait_for(lambda: read_status(runs[0]), 300.0)
    os.kill(process.pid, signal.SIGKILL)
    process.join()

    written(tmp_path, **changes, processes=2)
    found = compare(path, out)
    assert (found.done, found.failures) == (2, {})
    rows = read_rows(out / ROWS)
    assert [(r.name, r.seed) for r in rows] == [("PUMIT", 5), ("U-Net", 5)]
    for row in rows:
        assert row.steps == 2
        assert row.processor_seconds > 0
        assert row.seconds > 0
        assert 0.1 < row.peak_memory_gib < 8
        assert row.prediction_seconds > 0
        assert {(c.case, c.label) for c in row.cases} == {
            (case, label) for case in ("case_1", "case_2") for label in ("ball", "box")
        }
    recipes = [read_yaml(run / "recipe.yaml") for run in runs]
    for key in ("plan", "data", "augmentation", "validation"):
        assert all(recipe[key] == recipes[0][key] for recipe in recipes)
    # A multiple of what both networks need: 32 of the tiny one in the plane, 16 of the U-Net.
    patch = recipes[0]["plan"]["patch_size"]
    assert patch[0] % 16 == patch[1] % 32 == patch[2] % 32 == 0
    assert (out / "index.html").stat().st_size > 10_000

    monkeypatch.setattr(comparison, "TrainingProcesses", PretendedProcesses)
    PretendedProcesses.forget()
    assert compare(path, out).done == 2
    assert PretendedProcesses.started == []


def test_seed_after_seed_so_many_at_a_time(tmp_path, pretended):
    out = tmp_path / "out"
    with pytest.raises(PumitError, match=r"'narrow'; .* U-Net, wide"):
        compare(written(tmp_path), out, only=["narrow"])
    compare(written(tmp_path), tmp_path / "some", only=["wide"])
    assert (pretended.started, pretended.most) == (["wide, seed 0", "wide, seed 5"], 1)
    pretended.forget()
    found = compare(written(tmp_path, processes=3), out)
    assert pretended.started == ["U-Net, seed 0", "wide, seed 0", "U-Net, seed 5", "wide, seed 5"]
    assert (found.done, pretended.most) == (4, 3)
    status = read_status(out)
    assert (status.state, status.task) == ("finished", "comparison")
    row = read_rows(out / ROWS)[-1]
    assert (row.name, row.seed, row.steps) == ("wide", 5, 45)
    assert (row.processor_seconds, row.seconds) == (30.5, 44.0)
    assert (row.peak_memory_gib, row.parameters) == (0.75, 1234)
    recipe = read_yaml(out / "recipes" / "wide_5.yaml")
    assert recipe["schedule"]["learning_rate"] == 0.01
    assert recipe["schedule"]["clock"] == "processor"
    assert (recipe["seed"], recipe["register"], recipe["workers"]) == (5, False, 0)
    assert recipe["data"]["training"] == ["case_0"]
    facts = (out / "comparison.json").read_text()
    assert str(tmp_path) not in facts
    assert platform.node() not in json.loads(facts)["machine"].values()


def test_what_fails_is_named_and_the_others_go_on(tmp_path, drawn, capsys):
    drawn.fails = {"U-Net, seed 0": "The loss is not finite."}
    command = ["compare", str(written(tmp_path)), "-o", str(tmp_path / "out")]
    assert main(command) == 2
    assert "U-Net, seed 0 failed: The loss" in capsys.readouterr().err
    assert len(read_rows(tmp_path / "out" / ROWS)) == 3
    page = (tmp_path / "out" / "index.html").read_text()
    assert "not on this page: U-Net, seed 0." in page
    drawn.forget()
    assert main(command) == 0
    assert drawn.started == ["U-Net, seed 0"]


def test_a_pause_reaches_a_training_that_is_only_starting(tmp_path, pretended, monkeypatch):
    monkeypatch.setattr(comparison, "RESEND_SECONDS", 0.01)
    out = tmp_path / "out"
    monkeypatch.setattr(pretended, "ended", lambda self: send_command(out, "pause") or ())

    def paused(reporter: RunReporter) -> str:
        wait_for(lambda: len(pretended.stops) > 1, 20.0)  # the first one was lost
        assert set(pretended.stops) == {"pause"}
        return "stop"

    monkeypatch.setattr(RunReporter, "pause", paused)
    with pytest.raises(RunStopped):
        compare(written(tmp_path), out)
    assert pretended.stops[-1] == "stop"


def test_a_stop_reaches_the_trainings(tmp_path, pretended, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr(pretended, "ended", lambda self: send_command(out, "stop") or ())
    with pytest.raises(RunStopped):
        compare(written(tmp_path), out)
    assert pretended.stops == ["stop"]
    status = read_status(out)
    assert status.state == "stopped"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": 60}, "seconds was 30.0, is 60.0"),
        ({"plan": {"patch_size": [16, 32, 32], "batch_size": 3}}, "batch_size was 2, is 3"),
    ],
)
def test_trainings_of_two_recipes_are_not_mixed(tmp_path, pretended, changes, message):
    compare(written(tmp_path), tmp_path / "out")
    with pytest.raises(PumitError, match=message):
        compare(written(tmp_path, **changes), tmp_path / "out")
    more = [*RECIPE["networks"], {"name": "third", "network": "basic_unet"}]
    again = compare(written(tmp_path, networks=more, processes=2), tmp_path / "out")
    assert again.done == 6


def test_the_recipe_in_the_folder_continues_with_its_initial_weights(
    tmp_path, pretended, monkeypatch
):
    monkeypatch.setattr("pumit.training.comparison.plan.load_initial_weights", lambda *_: None)
    (tmp_path / "first.safetensors").touch()
    path, out = written(tmp_path, networks=[{**UNET, "initial": "first.safetensors"}]), tmp_path
    compare(path, out / "out")
    assert compare(out / "out" / "recipe.yaml", out / "out").done == 2
    assert len(pretended.started) == 2
    assert read_status(out / "out").name == "out"


def test_a_training_and_a_comparison_do_not_share_a_folder(tmp_path, pretended, capsys):
    path, out, run = written(tmp_path), tmp_path / "out", tmp_path / "run"
    compare(path, out)
    run.mkdir()
    for name in ("recipe.yaml", "started.json"):
        (run / name).write_text("name: mine")
    write_status(run, RunStatus("stopped", name="mine", task="segmentation"))
    for command, config, folder, sentence in (
        ("compare", path, run, "run holds a training, no comparison; choose another folder"),
        ("train", "segmentation", out, "out holds a comparison; choose another folder"),
        ("pretrain", "default", out, "out holds a comparison; choose another folder"),
    ):
        assert main([command, str(config), "-o", str(folder)]) == 2
        assert sentence in capsys.readouterr().err
    assert (run / "recipe.yaml").read_text() == "name: mine"
    assert [read_status(f).task for f in (run, out)] == ["segmentation", "comparison"]
    assert main(["models", "add", str(out)]) == 2
    assert "out holds a comparison; name one of its trainings" in capsys.readouterr().err


def test_a_training_that_has_not_begun_keeps_its_recipe(tmp_path, pretended):
    path, run = written(tmp_path), tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text("name: mine")
    write_status(run, RunStatus("failed", name="mine", task="segmentation"))
    with pytest.raises(PumitError, match="run holds a training, no comparison"):
        compare(path, run)
    assert (run / "recipe.yaml").read_text() == "name: mine"


def test_a_comparison_that_has_not_begun_keeps_its_recipe(tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text("name: mine")
    write_status(tmp_path, RunStatus("failed", name="mine", task="comparison"))
    assert main(["train", "segmentation", "-o", str(tmp_path)]) == 2
    assert "holds a comparison; choose another folder" in capsys.readouterr().err
    assert read_status(tmp_path).task == "comparison"


def test_the_command_of_a_recipe_is_named(tmp_path, capsys):
    path, out = str(written(tmp_path)), str(tmp_path / "out")
    for command in (["train", path], ["pretrain", path], ["plan", path], ["plan", path, "--check"]):
        assert main([*command, "-o", out]) == 2
        assert "compare.yaml is a recipe of `pumit compare`." in capsys.readouterr().err
    assert main(["compare", "segmentation", "-o", out]) == 2
    assert "segmentation.yaml is no recipe of `pumit compare`: it lists no networks" in (
        capsys.readouterr().err
    )


def test_the_page_alone_is_made_without_the_data(tmp_path, data, drawn):
    path, out = written(tmp_path), tmp_path / "out"
    with pytest.raises(PumitError, match=r"compare\.yaml is finished in out"):
        compare_again(path, out)
    compare(path, out)
    before = (out / "index.html").read_text()
    (out / "index.html").unlink()
    data.rename(tmp_path / "elsewhere")
    compare_again(path, out)
    assert (out / "index.html").read_text() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": {"patch_size": [16, 24, 32]}}, r"U-Net: plan\.patch_size"),
        (
            {"networks": [UNET, {"name": "Swin", "network": "swin_unetr", "network_sizes": SWIN}]},
            r"Swin: plan\.patch_size \[16, 32, 32\] does not fit",
        ),
        ({"data": {**RECIPE["data"], "folder": "nowhere"}}, "nowhere"),
        ({"data": {**RECIPE["data"], "validation": 0}}, "data.validation"),
        ({"networks": [{**UNET, "initial": "none.safetensors"}]}, "U-Net: .*none"),
        ({"device": "cuda:77"}, "not available"),
    ],
)
def test_what_cannot_be_is_reported_before_anything_is_trained(
    tmp_path, pretended, changes, message
):
    with pytest.raises(PumitError, match=message):
        compare(written(tmp_path, **changes), tmp_path / "out")
    assert pretended.started == []
    assert not (tmp_path / "out" / "runs").exists()
    assert not (tmp_path / "out" / ROWS).exists()
