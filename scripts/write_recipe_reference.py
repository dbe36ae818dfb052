"""Write docs/reference/recipes.md: every key of every recipe, from the types they are read into.

    python3 scripts/write_recipe_reference.py

A test compares the page with the types.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "recipes.md"
INTRODUCTION = """# Keys of recipes

Written from the program itself. A recipe is a YAML file; `pumit train`, `pumit pretrain` and `pumit
compare` read it once, before anything else: a key that is misspelt is answered with the nearest
right one. `pumit plan RECIPE --check` checks a recipe and trains nothing. What is left out has the
default; `required` stands where there is none. The recipes that ship are examples of each kind.
"""


def page() -> str:
    """The page as the types say."""
    sys.path.insert(0, str(ROOT / "PUMITSegment"))
    from pumit.training.recipes.classification import ClassificationRecipe
    from pumit.training.recipes.comparison import ComparisonRecipe
    from pumit.training.recipes.model import recipe_reference
    from pumit.training.recipes.pretraining import PRETRAINING
    from pumit.training.recipes.promptable import FineTuningRecipe
    from pumit.training.recipes.segmentation import SegmentationRecipe

    recipes = {
        "pumit train, task: segmentation": SegmentationRecipe,
        "pumit train, task: promptable": FineTuningRecipe,
        "pumit train, task: classification": ClassificationRecipe,
        "pumit compare": ComparisonRecipe,
    }
    for model in dict.fromkeys(PRETRAINING.values()):
        networks = [network for network, trained in PRETRAINING.items() if trained is model]
        recipes[f"pumit pretrain, network: {' or '.join(networks)}"] = model
    parts = [INTRODUCTION]
    for title, model in recipes.items():
        first = (model.__doc__ or "").partition("\n")[0]
        parts.append(f"## {title}\n\n{first}\n\n{recipe_reference(model)}")
    return "\n".join(parts).rstrip() + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
