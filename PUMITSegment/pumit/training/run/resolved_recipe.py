"""Resolved recipe of a run, saved in its folder and used to resume it."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pumit.errors import CheckpointError
from pumit.runs import RECIPE
from pumit.system.files import write_text
from pumit.system.wording import listed
from pumit.training.recipes.schedule import Schedule
from pumit.training.recipes.writer import recipe_text
from pumit.training.run.resume_state import LAST

# Recipes that the run was started with, to detect changes; `recipe.yaml` itself may be edited.
STARTED = "started.json"
HEADING = (
    "The recipe of this run as it runs; what was left out is filled in.",
    "`pumit train recipe.yaml -o .` in this folder continues where the run was saved.",
)
# Keys that may change when a run is resumed: length, logging, device, image folders, metadata.
HARMLESS = (
    "schedule.steps",
    "schedule.seconds",
    "schedule.checkpoint_seconds",
    "schedule.log_every",
    "schedule.validate_every",
    "threads",
    "workers",
    "device",
    "register",
    "card",
    "version",
    "real_folder",
    "unlabelled",
    "cache",
)
# Keys whose values are paths, or lists of paths.
PATHS = ("real_folder", "unlabelled", "cache", "perceptual_weights")
# Keys of `data`, and of its cases, that are paths.
DATA_PATHS = ("folder", "file")
CASE_PATHS = ("image", "images", "label", "labels")
MOST_NAMED = 6

Recipe = dict[str, Any]


def plain(value: Any) -> Any:
    """Return a value as plain lists, dictionaries, strings and numbers, as in JSON."""
    return json.loads(json.dumps(value, default=str))


def with_absolute_paths(recipe: Mapping[str, Any], path_of: Callable[[str], Path]) -> Recipe:
    """Return a recipe with absolute paths, resolved by `path_of` from those in its file."""

    def absolute(text: Any) -> Any:
        if isinstance(text, (list, tuple)):
            return [absolute(part) for part in text]
        return str(path_of(text).absolute()) if isinstance(text, str) else text

    changed: Recipe = dict(recipe)
    data = changed.get("data")
    if isinstance(data, Mapping):
        data = {k: absolute(v) if k in DATA_PATHS else v for k, v in data.items()}
        for rows, paths in (("cases", CASE_PATHS), ("folders", DATA_PATHS)):
            if isinstance(data.get(rows), (list, tuple)):
                data[rows] = [
                    {k: absolute(v) if k in paths else v for k, v in row.items()}
                    if isinstance(row, Mapping)
                    else row
                    for row in data[rows]
                ]
        changed["data"] = data
    networks = changed.get("networks")  # of a comparison
    if isinstance(networks, (list, tuple)):
        changed["networks"] = [
            with_absolute_paths(row, path_of) if isinstance(row, Mapping) else row
            for row in networks
        ]
    for key in PATHS:
        changed |= {key: absolute(changed[key])} if key in changed else {}
    for key in ("initial", "eva02", "tokenizer"):
        text = changed.get(key)
        if isinstance(text, str) and path_of(text).is_file():  # else a name in the index
            changed[key] = absolute(text)
    return changed


def full_recipe(keys: Mapping[str, Any], schedule: Schedule, planned: Mapping[str, Any]) -> Recipe:
    """Return a recipe with all resolved values; planned ones override the given ones."""
    kept = whole_schedule(schedule, keys)
    full: Recipe = plain({**keys, **planned, "schedule": kept})
    return {key: value for key, value in full.items() if value is not None}


def whole_schedule(schedule: Schedule, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's `schedule` with all values.

    Args:
        keys: Recipe of the schedule. With `epochs`, `steps` and `validate_every` are left out
            unless they are given.
    """
    named = keys.get("schedule", {})
    left_open = {"steps", "validate_every"} - set(named) if "epochs" in keys else set()
    return {k: v for k, v in schedule.model_dump().items() if v is not None and k not in left_open}


def recipe_to_follow(folder: Path, given: Mapping[str, Any], *, source: str) -> Recipe:
    """Return the recipe to follow: that of a saved run in the folder, if there is one.

    Args:
        given: The current recipe, with a complete schedule.

    Raises:
        CheckpointError: If it differs from the saved run's in keys that must not change; the
            message names them.
    """
    given = plain(given)
    known = started_recipes(folder)
    if not known or not any(folder.rglob(LAST)):
        return dict(given)
    changes = min((differences(recipe, given) for recipe in known), key=len)
    if changes:
        named = listed(changes, MOST_NAMED, ";")
        raise CheckpointError(
            f"{folder.name} holds a run of another recipe than {source}: {named}. Change it "
            "back to continue, or choose another folder to start again."
        )
    return _with_harmless(known[-1], given)


def save_recipes(folder: Path, given: Mapping[str, Any], full: Mapping[str, Any]) -> None:
    """Save the recipes that the run was started with, and the one that it follows.

    Raises:
        ExportError: If they cannot be written.
    """
    known = started_recipes(folder) if any(folder.rglob(LAST)) else []
    known = [r for r in [*known, plain(given)] if r != full]
    recipes = [*(r for i, r in enumerate(known) if r not in known[:i]), plain(full)]
    write_text(folder / STARTED, json.dumps({"recipes": recipes}, indent=1), durable=True)
    write_text(folder / RECIPE, recipe_text(plain(full), HEADING), durable=True)


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], *, harmless: Sequence[str] = HARMLESS
) -> list[str]:
    """Describe the differences of two recipes, except harmless ones.

    Missing values of `schedule`, as in older versions, count as defaults.
    """
    usual = _leaves({"schedule": Schedule().model_dump(mode="json")})
    ours, theirs = ({**usual, **_leaves(recipe)} for recipe in (before, after))
    return [
        f"{key} was {_shown(ours.get(key))}, is {_shown(theirs.get(key))}"
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
        and not any(key == name or key.startswith(f"{name}.") for name in harmless)
    ]


def started_recipes(folder: Path) -> list[Recipe]:
    """Return the recipes that the run was started with; the last is the one that it follows."""
    try:
        content = json.loads((folder / STARTED).read_text(encoding="utf-8"))
        return [recipe for recipe in content["recipes"] if isinstance(recipe, dict)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _with_harmless(followed: Recipe, given: Mapping[str, Any]) -> Recipe:
    """Return the recipe that the run follows, with harmless keys from the given recipe."""
    changed: Recipe = json.loads(json.dumps(followed))
    for key in HARMLESS:
        section, _, name = key.rpartition(".")
        target = changed.setdefault(section, {}) if section else changed
        source = given.get(section, {}) if section else given
        if name in source:
            target[name] = source[name]
        else:
            target.pop(name, None)
    return changed


def _leaves(value: Any, where: str = "") -> dict[str, Any]:
    """Return all values by path, such as "schedule.steps"; lists count as values."""
    if not isinstance(value, Mapping):
        return {} if value is None else {where: value}
    found: dict[str, Any] = {}
    for key, part in value.items():
        found |= _leaves(part, f"{where}.{key}" if where else str(key))
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "not given"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
