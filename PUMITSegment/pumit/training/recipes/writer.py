"""Write recipes as YAML with a comment on each key."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from pumit.training.recipes.model import RecipeModel, descriptions, part_of
from pumit.training.recipes.tasks import model_for

# Lists that are written with one row per line.
ROWS = {"cases", "classes", "folders"}


def recipe_text(
    recipe: Mapping[str, Any],
    heading: Sequence[str] = (),
    model: type[RecipeModel] | None = None,
) -> str:
    """Return a recipe as YAML with comments; reading it gives the same recipe.

    The heading's lines are comments above it. Without a model, that of its task describes the keys.
    """
    model = model or model_for(recipe, "the recipe")
    lines = [f"# {' '.join(line.split())}" for line in heading]
    for key, value in recipe.items():
        comment = _comment(model, key)
        if isinstance(value, Mapping) and value:
            part = part_of(model, key)
            lines.append(f"{_flow(key)}:{comment}")
            for inner, content in value.items():
                lines += _entry(inner, content, _comment(part, inner))
        else:
            lines.append(f"{_flow(key)}: {_flow(value)}{comment}")
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Any, comment: str) -> list[str]:
    """Return the lines of one key of a nested part."""
    if key in ROWS and isinstance(value, list) and value:
        return [f"  {_flow(key)}:{comment}", *(f"    - {_flow(row)}" for row in value)]
    return [f"  {_flow(key)}: {_flow(value)}{comment}"]


def _comment(model: type[RecipeModel] | None, key: str) -> str:
    """Return the first sentence of a key's description as a comment."""
    text = "" if model is None else descriptions(model).get(key, "")
    text = re.split(r"(?<=\w)[.;] ", text)[0].rstrip(".")
    return f"  # {text}" if text else ""


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...").strip()
