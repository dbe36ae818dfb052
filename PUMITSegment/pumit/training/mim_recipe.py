"""Masked image modelling of the universal ViT, from a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pumit.errors import CheckpointError, PumitError
from pumit.inference.loading import build_from, read_model
from pumit.models.index import find_model
from pumit.networks.build import RECIPES, build_network
from pumit.networks.pumit.mim import MASK_RATIO, MaskedImageModel
from pumit.networks.pumit.tokenizer import VisualTokenizer
from pumit.training import image_recipe
from pumit.training.mim_task import MimTask
from pumit.training.objectives import Objective, ObjectiveKind, Setting, begin_with
from pumit.training.recipe_file import Kinds

KINDS: Kinds = {
    **image_recipe.KINDS,
    "tokenizer": (str,),
    "mask_ratio": (float,),
    "eva02": (str,),
}


def check(recipe: Mapping[str, Any], name: str) -> None:
    """Raise PumitError for keys that cannot be used, reading no data."""
    image_recipe.check(recipe, name)
    ratio = recipe.get("mask_ratio", MASK_RATIO)
    if not 0 < ratio < 1:
        raise PumitError(f"mask_ratio in {name} must lie between 0 and 1, got {ratio}.")
    if "initial" in recipe and "eva02" in recipe:
        raise PumitError(f"{name} has both initial and eva02; begin with one of them.")


def build(recipe: Mapping[str, Any], setting: Setting) -> Objective:
    """Build network, tokenizer, data and task of a recipe.

    Raises:
        PumitError: If its data or weights are missing, or the tokenizer has another codebook.
    """
    name = str(recipe["network"])
    sizes = {**RECIPES[name].sizes, **recipe.get("network_sizes", {})}
    network = build_network(name, **sizes)
    assert isinstance(network, MaskedImageModel)
    if "initial" in recipe:
        begin_with(network, recipe["initial"], (name,))
    if "eva02" in recipe:
        from pumit.models.eva02_file import load_eva02

        load_eva02(network, Path(recipe["eva02"]).expanduser())
    path = find_model(recipe.get("tokenizer", "tokenizer"))
    checkpoint = read_model(path, "tokenizer")
    tokenizer = build_from(checkpoint, path, setting.device)
    assert isinstance(tokenizer, VisualTokenizer)
    tokens = tokenizer.quantizer.codebook.shape[0]
    if tokens != sizes["num_tokens"]:
        raise CheckpointError(
            f"The tokenizer {path.name} has {tokens} tokens, the network predicts "
            f"{sizes['num_tokens']}; set num_tokens in network_sizes."
        )
    task = MimTask(
        network,
        tokenizer,
        image_recipe.image_source(recipe, setting),
        mask_ratio=float(recipe.get("mask_ratio", MASK_RATIO)),
    )
    content = {
        "network": name,
        "sizes": sizes,
        "kind": "encoder",
        "tokenizer": {"name": checkpoint.recipe.get("name"), "sha256": checkpoint.sha256},
        "plan": image_recipe.window_plan(recipe),
    }
    return Objective(task, image_recipe.degrees(recipe), content)


MIM_OBJECTIVE = ObjectiveKind(KINDS, check, build)
