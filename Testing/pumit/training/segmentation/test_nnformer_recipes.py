"""nnFormer's three recipes are the published ones, fit their networks, and start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from labelled_scans import write_pairs
from pumit.inference.automatic.segmentation import load_automatic
from pumit.networks.build import RECIPES, build_network
from pumit.networks.nnformer import NnFormer
from pumit.training.recipes.reader import read_yaml, recipe_names, shipped_recipe
from pumit.training.recipes.schedule import Schedule
from pumit.training.segmentation.data_plan import checked_patch
from pumit.training.segmentation.networks import fitted_sizes, network_sizes, patch_divisor
from pumit.training.segmentation.patches import SegmentationBatch
from pumit.training.segmentation.task import SegmentationTask
from pumit.training.train import finetune
from pumit.training.validate import read_segmentation
from pumit.volume import Volume
from torch import nn
from torch.nn import functional as F

PUBLISHED = {  # spacing, mm; patch; batch; parameters
    "nnformer_synapse": ([3.0, 0.76, 0.76], [64, 128, 128], 2, 150_054_210),
    "nnformer_tumor": ([1.0, 1.0, 1.0], [128, 128, 128], 2, 37_606_726),
    "nnformer_acdc": ([6.35, 1.52, 1.52], [14, 160, 160], 4, 37_160_200),
}


def recipe_of(name: str) -> dict[str, Any]:
    recipe = read_yaml(shipped_recipe(name))
    assert isinstance(recipe, dict)
    return recipe


def test_they_ship() -> None:
    assert set(PUBLISHED) <= set(recipe_names())


@pytest.mark.parametrize("name", PUBLISHED)
def test_their_settings_are_the_papers(name: str) -> None:
    recipe = recipe_of(name)
    read_segmentation(recipe, name)
    spacing, patch, batch, _ = PUBLISHED[name]
    plan = recipe["plan"]
    assert (plan["spacing_mm"], plan["patch_size"], plan["batch_size"]) == (spacing, patch, batch)
    assert (recipe["balanced_share"], recipe["dice_background"]) == (0.33, False)

    schedule = Schedule(**recipe["schedule"])
    assert (schedule.optimizer, schedule.momentum, schedule.weight_decay) == ("sgd", 0.99, 3e-5)
    assert (schedule.steps, schedule.clip, schedule.average) == (250_000, 12.0, 0.0)
    for done in (0.0, 0.3, 0.9):
        rate = schedule.rate_at(int(done * 250_000))
        assert rate == pytest.approx(0.01 * (1 - done) ** 0.9)


@pytest.mark.parametrize("name", PUBLISHED)
def test_they_build_the_published_networks(name: str) -> None:
    recipe = recipe_of(name)
    spacing, patch, _, parameters = PUBLISHED[name]
    given = fitted_sizes(name, recipe["network_sizes"], (spacing[0], spacing[1], spacing[2]))
    fitting = checked_patch(patch, patch_divisor(name, given))
    channels, classes = len(recipe["data"]["channels"]), 1 + len(recipe["data"]["classes"])
    sizes = network_sizes(name, given, patch=fitting, channels=channels, classes=classes)

    published = RECIPES[name].sizes
    assert all(np.array_equal(sizes[key], published[key]) for key in sizes)
    with torch.device("meta"):
        network = build_network(name, **sizes)
    assert isinstance(network, NnFormer)
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nnformer_acdc", "nnformer_synapse", "nnformer_tumor"])
def test_they_start(name: str, tmp_path: Path) -> None:
    """Two steps, the networks and patches shrunk; ACDC keeps its 14 slices."""
    recipe = recipe_of(name)
    channels, depth = len(recipe["data"]["channels"]), 14 if name == "nnformer_acdc" else 16
    write_pairs(tmp_path / "set", 3, shape=(14, 40, 40), spacing=(6.0, 1.5, 1.5))
    recipe["network_sizes"] |= {
        "dim": 8,
        "num_heads": [1, 1, 2, 2],
        "decoder_num_heads": [1, 1, 2],
        "windows": [[2, 2, 2]] * 4,
    }
    recipe["plan"] |= {"patch_size": [depth, 32, 32], "batch_size": 1, "spacing_mm": [6, 1.5, 1.5]}
    recipe["data"] = {
        "cases": [
            {
                "image": [f"set/images/case_{i}.nii.gz"] * channels,
                "label": f"set/labels/case_{i}.nii.gz",
            }
            for i in range(3)
        ],
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
    model = load_automatic(made, "cpu")
    assert model.plan.channels == channels
    array = np.zeros((channels, 9, 37, 45) if channels > 1 else (9, 37, 45), np.float32)
    assert model.segment(Volume(array, (6.0, 1.5, 1.5))).labels.shape == (9, 37, 45)


class Fixed(nn.Module):
    """Answers with logits that are given."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits


@pytest.mark.parametrize("background", [True, False])
def test_dice_counts_the_background_or_not(background: bool) -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 4, 8, 8)
    labels = torch.randint(0, 3, (2, 4, 8, 8))
    task = SegmentationTask(
        Fixed(logits),
        None,  # type: ignore[arg-type]  # nothing is drawn
        dice_background=background,
    )
    batch = SegmentationBatch(torch.zeros(2, 1, 4, 8, 8), labels.to(torch.uint8), ["a", "b"])

    truth, share = F.one_hot(labels, 3).movedim(-1, 1).float(), logits.softmax(1)
    both, sizes = ((x.flatten(2).sum(-1)) for x in (share * truth, share + truth))
    dice = ((2 * both + 1e-5) / (sizes + 1e-5))[:, 0 if background else 1 :].mean()
    expected = 1 - dice + F.cross_entropy(logits, labels)
    torch.testing.assert_close(task(batch)["loss"], expected)
