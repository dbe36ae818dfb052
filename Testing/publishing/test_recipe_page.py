"""The page of recipe keys names each key with its type, default and description."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pumit.training.recipes.comparison import ComparisonRecipe
from pumit.training.recipes.model import RecipeModel
from pumit.training.recipes.pretraining import PRETRAINING
from pumit.training.recipes.tasks import TASKS


class Part(RecipeModel):
    """A part.

    Attributes:
        depth: Slices of it, which a sentence on
            two lines describes.
    """

    depth: int = 64


class Recipe(RecipeModel):
    """A recipe.

    Attributes:
        learning_rate: Its peak.
        parts: Parts of it.
    """

    learning_rate: float = 0.1
    parts: list[Part] = []  # noqa: RUF012


@pytest.fixture(scope="module")
def recipes(repository: Path) -> Iterator[ModuleType]:
    """Return the module that writes the page."""
    sys.path.insert(0, str(repository / "scripts" / "pages"))
    try:
        import recipes as module

        yield module
    finally:
        sys.path.pop(0)


def test_the_reference_names_every_key_with_default_and_description(recipes):
    text = recipes.recipe_reference(Recipe)
    assert "| `learning_rate` | float | `0.1` | Its peak. |" in text
    assert "Slices of it, which a sentence on two lines describes." in text
    assert "### parts\n" in text


@pytest.mark.parametrize(
    "model", [*TASKS.values(), *PRETRAINING.values(), ComparisonRecipe], ids=lambda m: m.__name__
)
def test_every_key_is_described(recipes, model):
    text = recipes.recipe_reference(model)
    assert "| `schedule` | keys |" in text
    assert not [
        line for line in text.splitlines() if line.startswith("| `") and "|  |" in line[-5:]
    ]
