"""Swin UNETR's recipes are the published ones and fit their networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pumit.networks.build import RECIPES, build_network
from pumit.training.pretrain import read_recipe_file
from pumit.training.recipes.reader import read_yaml, recipe_names, shipped_recipe
from pumit.training.recipes.schedule import Schedule
from pumit.training.segmentation.data_plan import checked_patch
from pumit.training.segmentation.networks import fitted_sizes, network_sizes, patch_divisor
from pumit.training.validate import read_segmentation


def recipe_of(name: str) -> dict[str, Any]:
    assert name in recipe_names()
    recipe = read_yaml(shipped_recipe(name))
    assert isinstance(recipe, dict)
    return recipe


@pytest.mark.parametrize(
    ("name", "outputs", "parameters"),
    [("swin_btcv", 14, 62_187_296), ("swin_brats", 3, 62_191_941)],
)
def test_they_build_the_published_networks(name: str, outputs: int, parameters: int) -> None:
    recipe = recipe_of(name)
    read_segmentation(recipe, name)
    plan, channels = recipe["plan"], len(recipe["data"]["channels"])
    given = fitted_sizes("swin_unetr", recipe["network_sizes"], tuple(plan["spacing_mm"]))
    patch = checked_patch(plan["patch_size"], patch_divisor("swin_unetr", given))
    sizes = network_sizes("swin_unetr", given, patch=patch, channels=channels, classes=outputs)
    with torch.device("meta"):
        network = build_network("swin_unetr", **sizes)
    assert sum(p.numel() for p in network.parameters()) == parameters


def test_their_settings_are_the_papers() -> None:
    btcv, brats = recipe_of("swin_btcv"), recipe_of("swin_brats")
    assert btcv["plan"]["spacing_mm"] == [2.0, 1.5, 1.5]
    assert (btcv["plan"]["patch_size"], btcv["plan"]["batch_size"]) == ([96] * 3, 4)
    assert btcv["plan"]["intensity"]["source"] == [-175, 250]
    assert btcv["plan"]["intensity"]["target"] == [0, 1]
    assert len(btcv["data"]["classes"]) == 13
    assert brats["plan"]["patch_size"] == [128] * 3
    assert brats["plan"]["intensity"] == {"method": "zscore", "above_minimum": True}
    assert list(brats["data"]["classes"].values()) == [[1, 4], [1, 2, 4], [4]]
    for recipe in (btcv, brats):
        schedule = Schedule(**recipe["schedule"])
        assert (schedule.optimizer, schedule.learning_rate) == ("adamw", 1e-4)
        assert schedule.weight_decay == 1e-5
    assert brats["schedule"]["warm_up"] / brats["schedule"]["steps"] == pytest.approx(50 / 300)
    assert btcv["schedule"]["warm_up"] / btcv["schedule"]["steps"] == pytest.approx(50 / 5000)


@pytest.mark.parametrize("name", ["swin_ssl", "swin_ssl_small"])
def test_pretraining_recipes_can_be_read(name: str) -> None:
    recipe = read_recipe_file(shipped_recipe(name))
    assert name in recipe_names()
    Schedule(**recipe.schedule.model_dump())
    assert recipe.network == name
    assert set(recipe.network_sizes) <= set(RECIPES[name].sizes)


def test_the_published_pretraining_is_the_papers() -> None:
    recipe = recipe_of("swin_ssl")
    assert recipe["crop"] == {"depth": 96, "in_plane": 96}
    schedule = Schedule(**recipe["schedule"])
    assert (schedule.steps, schedule.warm_up) == (100_000, 500)
    assert (schedule.learning_rate, schedule.weight_decay) == (6e-6, 0.1)
    assert recipe["batch_size"] == 2  # on each of eight GPUs
