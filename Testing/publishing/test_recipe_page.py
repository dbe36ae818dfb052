"""The page of recipe keys names each key with its type, default and description."""

import pytest
from pumit.training.recipes.comparison import ComparisonRecipe
from pumit.training.recipes.pretraining import PRETRAINING
from pumit.training.recipes.tasks import TASKS
from repository_scripts import script

recipe_reference = script("pages/recipes").recipe_reference


def test_the_reference_names_every_key_with_default_and_description():
    text = recipe_reference(ComparisonRecipe)
    words = "Share of patches centred on a voxel of a randomly drawn class."
    assert f"| `balanced_share` | float | `0.75` | {words} |" in text
    assert "the run then stops at a checkpoint." in text  # on two lines in the docstring
    assert "### schedule\n" in text


@pytest.mark.parametrize(
    "model", [*TASKS.values(), *PRETRAINING.values(), ComparisonRecipe], ids=lambda m: m.__name__
)
def test_every_key_is_described(model):
    text = recipe_reference(model)
    assert "| `schedule` | keys |" in text
    assert not [
        line for line in text.splitlines() if line.startswith("| `") and "|  |" in line[-5:]
    ]
