"""YAML recipes: read them, and say which key or value is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pumit.errors import PumitError

Kinds = Mapping[str, tuple[type, ...]]

# Keys that mean the same whatever is trained.
COMMON_KINDS: Kinds = {
    "name": (str,),
    "version": (str, int, float),
    "network": (str,),
    "network_sizes": (dict,),
    "initial": (str,),
    "seed": (int,),
    "threads": (int,),
    "device": (str,),
    "workers": (int,),
    "schedule": (dict,),
    "card": (dict,),
}
# Numbers of which there is at least one.
NEVER_ZERO = {
    "threads",
    "batch_size",
    "targets_per_field",
    "log_every",
    "accumulate",
    "field_size",
}


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


def check_keys(given: Mapping[str, Any], known: Kinds, where: str) -> None:
    """Check names and kinds of what a recipe gives.

    Args:
        given: Keys and values.
        known: The kinds that each key may have.
        where: What to call the place in a message.

    Raises:
        PumitError: If a key is unknown (the nearest right one is named), or a value is of the
            wrong kind, negative, not finite, or zero where there must be something.
    """
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), sorted(known), n=1)
            known_keys = f"; known: {', '.join(sorted(known))}."
            hint = f"; did you mean {near[0]!r}?" if near else known_keys
            raise PumitError(f"Unknown key {key!r} in {where}{hint}")
        is_right = isinstance(value, known[key]) and (
            bool in known[key] or not isinstance(value, bool)
        )
        is_negative = isinstance(value, (int, float)) and not 0 <= value < float("inf")
        is_zero = value == 0 and not isinstance(value, bool) and key in NEVER_ZERO
        if not is_right or is_negative or is_zero:
            kinds = " or ".join(kind.__name__ for kind in known[key])
            raise PumitError(f"{key} in {where} must be a usable {kinds}, got {value!r}.")
