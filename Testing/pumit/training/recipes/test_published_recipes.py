"""Recipes that ship can be read; the published ones are the papers', fit their networks, and start.

Networks, patches and batches are shrunk where a recipe starts, so that a step takes a second on a
CPU; sizes and parameters of the unshrunk networks are those of `networks/test_build.py`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import yaml
from family_runs import TINY
from labelled_scans import TINY_SIZES, write_pairs
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.checkpoint import load_checkpoint
from pumit.models.checkpoint import read_recipe as recipe_of_model
from pumit.models.index import find_model
from pumit.networks.build import RECIPES
from pumit.runs import read_log
from pumit.training.recipes.reader import read_yaml, shipped_recipe
from pumit.training.recipes.schedule import Schedule
from pumit.training.segmentation.data_plan import checked_patch
from pumit.training.segmentation.networks import fitted_sizes, network_sizes, patch_divisor
from pumit.training.train import finetune
from pumit.volume import Volume

pytestmark = pytest.mark.usefixtures("blank_pictures")

CT = {"source": [-175, 250], "target": [0, 1]}
SWIN_RATES = {"optimizer": "adamw", "learning_rate": 1e-4}
NNFORMER = {
    "balanced_share": 0.33,
    "dice_background": False,
    "schedule": {
        "optimizer": "sgd",
        "momentum": 0.99,
        "weight_decay": 3e-5,
        "steps": 250_000,
        "learning_rate": 0.01,
        "shape": "poly",
        "clip": 12.0,
        "average": 0.0,
    },
}
# Shares of all steps in which the rate rises.
RISE = {"mamba_mim": 0.4, "swin_brats": 50 / 300, "swin_btcv": 50 / 5000}
PAPERS: dict[str, dict[str, Any]] = {
    "pumit_tokenizer": {  # six GPUs, 48 crops
        "network": "pumit_tokenizer",
        "batch_size": 48 // 6,
        "crop": {"depth": 64},
        "loss": {"even": 0.03, "sharp": 1.0, "gate": 0.025, "discriminator_rate": 10},
        "schedule": {"learning_rate": 1e-4},
    },
    "pumit_vit": {  # six GPUs, 84 crops
        "batch_size": 84 // 6,
        "crop": {"depth": 80},
        "mask_ratio": 0.55,
        "schedule": {"learning_rate": 2e-5, "clip": 0.5, "steps": 300_000},
    },
    "mamba_mim": {
        "batch_size": 8,
        "crop": {"depth": 96, "in_plane": 96},
        "mask_ratio": 0.75,
        "schedule": {
            "learning_rate": 1e-4,
            "final_rate": 1e-7,
            "shape": "cosine",
            "clip": 5,
            "optimizer": "adamw",
        },
    },
    "swin_ssl": {  # eight GPUs
        "batch_size": 2,
        "crop": {"depth": 96, "in_plane": 96},
        "schedule": {"steps": 100_000, "warm_up": 500, "learning_rate": 6e-6, "weight_decay": 0.1},
    },
    "swin_btcv": {
        "plan": {
            "spacing_mm": [2.0, 1.5, 1.5],
            "patch_size": [96] * 3,
            "batch_size": 4,
            "intensity": CT,
        },
        "schedule": {**SWIN_RATES, "weight_decay": 1e-5},
    },
    "swin_brats": {
        "plan": {"patch_size": [128] * 3, "intensity": {"method": "zscore", "above_minimum": True}},
        "schedule": {**SWIN_RATES, "weight_decay": 1e-5},
    },
    "hymamba_btcv": {
        "plan": {
            "spacing_mm": [2.0, 1.5, 1.5],
            "patch_size": [96] * 3,
            "batch_size": 4,
            "intensity": {"method": "range", **CT},
        },
        "balanced_share": 0.5,  # as many crops around an organ as elsewhere
        "validation": {"overlap": 0.5},
        # Epochs of 24 cases, 4 crops of each.
        "schedule": {**SWIN_RATES, "steps": 5000 * 24},
    },
    "nnformer_synapse": {
        **NNFORMER,
        "plan": {"spacing_mm": [3.0, 0.76, 0.76], "patch_size": [64, 128, 128], "batch_size": 2},
    },
    "nnformer_tumor": {
        **NNFORMER,
        "plan": {"spacing_mm": [1.0] * 3, "patch_size": [128] * 3, "batch_size": 2},
    },
    "nnformer_acdc": {
        **NNFORMER,
        "plan": {"spacing_mm": [6.35, 1.52, 1.52], "patch_size": [14, 160, 160], "batch_size": 4},
    },
}


def part_of(given: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the expected keys."""
    return {
        key: part_of(given[key], value) if isinstance(value, Mapping) else given[key]
        for key, value in expected.items()
    }


@pytest.mark.parametrize("name", PAPERS)
def test_settings_are_the_papers(name):
    recipe = read_yaml(shipped_recipe(name))
    schedule = Schedule(**recipe["schedule"])  # with what a recipe leaves to its defaults
    if name in RISE:
        assert schedule.warm_up / schedule.steps == pytest.approx(RISE[name])
    given = {**recipe, "schedule": vars(schedule)}
    assert part_of(given, PAPERS[name]) == PAPERS[name]


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        *(("pumit_btcv", 14), ("pumit_chaos", 5), ("swin_btcv", 14), ("swin_brats", 3)),
        *(("hymamba_btcv", 14), ("nnformer_synapse", 14), ("nnformer_tumor", 4)),
        ("nnformer_acdc", 4),
    ],
)
def test_they_build_the_published_networks(name, outputs):
    recipe = read_yaml(shipped_recipe(name))
    network, plan, classes = recipe["network"], recipe["plan"], recipe["data"]["classes"]
    regions = isinstance(classes, dict) and any(isinstance(v, list) for v in classes.values())
    assert len(classes) + (not regions) == outputs
    patch, channels = plan["patch_size"], len(recipe["data"]["channels"])
    given = fitted_sizes(
        network, recipe.get("network_sizes", {}), tuple(plan["spacing_mm"]), patch=patch
    )
    fitting = checked_patch(patch, patch_divisor(network, given))
    sizes = network_sizes(network, given, patch=fitting, channels=channels, classes=outputs)
    published = {**RECIPES[network].sizes, "in_channels": channels, "num_classes": outputs}
    assert all(np.array_equal(sizes[key], published[key]) for key in sizes)


NNFORMER_SIZES: dict[str, Any] = {
    "dim": 8,
    "num_heads": [1, 1, 2, 2],
    "decoder_num_heads": [1, 1, 2],
    "windows": [[2, 2, 2]] * 4,
}
# One of each family; `test_they_build_the_published_networks` has all.
SHRUNK: dict[str, dict[str, Any]] = {
    "segmentation": TINY_SIZES,
    "pumit_btcv": TINY_SIZES,
    "hymamba_btcv": TINY["hymamba_small"],
    "nnformer_acdc": NNFORMER_SIZES,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHRUNK)
def test_they_start(name, tmp_path):
    """Two steps, and an answer for a scan of another size; ACDC keeps its 14 slices."""
    recipe = read_yaml(shipped_recipe(name))
    shipped, channels = recipe["network"], len(recipe.get("data", {}).get("channels", "1"))
    write_pairs(tmp_path / "set", 3, shape=(14, 40, 40), spacing=(6.0, 1.5, 1.5))
    recipe["network_sizes"] = {**recipe.get("network_sizes", {}), **SHRUNK[name]}
    depth = 14 if name == "nnformer_acdc" else 16
    plan = {"patch_size": [depth, 32, 32], "batch_size": 1, "spacing_mm": [6, 1.5, 1.5]}
    recipe["plan"] = {**recipe.get("plan", {}), **plan}
    cases = [
        {"image": [f"set/images/{case}.nii.gz"] * channels, "label": f"set/labels/{case}.nii.gz"}
        for case in ("case_0", "case_1", "case_2")
    ]
    recipe["data"] = {"cases": cases, "classes": {"ball": 1, "box": 2}, "validation": ["case_0"]}
    recipe |= {"workers": 0, "device": "cpu", "threads": 1}
    recipe["validation"] = {"overlap": 0.0, "final_overlap": 0.0}
    recipe["schedule"] |= {"steps": 2, "log_every": 1, "precision": "fp32"}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))

    made = finetune(path, tmp_path / "out")

    log, _ = read_log(tmp_path / "out")
    assert [np.isfinite(row["loss"]) for row in log if "loss" in row] == [True, True]
    assert recipe_of_model(made)[0]["network"] == shipped
    model = load_automatic(made, "cpu")
    assert model.plan.channels == channels
    array = np.zeros((channels, 9, 37, 45) if channels > 1 else (9, 37, 45), np.float32)
    assert model.segment(Volume(array, (6.0, 1.5, 1.5))).labels.shape == (9, 37, 45)


@pytest.mark.parametrize("name", ["abdomen-ct", "abdomen-mr", "heart-mr", "hippocampus-mr"])
def test_a_recipe_gives_the_network_that_ships(name):
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
