"""The published pre-training recipes start as they are, given data.

Networks, crops and batches are shrunk here, so that a step takes a second on a CPU; that the
unshrunk sizes are the published ones is pinned in `networks/test_build.py`. The perceptual loss is
switched off and EVA-02's file left out: both are tested where they live.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
import yaml
from pumit.models.checkpoint import load_checkpoint
from pumit.training.pretrain import pretrain, read_recipe_file
from pumit.training.recipes.reader import read_yaml, recipe_names, shipped_recipe
from pumit.training.recipes.schedule import Schedule

PRETRAINED = ("pumit_tokenizer", "pumit_vit")
SHRUNK: dict[str, Any] = {
    "crop": {"depth": 16, "in_plane": 32},
    "batch_size": 1,
    "device": "cpu",
    "threads": 1,
    "workers": 0,
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two volumes and a picture, in their own folders."""
    rng = np.random.default_rng(0)
    for name, shape, spacing in (
        ("a/thin.nii.gz", (24, 40, 40), (1.0, 1.0, 1.0)),
        ("b/c/thick.nii.gz", (10, 48, 48), (1.0, 1.0, 6.0)),
    ):
        (tmp_path / "data" / name).parent.mkdir(parents=True)
        image = SimpleITK.GetImageFromArray(rng.integers(1, 900, shape).astype(np.int16))
        image.SetSpacing(spacing)
        SimpleITK.WriteImage(image, str(tmp_path / "data" / name))
    return tmp_path / "data"


def start(
    name: str, tmp_path: Path, data: Path, changes: dict[str, Any], *leave_out: str
) -> tuple[Path, list[dict[str, Any]]]:
    recipe = read_yaml(shipped_recipe(name))
    recipe = {**recipe, **SHRUNK, "cache": str(tmp_path / "cache"), **changes}
    for key in leave_out:
        del recipe[key]
    recipe["schedule"] = {**recipe["schedule"], "log_every": 1}
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    model = pretrain(path, tmp_path / name, overrides={"steps": 2}, real_folder=data)
    log = (tmp_path / name / "log.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in log]
    return model, [record for record in records if "loss" in record]


def test_the_published_tokenizer_and_vit_start(tmp_path: Path, data: Path) -> None:
    small = {"widths": [8, 8, 16], "groups": 4}
    changes = {
        "network_sizes": small,
        "discriminator_sizes": {"widths": [4, 8, 8], "groups": 4},
        "perceptual": "none",
    }
    tokenizer, lines = start("pumit_tokenizer", tmp_path, data, changes)
    assert [line["step"] for line in lines] == [1, 2]
    assert all(np.isfinite(line["loss"]) and line["discriminator"] > 0 for line in lines)
    assert len(list((tmp_path / "cache").rglob("levels.npy"))) > 0

    sizes = {"dim": 16, "depth": 2, "num_heads": 2, "hidden": 24, "position_table": [1, 2, 2]}
    changes = {"network_sizes": sizes, "tokenizer": str(tokenizer)}
    vit, lines = start("pumit_vit", tmp_path, data, changes, "eva02")
    assert all(line["kl"] > 0 for line in lines)
    assert load_checkpoint(vit).recipe["tokenizer"]["name"] == "pumit_tokenizer"


@pytest.mark.parametrize("name", [*PRETRAINED, "tokenizer", "vit"])
def test_recipes_that_ship_can_be_read(name: str) -> None:
    recipe = read_recipe_file(shipped_recipe(name))
    assert name in recipe_names()
    Schedule(**recipe.schedule.model_dump())


def test_the_published_settings_are_the_papers() -> None:
    tokenizer, vit = (read_yaml(shipped_recipe(name)) for name in PRETRAINED)
    assert tokenizer["network"] == "pumit_tokenizer"
    assert (tokenizer["crop"]["depth"], vit["crop"]["depth"]) == (64, 80)
    assert (tokenizer["loss"]["even"], tokenizer["loss"]["sharp"]) == (0.03, 1.0)
    assert (tokenizer["loss"]["gate"], tokenizer["loss"]["discriminator_rate"]) == (0.025, 10)
    assert (tokenizer["schedule"]["learning_rate"], vit["schedule"]["learning_rate"]) == (
        1e-4,
        2e-5,
    )
    assert (vit["mask_ratio"], vit["schedule"]["clip"], vit["schedule"]["steps"]) == (
        0.55,
        0.5,
        3e5,
    )
    # Global batches of 48 and 84 on the six GPUs that the first lines name.
    assert (6 * tokenizer["batch_size"], 6 * vit["batch_size"]) == (48, 84)
