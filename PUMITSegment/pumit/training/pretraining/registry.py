"""What `pumit pretrain` can train, by the type of the recipe."""

from __future__ import annotations

from pumit.training.pretraining.mamba_mim import MAMBA_MIM_OBJECTIVE
from pumit.training.pretraining.mim import MIM_OBJECTIVE
from pumit.training.pretraining.objective import ObjectiveKind
from pumit.training.pretraining.promptable import PROMPTABLE_OBJECTIVE
from pumit.training.pretraining.swin_ssl import SWIN_SSL_OBJECTIVE
from pumit.training.pretraining.tokenizer import TOKENIZER_OBJECTIVE
from pumit.training.recipes.pretraining import (
    MambaMimRecipe,
    MimRecipe,
    PretrainingRecipe,
    PromptableRecipe,
    SwinSslRecipe,
    TokenizerRecipe,
)

_OBJECTIVES: dict[type[PretrainingRecipe], ObjectiveKind] = {
    MambaMimRecipe: MAMBA_MIM_OBJECTIVE,
    MimRecipe: MIM_OBJECTIVE,
    PromptableRecipe: PROMPTABLE_OBJECTIVE,
    SwinSslRecipe: SWIN_SSL_OBJECTIVE,
    TokenizerRecipe: TOKENIZER_OBJECTIVE,
}


def objective_kind(recipe: PretrainingRecipe) -> ObjectiveKind:
    """Return the objective of a recipe."""
    return _OBJECTIVES[type(recipe)]
