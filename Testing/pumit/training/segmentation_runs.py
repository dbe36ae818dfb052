"""Trainings of a small segmentation network on a ball and a box, as `pumit train` does them."""

from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
import yaml
from labelled_scans import TINY_SIZES
from pumit.models.checkpoint import load_checkpoint
from pumit.training.train import finetune

RECIPE: dict[str, Any] = {
    "task": "segmentation",
    "name": "made",
    "network_sizes": TINY_SIZES,
    "data": {"folder": "set", "classes": {"ball": 1, "box": 2}},
    "plan": {"patch_size": [16, 32, 32], "batch_size": 2},
    "augmentation": False,
    "device": "cpu",
    "threads": 1,
    "schedule": {"steps": 1, "log_every": 1, "precision": "fp32"},
}
# Enough to find the ball; bfloat16 is slow on most processors.
LEARNING = {"steps": 25, "learning_rate": 3e-2, "warm_up": 3, "average": 0.8, "precision": "fp32"}


def written(folder: Path, **changes: Any) -> Path:
    """Write the recipe with some keys changed; a value None leaves a key out."""
    recipe = {k: v for k, v in {**RECIPE, **changes}.items() if v is not None}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def train(folder: Path, output: str = "out", *, finish: bool = False, **changes: Any) -> Path:
    """Train in a folder by the recipe with some keys changed."""
    return finetune(written(folder, **changes), folder / output, finish=finish)


def dice_of(answer: npt.NDArray[Any], truth: npt.NDArray[Any]) -> float:
    """Dice of two masks."""
    return float(2 * (answer & truth).sum() / (answer.sum() + truth.sum()))


def assert_same_weights(one: Path, other: Path) -> None:
    ours, theirs = load_checkpoint(one).state, load_checkpoint(other).state
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
