"""`pumit pretrain` trains from a recipe file, or refuses in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pumit.cli.shared.training_options import next_step
from pumit.models.checkpoint import save_checkpoint

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture
def recipe(tmp_path: Path, tiny_sizes: dict[str, Any]) -> Path:
    sizes = {**tiny_sizes, "widths": list(tiny_sizes["widths"])}
    content = {"name": "tiny", "network_sizes": sizes, "batch_size": 1, "threads": 1}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({**content, "schedule": {"steps": 50, "log_every": 1}}))
    return path


def test_a_run_of_one_step_is_a_run_like_others(run, recipe, tmp_path):
    ran = run("pretrain", recipe, "--steps", "1", "-o", tmp_path / "run")
    records = [json.loads(line) for line in ran.out.splitlines()]
    assert [record["step"] for record in records if "loss" in record] == [1]
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names == {
        *("last.safetensors", "log.jsonl", "log.txt", "recipe.yaml", "started.json"),
        *("tiny.safetensors", "status.json", "card.md", "card.json", "case_numbers.json"),
        *("curves.png", "lock"),
    }
    listed = run("runs", "list", tmp_path).out
    assert all(word in listed for word in ("tiny", "pretraining", "finished"))
    # As PUMITTrain takes up a run.
    run("train", tmp_path / "run" / "recipe.yaml", "--steps", "2", "-o", tmp_path / "run")
    assert "Step 2 of 2" in (tmp_path / "run" / "log.txt").read_text()


def test_wrong_recipes_are_one_line(refused, recipe, tmp_path):
    assert "no recipe" in refused("pretrain", "nonsense", "-o", tmp_path / "run")
    assert "no recipe" in refused("pretrain", tmp_path / "none.yaml", "-o", tmp_path / "run")
    assert "steps" in refused("pretrain", recipe, "--steps", "-1", "-o", tmp_path / "run")
    assert "folder" in refused("pretrain", recipe, "-o", recipe / "run")
    recipe.write_text("bacth_size: 3")
    assert "batch_size" in refused("pretrain", recipe, "-o", tmp_path / "run")


def test_missing_real_scans_are_one_line(refused, tmp_path):
    line = refused(
        "pretrain", "default", "--real-folder", tmp_path / "none", "-o", tmp_path / "run"
    )
    assert "--on none is not a folder" in line
    (tmp_path / "empty").mkdir()
    line = refused("pretrain", "tokenizer", "--on", tmp_path / "empty", "-o", tmp_path / "run")
    assert "There is no scan to learn from in empty" in line


def test_without_scans_or_recipe_it_says_what_to_give(refused, tmp_path):
    assert "with --on FOLDER" in refused("pretrain", "-o", tmp_path / "run")
    line = refused("pretrain", "vit", "--on", tmp_path, "--data", tmp_path, "-o", tmp_path / "run")
    assert "--data needs --on" in line


@pytest.mark.parametrize(
    ("network", "sizes", "command"),
    [
        ("pumit_vit_small_mim", {}, "train segmentation --data LABELLED --initial m -o OUT"),
        ("pumit_vit_small_mim", {"dim": 96}, "train RECIPE --data LABELLED --initial m -o OUT"),
        ("pumit_vit_b_mim", {}, "train RECIPE --data LABELLED --initial m -o OUT"),
        ("swin_ssl_small", {}, "train RECIPE --data LABELLED --initial m -o OUT"),
        ("pumit_tokenizer_small", {}, "reconstruct SCAN -o OUT.nii.gz --model m"),
        ("promptable", {}, "segment SCAN --point=R,A,S -o OUT.seg.nrrd --model m"),
    ],
)
def test_the_next_step_is_one_that_the_model_can_do(tmp_path, monkeypatch, network, sizes, command):
    monkeypatch.chdir(tmp_path)
    kind = {"kind": "encoder"} if network == "swin_ssl_small" else {}  # as its training writes
    recipe = {"network": network, "sizes": sizes, **kind}
    save_checkpoint(tmp_path / "m", {"w": torch.zeros(1)}, recipe)
    assert next_step(tmp_path / "m") == f"Next: pumit {command}"
    (tmp_path / "m").rename(tmp_path / "my model")
    named = next_step(tmp_path / "my model")
    assert '"my model"' in named
    assert named.count('"') == 2


def test_patterns_of_a_recipe_are_below_the_folder_that_is_given(refused, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    (tmp_path / "scans").mkdir()
    for pattern in ("absent*.nii.gz", "/absent*.nii.gz"):
        content = {"network": "pumit_tokenizer_small", "real_images": [pattern]}
        recipe.write_text(yaml.safe_dump(content))
        line = refused("pretrain", recipe, "--on", tmp_path / "scans", "-o", tmp_path / "run")
        assert f"No image matches '{pattern}' in scans" in line


def test_a_tokenizer_of_grey_images_is_refused(refused, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    for network in ("pumit_tokenizer_small", "pumit_vit_small_mim"):
        content = {"network": network, "network_sizes": {"in_channels": 1}}
        recipe.write_text(yaml.safe_dump(content))
        assert "in_channels of" in refused("pretrain", recipe, "-o", tmp_path / "run")
