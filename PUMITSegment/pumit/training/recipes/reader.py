"""YAML files of recipes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from pumit.errors import PumitError


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds keys.

    Raises:
        PumitError: If it cannot be read, or holds something else.
    """
    try:
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).replace(str(path), path.name).split())
        raise PumitError(f"Cannot read {path.name}: {reason}.") from None
    if not isinstance(recipe, dict):
        raise PumitError(f"{path.name} is not a recipe: it needs keys such as network, schedule.")
    return recipe


def paths_from(folder: Path) -> Callable[[str], Path]:
    """Return what makes paths of a recipe's texts; relative ones begin at a folder."""
    return lambda text: folder / Path(text).expanduser()
