"""HyMamba's BTCV recipe is the published one, fits its network, and starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from labelled_scans import write_pairs
from mamba_networks import HYMAMBA
from pumit.inference.automatic.segmentation import load_automatic
from pumit.networks.build import RECIPES, build_network
from pumit.networks.mamba_mim.hymamba import HyMamba
from pumit.training.recipes.reader import read_yaml, recipe_names, shipped_recipe
from pumit.training.recipes.schedule import Schedule
from pumit.training.segmentation.data_plan import checked_patch
from pumit.training.segmentation.networks import fitted_sizes, network_sizes, patch_divisor
from pumit.training.train import finetune
from pumit.training.validate import read_segmentation
from pumit.volume import Volume

NAME = "hymamba_btcv"


def recipe_that_ships() -> dict[str, Any]:
    recipe = read_yaml(shipped_recipe(NAME))
    assert isinstance(recipe, dict)
    return recipe


def test_its_settings_are_swin_unetrs() -> None:
    recipe = recipe_that_ships()
    assert NAME in recipe_names()
    read_segmentation(recipe, NAME)
    plan = recipe["plan"]
    assert (plan["spacing_mm"], plan["patch_size"]) == ([2.0, 1.5, 1.5], [96, 96, 96])
    assert plan["intensity"] == {"method": "range", "source": [-175, 250], "target": [0, 1]}
    # As many crops around an organ as elsewhere.
    assert (recipe["balanced_share"], recipe["validation"]["overlap"]) == (0.5, 0.5)
    schedule = Schedule(**recipe["schedule"])
    assert (schedule.optimizer, schedule.learning_rate) == ("adamw", 1e-4)
    assert schedule.steps == 5000 * 24  # epochs of this many cases, 4 crops of each
    assert plan["batch_size"] == 4


def test_it_builds_the_published_network() -> None:
    recipe = recipe_that_ships()
    plan = recipe["plan"]
    d, h, w = plan["spacing_mm"]
    given = fitted_sizes("hymamba", recipe["network_sizes"], (d, h, w), patch=plan["patch_size"])
    patch = checked_patch(plan["patch_size"], patch_divisor("hymamba", given))
    channels, classes = len(recipe["data"]["channels"]), 1 + len(recipe["data"]["classes"])
    sizes = network_sizes("hymamba", given, patch=patch, channels=channels, classes=classes)

    published = RECIPES["hymamba"].sizes
    assert all(np.array_equal(sizes[key], published[key]) for key in sizes)
    with torch.device("meta"):
        network, expected = build_network("hymamba", **sizes), build_network("hymamba")
    assert isinstance(network, HyMamba)
    ours, theirs = ({k: v.shape for k, v in n.state_dict().items()} for n in (network, expected))
    assert ours == theirs


@pytest.mark.slow
def test_it_starts(tmp_path: Path) -> None:
    """Two steps, the network and patches shrunk; odd-sized scans."""
    recipe = recipe_that_ships()
    write_pairs(tmp_path / "set", 3, shape=(17, 30, 28), spacing=(2.0, 1.5, 1.5))
    recipe["network_sizes"] |= {**HYMAMBA, "widths": [4, 4, 4, 6]}
    recipe["plan"] |= {"patch_size": [16, 16, 32], "batch_size": 1}
    recipe["data"] = {
        "folder": "set",
        "channels": ["CT"],
        "classes": {"ball": 1, "box": 2},
        "validation": ["case_0"],
    }
    recipe |= {"workers": 0, "device": "cpu", "threads": 1}
    recipe["validation"] = {"overlap": 0.0, "final_overlap": 0.0}
    recipe["schedule"] |= {"steps": 2, "log_every": 1}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))

    made = finetune(path, tmp_path / "out")

    log = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert [np.isfinite(row["loss"]) for row in log if "loss" in row] == [True, True]
    scan = Volume(np.zeros((9, 37, 45), np.float32), (2.0, 1.5, 1.5))
    assert load_automatic(made, "cpu").segment(scan).labels.shape == (9, 37, 45)
