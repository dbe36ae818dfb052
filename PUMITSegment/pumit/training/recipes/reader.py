"""YAML files of recipes, given by path or by the name of a shipped recipe."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from pumit.errors import PumitError


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the keys with values; YAML would keep only the last of equal keys."""
        rows = node.value if isinstance(node, yaml.MappingNode) else []
        for name, count in Counter(str(key.value) for key, _ in rows).items():
            if count > 1:
                raise yaml.MarkedYAMLError(None, None, f"{name!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text; raise YAMLError if it is invalid."""
    return _Loader(text).get_single_data()


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file with a mapping at its top level.

    Raises:
        PumitError: If the file cannot be read or holds something else.
    """
    try:
        recipe = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).replace(str(path), path.name).split())
        raise PumitError(f"Cannot read {path.name}: {reason}.") from None
    if not isinstance(recipe, dict):
        raise PumitError(f"{path.name} is not a recipe: it needs keys such as network, schedule.")
    return recipe


@dataclass(frozen=True)
class RecipeFile:
    """Keys of a recipe file, with the overrides of the command line.

    Attributes:
        source: Name of the file, for messages.
        folder: Base folder of relative paths.
        named_schedule: Keys of `schedule` in the file itself.
    """

    keys: Mapping[str, Any]
    source: str
    folder: Path
    named_schedule: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, folder: Path | None = None) -> RecipeFile:
        """Read a file; relative paths start from `folder`, by default the file's own."""
        keys = read_yaml(path)
        return cls(keys, path.name, folder or path.parent, keys.get("schedule", {}))

    def path(self, text: str) -> Path:
        """Resolve a path of the recipe."""
        return self.folder / Path(text).expanduser()

    def model(self, text: str) -> str:
        """Return the path of a model file, or the text unchanged if it is a name in the index."""
        path = self.path(text)
        return str(path) if path.is_file() else text

    def changed(self, changes: Mapping[str, Any]) -> RecipeFile:
        """Replace keys; `data` and `schedule` are merged key by key."""
        keys = dict(self.keys)
        for key, value in changes.items():
            if key not in ("data", "schedule"):
                keys[key] = value
            elif value:
                given = keys.get(key) or {}
                if not isinstance(given, Mapping):
                    raise PumitError(f"{key} in {self.source} must be keys with values.")
                keys[key] = {**given, **value}
        if "steps" in changes.get("schedule", {}):
            keys.pop("epochs", None)  # steps of the command line override epochs
        return replace(self, keys=keys)


def recipe_folder() -> Path:
    """Return the folder of the shipped recipes."""
    return Path(str(resources.files("pumit.training"))) / "recipes"


def shipped_recipe(name: str) -> Path:
    """Return the path of a shipped recipe, whether or not it exists."""
    return recipe_folder() / f"{name}.yaml"


def recipe_names(command: str = "") -> list[str]:
    """Return the names of the shipped recipes, of one command as their top comments name it."""
    names = []
    for file in sorted(recipe_folder().glob("*.yaml")):
        found = re.search(r"\bpumit (train|pretrain|compare)\b", file.read_text("utf-8"))
        if not command or (found and found[1] == command):
            names.append(file.stem)
    return names
