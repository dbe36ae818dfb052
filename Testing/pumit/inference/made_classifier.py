"""Checkpoints of a classifier whose answer is known."""

from pathlib import Path
from typing import Any

import torch
from pumit.models.checkpoint import save_checkpoint
from pumit.networks.build import build_network

SIZES: dict[str, Any] = {
    "dim": 16,
    "depth": 1,
    "num_heads": 2,
    "hidden": 24,
    "fixed_patch": [4, 4, 4],
    "position_table": [2, 2, 2],
}
RECIPE: dict[str, Any] = {
    "name": "made",
    "version": "7",
    "network": "pumit_classifier_small",
    "sizes": SIZES,
    "input": {"size": [8, 8, 8], "channels": 3, "intensity": {"method": "percentiles"}},
    "classes": [{"name": "healthy"}, {"name": "sick"}],
}


def save(folder: Path, *, bias: tuple[float, float] = (0.0, 0.0), **changes: Any) -> Path:
    """A classifier whose answer is its bias: the head's weights are zero."""
    recipe = {**RECIPE, **changes}
    torch.manual_seed(0)
    state = build_network(recipe["network"], **recipe["sizes"]).state_dict()
    state["head.weight"].zero_()
    state["head.bias"] = torch.tensor(bias)
    path = folder / "made.safetensors"
    save_checkpoint(path, state, recipe)
    return path
