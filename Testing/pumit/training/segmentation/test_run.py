"""`pumit train` makes what `pumit predict` uses, resumes, and says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pumit
import pytest
import torch
import yaml
from labelled_scans import TINY_SIZES, ball_and_box, write, write_pairs
from pumit.errors import CheckpointError, PumitError, TrainingError
from pumit.export.classes import class_colors
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.checkpoint import load_checkpoint, read_recipe, save_checkpoint
from pumit.networks.build import build_network
from pumit.training.train import finetune
from pumit.volume import Volume

RECIPE: dict[str, Any] = {
    "task": "segmentation",
    "name": "made",
    "version": "7",
    "network": "pumit_segmentation_small",
    "network_sizes": TINY_SIZES,
    "data": {"folder": "set", "classes": {"ball": 1, "box": 2}},
    "plan": {"patch_size": [16, 32, 32], "batch_size": 2},
    "augmentation": False,
    "device": "cpu",
    "threads": 1,
    "schedule": {"steps": 40, "learning_rate": 3e-2, "warm_up": 4, "average": 0.8},
}


def run(
    folder: Path, output: str = "out", *, overrides: Mapping[str, Any] | None = None, **changes: Any
) -> Path:
    """Train in `folder` with some keys changed; a value None leaves a key out."""
    recipe = {k: v for k, v in {**RECIPE, **changes}.items() if v is not None}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return finetune(folder / "recipe.yaml", folder / output, changes={"schedule": overrides or {}})


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def one_step(**more: Any) -> dict[str, Any]:
    return {"steps": 1, "log_every": 1, **more}


@pytest.mark.slow
def test_trained_model_predicts_other_scans(tmp_path: Path) -> None:
    write_pairs(tmp_path / "set", 5)
    rows = [{"name": "ball", "value": 1, "terminology": "liver"}, {"name": "box", "value": 2}]
    data = {"folder": "set", "classes": rows, "validation": ["case_4"]}
    best = run(tmp_path, data=data, card={"licence": "none"}, overrides={"validate_every": 20})
    assert best == tmp_path / "out" / "made.safetensors"
    # On a scan that no one has seen, stored otherwise.
    image, labels = ball_and_box(9)
    volume = Volume(image.transpose(1, 2, 0), (1.0, 1.0, 2.0))
    model = load_automatic(best, "cpu")
    answer = model.segment(volume).labels.transpose(2, 0, 1)
    by_one_call = pumit.predict(volume.array, best, spacing_mm=volume.spacing_mm, device="cpu")
    np.testing.assert_array_equal(by_one_call.labels.transpose(2, 0, 1), answer)
    # The box takes longer to learn.
    mask, truth = answer == 1, labels == 1
    assert 2 * (mask & truth).sum() / (mask.sum() + truth.sum()) > 0.75
    assert [(c.name, c.terminology) for c in model.classes] == [("ball", "liver"), ("box", "")]
    recipe, _ = read_recipe(best)
    assert recipe["plan"]["patch_size"] == [16, 32, 32]
    assert recipe["version"] == "7"
    assert recipe["licence"] == "none"
    assert recipe["training"]["cases"] == 4
    assert recipe["metrics"]["dice_ball"] > 0.75
    log = records(tmp_path / "out")
    assert log[0]["data"]["validation"] == ["case_4"]
    colors = class_colors(model.classes)  # a curve has the colour of its class in the pictures
    assert log[0]["data"]["colors"] == {name: list(color) for name, color in colors.items()}
    assert log[1]["plan"]["spacing_mm"] == [2.0, 1.0, 1.0]
    assert [r["step"] for r in log if "validation" in r] == [20, 40]
    judged = json.loads((tmp_path / "out" / "validation.json").read_text())
    assert [(r["case"], r["label"]) for r in judged["rows"]] == [
        ("case_4", "ball"),
        ("case_4", "box"),
    ]
    assert judged["overlap"] == 0.75
    assert judged["mean"]["ball"]["hd95_mm"]["mean"] < 10
    assert (tmp_path / "out" / "made_last.safetensors").is_file()


def test_data_set_of_one_case_trains_and_validates_on_it(tmp_path: Path) -> None:
    write_pairs(tmp_path / "set", 1)
    run(tmp_path, schedule=one_step())
    logged = records(tmp_path / "out")[0]["data"]
    assert logged["training"] == logged["validation"] == ["case_0"]
    assert "only case" in logged["warnings"][0]


def test_validation_without_any_class_still_makes_a_model(tmp_path: Path) -> None:
    write_pairs(tmp_path / "set", 3)
    write(tmp_path / "set" / "labels" / "case_2.nii.gz", np.zeros_like(ball_and_box(2)[1]))
    data = {**RECIPE["data"], "validation": ["case_2"]}
    best = run(tmp_path, data=data, schedule=one_step(learning_rate=0.0))
    assert load_automatic(best, "cpu").name == "made"
    assert "case_2: its label map is empty" in records(tmp_path / "out")[0]["data"]["warnings"]


def test_loss_that_is_not_finite_names_its_cases(tmp_path: Path) -> None:
    write_pairs(tmp_path / "set", 2)
    data = {**RECIPE["data"], "validation": ["case_1"]}
    schedule = {"steps": 20, "learning_rate": 1e30, "warm_up": 0, "clip": 0.0}
    with pytest.raises(TrainingError, match="the loss of case_0, case_0 "):
        run(tmp_path, data=data, schedule=schedule)


def test_full_gpu_is_reported_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr("pumit.training.loop.fit.train", fail)
    write_pairs(tmp_path / "set", 2)
    with pytest.raises(TrainingError, match=r"not enough memory.*activation_checkpointing"):
        run(tmp_path)


def test_pretrained_vit_begins_the_network(tmp_path: Path) -> None:
    write_pairs(tmp_path / "set", 2)
    vit = {k: v for k, v in TINY_SIZES.items() if k in ("dim", "depth", "num_heads", "hidden")}
    sizes = {**vit, "position_table": [3, 3, 3], "num_tokens": 8}
    torch.manual_seed(5)
    state = build_network("pumit_vit_small_mim", **sizes).state_dict()
    recipe = {"name": "v", "network": "pumit_vit_small_mim", "sizes": sizes}
    save_checkpoint(tmp_path / "vit.safetensors", state, recipe)
    schedule = one_step(learning_rate=0.0)
    best = run(tmp_path, initial="vit.safetensors", schedule=schedule)
    made = load_checkpoint(best).state
    name = "vit.blocks.0.feed_forward.w1.weight"
    names = [k for k in made if k.startswith("vit.blocks.0") and k.endswith("weight")]
    assert names, name
    for key in names:
        torch.testing.assert_close(made[key].float(), state[key], atol=1e-3, rtol=1e-2)
    # ... and a segmentation network another one, but for its other classes.
    data = {"folder": "set", "classes": [{"name": "ball", "value": 1}, {"name": "b", "value": 2}]}
    again = run(tmp_path, "second", initial=str(best), data=data, schedule=schedule)
    for key, value in load_checkpoint(again).state.items():
        torch.testing.assert_close(value, made[key], msg=key)
    with pytest.raises(CheckpointError, match="does not fit"):
        run(
            tmp_path,
            "third",
            initial="vit.safetensors",
            network_sizes={**TINY_SIZES, "dim": 48},
            schedule=schedule,
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shedule": {}}, "did you mean 'schedule'"),
        ({"schedule": {"step": 3}}, "did you mean 'steps'"),
        ({"task": "detection"}, "segmentation or classification"),
        ({"network": "pumit_tokenizer"}, "cannot be trained to segment"),
        ({"network_sizes": {"dims": 3}}, "dim"),
        ({"data": None}, "needs the key data"),
        ({"data": {"folder": "set", "clases": {}}}, "did you mean 'classes'"),
        ({"data": {"folder": "set", "classes": {"ball": 1}}}, "label values 2"),
        ({"plan": {"patch_size": [16, 30, 32]}}, r"nearest is \[16, 32, 32\]"),
        ({"plan": {"orientation": "upright"}}, "orientation in plan"),
        ({"balanced_share": 1.5}, "balanced_share"),
        ({"validation": {"overlaps": 0.5}}, "did you mean 'overlap'"),
        ({"initial": "nothing.safetensors"}, "nothing.safetensors"),
        ({"name": "../x"}, "model's file"),
        ({"name": "last"}, "model's file"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_recipe_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    write_pairs(tmp_path / "set", 2)
    with pytest.raises(PumitError, match=message):
        run(tmp_path, **changes)
    assert not (tmp_path / "out").exists()
