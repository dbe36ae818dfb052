"""The recipes that ship, found by their names."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def recipe_folder() -> Path:
    """Folder of the recipes that ship."""
    return Path(str(resources.files("pumit.training"))) / "recipes"


def shipped_recipe(name: str) -> Path:
    """File of a recipe that ships, which need not be there."""
    return recipe_folder() / f"{name}.yaml"


def recipe_names() -> list[str]:
    """Names of the recipes that ship."""
    return sorted(path.stem for path in recipe_folder().glob("*.yaml"))
