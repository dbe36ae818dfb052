"""Swin UNETR's self-supervised pre-training, from a recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pumit.errors import PumitError
from pumit.networks.build import RECIPES, build_network
from pumit.networks.swin_ssl import SwinSsl
from pumit.networks.swin_unetr import STRIDE
from pumit.training import image_recipe
from pumit.training.objectives import Objective, ObjectiveKind, Setting, begin_with
from pumit.training.recipe_file import Kinds
from pumit.training.swin_ssl_task import SwinSslTask

KINDS: Kinds = image_recipe.KINDS
NETWORKS = ("swin_ssl", "swin_ssl_small")
DEGREES = {0: 1.0}  # thick slices are too few for five halvings


def check(recipe: Mapping[str, Any], name: str) -> None:
    """Raise PumitError for keys that cannot be used, reading no data."""
    image_recipe.check(recipe, name)
    if int(recipe.get("batch_size", 4)) < 2:
        raise PumitError(
            f"batch_size in {name} must be 2 at least: views of a crop are told from another's."
        )
    for crop in image_recipe.crops_of(recipe):
        for da0 in _degrees(recipe):
            shape = crop.shape(da0)
            if any(n % STRIDE for n in shape) or math.prod(shape) < 2 * STRIDE**3:
                raise PumitError(
                    f"A crop in {name} has {' x '.join(map(str, shape))} voxels at degree {da0} of "
                    f"anisotropy; Swin UNETR takes multiples of {STRIDE}, two cells at least."
                )


def build(recipe: Mapping[str, Any], setting: Setting) -> Objective:
    """Build network, data and task of a recipe.

    Raises:
        PumitError: If its data or weights are missing, or the network takes no such images.
    """
    name = str(recipe["network"])
    sizes = {**RECIPES[name].sizes, **recipe.get("network_sizes", {})}
    if sizes["in_channels"] not in (1, 3):
        raise PumitError(f"in_channels of {name} is 1 or 3, got {sizes['in_channels']}.")
    network = build_network(name, **sizes)
    assert isinstance(network, SwinSsl)
    if "initial" in recipe:
        begin_with(network, recipe["initial"], (name,))
    task = SwinSslTask(network, image_recipe.image_source(recipe, setting, is_upright=True))
    content = {
        "network": name,
        "sizes": sizes,
        "kind": "encoder",
        "plan": image_recipe.window_plan(recipe),
    }
    return Objective(task, _degrees(recipe), content)


def _degrees(recipe: Mapping[str, Any]) -> dict[int, float]:
    """Degrees of anisotropy with a share above zero."""
    given = image_recipe.degrees({"degrees": DEGREES, **recipe})
    return {da0: share for da0, share in given.items() if share > 0}


SWIN_SSL_OBJECTIVE = ObjectiveKind(KINDS, check, build)
