"""The reference page of all recipe keys, from the recipe models."""

from __future__ import annotations

from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.comparison import ComparisonRecipe
from pumit.training.recipes.model import recipe_reference
from pumit.training.recipes.pretraining import PRETRAINING
from pumit.training.recipes.promptable import FineTuningRecipe, SamRecipe
from pumit.training.recipes.segmentation import SegmentationRecipe

_INTRODUCTION = """# Keys of recipes

Written from the program itself. A recipe is a YAML file; `pumit train`, `pumit pretrain` and `pumit
compare` read it once, before anything else: a key that is misspelt is answered with the nearest
right one. `pumit plan RECIPE --check` checks a recipe and trains nothing. What is left out has the
default; `required` stands where there is none. The recipes that ship are examples of each kind.
"""


def page() -> str:
    """Return the Markdown of all keys."""
    recipes = {
        "pumit train, task: segmentation": SegmentationRecipe,
        "pumit train, task: promptable": FineTuningRecipe,
        "pumit train, task: sam": SamRecipe,
        "pumit train, task: classification": ClassificationRecipe,
        "pumit compare": ComparisonRecipe,
    }
    for model in dict.fromkeys(PRETRAINING.values()):
        networks = [network for network, trained in PRETRAINING.items() if trained is model]
        recipes[f"pumit pretrain, network: {' or '.join(networks)}"] = model
    parts = [_INTRODUCTION]
    for title, model in recipes.items():
        first = (model.__doc__ or "").partition("\n")[0]
        parts.append(f"## {title}\n\n{first}\n\n{recipe_reference(model)}")
    return "\n".join(parts).rstrip() + "\n"
