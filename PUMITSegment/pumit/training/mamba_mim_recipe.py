"""MambaMIM's masked pre-training, from a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pumit.errors import PumitError
from pumit.networks.build import RECIPES, build_network
from pumit.networks.mamba_mim.mamba_mim import MASK_RATIO, MambaMim
from pumit.networks.mamba_mim.masking import random_cells
from pumit.training import image_recipe
from pumit.training.mamba_mim_task import MambaMimTask
from pumit.training.objectives import Objective, ObjectiveKind, Setting, begin_with
from pumit.training.recipe_file import Kinds

KINDS: Kinds = {**image_recipe.KINDS, "mask_ratio": (float,)}
DEGREES = {0: 1.0}  # thick slices are too few for four halvings


def check(recipe: Mapping[str, Any], name: str) -> None:
    """Raise PumitError for keys that cannot be used, reading no data."""
    image_recipe.check(recipe, name)
    ratio = recipe.get("mask_ratio", MASK_RATIO)
    if not 0 < ratio < 1:
        raise PumitError(f"mask_ratio in {name} must lie between 0 and 1, got {ratio}.")
    with torch.device("meta"):  # takes no memory
        network = _network(recipe)
    for crop in image_recipe.crops_of(recipe):
        for da0 in _degrees(recipe):
            try:
                grid = network.grid(crop.shape(da0))
            except ValueError as error:
                raise PumitError(
                    f"A crop in {name} does not fit at degree {da0} of anisotropy: {error}"
                ) from None
            if bool(random_cells(1, grid, ratio=ratio).all()):
                raise PumitError(
                    f"A mask_ratio of {ratio} in {name} hides none of the cells of a crop at "
                    f"degree {da0} of anisotropy; make the crop or the ratio larger."
                )


def build(recipe: Mapping[str, Any], setting: Setting) -> Objective:
    """Build network, data and task of a recipe.

    Raises:
        PumitError: If its data or weights are missing, or the network takes no such images.
    """
    name = str(recipe["network"])
    network = _network(recipe)
    if "initial" in recipe:
        begin_with(network, recipe["initial"], (name,))
    task = MambaMimTask(
        network,
        image_recipe.image_source(recipe, setting),
        mask_ratio=float(recipe.get("mask_ratio", MASK_RATIO)),
    )
    content = {
        "network": name,
        "sizes": {**RECIPES[name].sizes, **recipe.get("network_sizes", {})},
        "kind": "encoder",
        "plan": image_recipe.window_plan(recipe),
    }
    return Objective(task, _degrees(recipe), content)


def _network(recipe: Mapping[str, Any]) -> MambaMim:
    name = str(recipe["network"])
    network = build_network(name, **recipe.get("network_sizes", {}))
    assert isinstance(network, MambaMim)
    if network.in_channels not in (1, 3):
        raise PumitError(f"in_channels of {name} is 1 or 3, got {network.in_channels}.")
    return network


def _degrees(recipe: Mapping[str, Any]) -> dict[int, float]:
    """Degrees of anisotropy with a share above zero."""
    given = image_recipe.degrees({"degrees": DEGREES, **recipe})
    return {da0: share for da0, share in given.items() if share > 0}


MAMBA_MIM_OBJECTIVE = ObjectiveKind(KINDS, check, build)
