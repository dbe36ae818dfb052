"""The reference page of all recipe keys, from the recipe models."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.comparison import ComparisonRecipe
from pumit.training.recipes.model import RecipeModel, descriptions, models_in
from pumit.training.recipes.pretraining import PRETRAINING
from pumit.training.recipes.promptable import FineTuningRecipe, SamRecipe
from pumit.training.recipes.segmentation import SegmentationRecipe
from pydantic import BaseModel

_INTRODUCTION = """# Keys of recipes

This page is generated from the program. A recipe is a YAML file. `pumit train`, `pumit pretrain`
and `pumit compare` check it first; the error for a misspelt key names the nearest valid one.
`pumit plan RECIPE --check` only checks a recipe. A key that is omitted has its default;
`required` keys have none. The shipped recipes are examples of each kind.
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


def recipe_reference(model: type[RecipeModel], path: str = "") -> str:
    """Return Markdown tables of all keys with their types, defaults and descriptions.

    The path, such as `data.cases`, is the table's title; nested parts follow in their own tables.
    """
    described = descriptions(model)
    lines = [f"### {path}", ""] if path else []
    lines += ["| key | type | default | |", "|---|---|---|---|"]
    parts: list[str] = []
    for field_name, info in model.model_fields.items():
        name = info.alias or field_name
        default = "required"
        if not info.is_required():
            default = _default_text(info.get_default(call_default_factory=True))
        kind = _type_text(info.annotation).replace("|", "\\|")
        lines.append(f"| `{name}` | {kind} | {default} | {described.get(name, '')} |")
        parts += [
            recipe_reference(part, f"{path}.{name}".removeprefix("."))
            for part in models_in(info.annotation)
        ]
    return "\n".join([*lines, "", *parts])


def _type_text(annotation: Any) -> str:
    """Return a readable name of a type, such as `list of int` or `str or none`."""
    if annotation is type(None):
        return "none"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(parts[0])
    if not parts:
        is_part = bool(models_in(annotation))
        return "keys" if is_part or annotation is dict else getattr(annotation, "__name__", "any")
    texts = list(dict.fromkeys(_type_text(part) for part in parts))
    name = getattr(origin, "__name__", "")
    if name == "Literal":
        return " or ".join(f"`{part}`" for part in parts)
    if name == "dict":
        return f"{texts[0]} to {texts[-1]}"
    return f"list of {texts[0]}" if name in ("list", "Sequence") else " or ".join(texts)


def _default_text(value: Any) -> str:
    is_part = isinstance(value, BaseModel) or (isinstance(value, list) and len(value) == 1)
    if value is None or is_part or value in ({}, [], (), ""):
        return ""
    return f"`{list(value) if isinstance(value, tuple) else value}`"
