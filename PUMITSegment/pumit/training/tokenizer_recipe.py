"""The visual tokenizer's objective, from a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from pumit.networks.build import RECIPES, build_network
from pumit.networks.pumit.discriminator import PatchDiscriminator
from pumit.networks.pumit.tokenizer import VisualTokenizer
from pumit.training import image_recipe
from pumit.training.objectives import Objective, ObjectiveKind, Setting, begin_with
from pumit.training.recipe_file import Kinds, check_keys
from pumit.training.tokenizer_task import (
    GENERATOR,
    TokenizerLoss,
    TokenizerTask,
    TokenizerTraining,
)

KINDS: Kinds = {
    **image_recipe.KINDS,
    "loss": (dict,),
    "codebook_range": (int, float),
    "logit_gain": (int, float),
    "discriminator": (bool,),
    "discriminator_sizes": (dict,),
    "perceptual": (str,),
    "perceptual_weights": (str,),
}
LOSS_KINDS: Kinds = {f.name: (int, float) for f in fields(TokenizerLoss)}


def check(recipe: Mapping[str, Any], name: str) -> None:
    """Raise PumitError for keys that cannot be used, reading no data."""
    image_recipe.check(recipe, name)
    check_keys(recipe.get("loss", {}), LOSS_KINDS, "loss")


def build(recipe: Mapping[str, Any], setting: Setting) -> Objective:
    """Build networks, data and task of a recipe.

    Raises:
        PumitError: If its data or the perceptual network are missing.
    """
    from pumit.training.perceptual import build_perceptual

    name = str(recipe["network"])
    sizes = {**RECIPES[name].sizes, **recipe.get("network_sizes", {})}
    tokenizer = build_network(name, **sizes)
    assert isinstance(tokenizer, VisualTokenizer)
    if "initial" in recipe:
        begin_with(tokenizer, recipe["initial"], (name,))
    else:
        spread(tokenizer, recipe.get("codebook_range"), float(recipe.get("logit_gain", 1.0)))
    discriminator = None
    if recipe.get("discriminator", True):
        built = build_network("pumit_discriminator", **recipe.get("discriminator_sizes", {}))
        assert isinstance(built, PatchDiscriminator)
        discriminator = built
    task = TokenizerTask(
        TokenizerTraining(tokenizer, discriminator),
        image_recipe.image_source(recipe, setting),
        loss=TokenizerLoss(**recipe.get("loss", {})),
        perceptual=build_perceptual(
            recipe.get("perceptual", "none"),
            setting.device,
            weights=recipe.get("perceptual_weights"),
        ),
    )
    content = {
        "network": name,
        "sizes": sizes,
        "plan": image_recipe.window_plan(recipe),
    }
    return Objective(task, image_recipe.degrees(recipe), content, GENERATOR)


def spread(tokenizer: VisualTokenizer, codebook_range: float | None, logit_gain: float) -> None:
    """Let the tokens differ from the first step on.

    Differs from the source: its codebook entries begin within 1 / K and its distributions nearly
    uniform, so that the decoder sees next to nothing for the first tens of thousands of steps. A
    short training has no time for that.

    Args:
        tokenizer: The tokenizer, not trained yet.
        codebook_range: Entries begin uniform between minus and plus this; None leaves them.
        logit_gain: Factor on the projection to logits.
    """
    with torch.no_grad():
        if codebook_range is not None:
            tokenizer.quantizer.codebook.uniform_(-codebook_range, codebook_range)
        tokenizer.quantizer.projection.weight.mul_(logit_gain)


TOKENIZER_OBJECTIVE = ObjectiveKind(KINDS, check, build)
