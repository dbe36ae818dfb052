"""What `pumit pretrain` can train, by the type of the recipe."""

from __future__ import annotations

from pumit.training.pretraining import image_recipe, mamba_mim, mim, promptable, swin_ssl, tokenizer
from pumit.training.pretraining.objective import ObjectiveKind
from pumit.training.recipes.pretraining import (
    MambaMimRecipe,
    MimRecipe,
    PretrainingRecipe,
    PromptableRecipe,
    SwinSslRecipe,
    TokenizerRecipe,
)

_OBJECTIVES: dict[type[PretrainingRecipe], ObjectiveKind] = {
    MambaMimRecipe: ObjectiveKind(mamba_mim.build, mamba_mim.check),
    MimRecipe: ObjectiveKind(mim.build, image_recipe.check),
    PromptableRecipe: ObjectiveKind(promptable.build),
    SwinSslRecipe: ObjectiveKind(swin_ssl.build, swin_ssl.check),
    TokenizerRecipe: ObjectiveKind(tokenizer.build, image_recipe.check),
}


def objective_kind(recipe: PretrainingRecipe) -> ObjectiveKind:
    """Return the objective of a recipe."""
    return _OBJECTIVES[type(recipe)]
