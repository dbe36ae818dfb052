"""Recipes of pre-trainings that take a second."""

from pathlib import Path
from typing import Any

import yaml

SHORT: dict[str, Any] = {
    "seed": 3,
    "threads": 1,
    "batch_size": 1,
    "schedule": {"steps": 2, "warm_up": 1, "decay": 1, "log_every": 1},
}
# Of images, small ones.
IMAGES: dict[str, Any] = {
    **SHORT,
    "device": "cpu",
    "crop": {"depth": 16, "in_plane": 32},
    "generated_size": 16,
}
VIT_SIZES: dict[str, Any] = {
    "dim": 16,
    "depth": 2,
    "num_heads": 2,
    "hidden": 24,
    "position_table": [1, 2, 2],
    "num_tokens": 32,
}


def written(folder: Path, recipe: dict[str, Any], **changes: Any) -> Path:
    """Write a recipe with some keys changed."""
    path = folder / "r.yaml"
    path.write_text(yaml.safe_dump({**recipe, **changes}))
    return path
