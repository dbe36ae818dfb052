"""The recipes that ship, found by their names."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path


def recipe_folder() -> Path:
    """Folder of the recipes that ship."""
    return Path(str(resources.files("pumit.training"))) / "recipes"


def shipped_recipe(name: str) -> Path:
    """File of a recipe that ships, which need not be there."""
    return recipe_folder() / f"{name}.yaml"


def recipe_names(command: str = "") -> list[str]:
    """Names of the recipes that ship; of one command, as the comment before each recipe says."""
    files = sorted(recipe_folder().glob("*.yaml"))
    return [file.stem for file in files if not command or _command_of(file) == command]


def _command_of(recipe: Path) -> str:
    found = re.search(r"\bpumit (train|pretrain|compare)\b", recipe.read_text("utf-8"))
    return found[1] if found else ""
