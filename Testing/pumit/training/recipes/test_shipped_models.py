"""The recipe of an automatic model that ships leads to the network that ships."""

from __future__ import annotations

import pytest
from pumit.models.checkpoint import load_checkpoint
from pumit.models.index import find_model
from pumit.training.recipes.reader import read_yaml, shipped_recipe
from pumit.training.segmentation.networks import fitted_sizes, network_sizes


@pytest.mark.parametrize("name", ["abdomen-ct", "abdomen-mr", "heart-mr", "hippocampus-mr"])
def test_a_recipe_gives_the_network_that_ships(name: str) -> None:
    model = load_checkpoint(find_model(name))
    recipe = read_yaml(shipped_recipe(name.replace("-", "_")))
    plan, shipped = recipe["plan"], model.recipe["plan"]
    assert recipe["network"] == model.header.network
    assert recipe["version"] == model.header.version
    intensity = {"above_minimum": True, **plan["intensity"]}
    assert {key: shipped[key] for key in plan} == {**plan, "intensity": intensity}
    classes = [(c["name"], c["value"]) for c in recipe["data"]["classes"]]
    assert [(c["name"], c["value"]) for c in model.recipe["classes"]] == classes
    # Sizes as a training takes them from the recipe and from the median shape of the cases.
    given = fitted_sizes(
        recipe["network"],
        recipe["network_sizes"],
        tuple(plan["spacing_mm"]),
        depth=shipped["median_shape"][0],
        patch=plan["patch_size"],
    )
    sizes = network_sizes(
        recipe["network"],
        given,
        patch=tuple(plan["patch_size"]),
        channels=1,
        classes=len(classes) + 1,
    )
    assert {key: _plain(value) for key, value in sizes.items()} == {
        key: _plain(model.header.sizes[key]) for key in sizes
    }


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
