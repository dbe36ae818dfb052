"""What the recipe of a classifier says, checked before anything is read or built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from pumit.errors import CheckpointError, PumitError
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.preprocessing.network_axes import Orientation
from pumit.preprocessing.normalization import Normalization
from pumit.training.classification.cases import ClassificationData, require_split
from pumit.training.classification.reader import read_classification_data
from pumit.training.loop.context import COMMON_KINDS, TrainingRun
from pumit.training.recipes.reader import Kinds, check_keys
from pumit.training.recipes.schedule import DEFAULT_SCHEDULE, Schedule

KINDS: Kinds = {
    **COMMON_KINDS,
    "eva02": (str,),
    "image_size": (list,),
    "intensity": (dict,),
    "orientation": (str,),
    "random_intensity": (bool,),
    "flips": (bool,),
    "batch_size": (int,),
    "epochs": (int,),
    "drop_epochs": (list,),
    "learning_rates": (list,),
}
DATA_KINDS: Kinds = {
    "file": (str,),
    "folder": (str,),
    "classes": (list,),
    "split": (dict,),
    "patient": (str,),
}
DEFAULT_NETWORK = "pumit_classifier_small"
# MedMNIST's images are unsigned bytes.
BYTES = Normalization("range", (0.0, 255.0), (0.0, 1.0))


def check_recipe(recipe: Mapping[str, Any], source: str) -> None:
    """Refuse keys and values that cannot be used; reads no data.

    Raises:
        PumitError: If there are any.
    """
    check_keys(recipe, KINDS, source)
    data = recipe.get("data", {})
    check_keys(data, DATA_KINDS, "data")
    if ("file" in data) == ("folder" in data):
        raise PumitError(
            f"data in {source} needs either file (an .npz of MedMNIST) or folder (one folder per "
            "class); --data gives either."
        )
    require_split(data.get("split"))
    _whole_numbers(recipe, "image_size", 3)
    _whole_numbers(recipe, "drop_epochs", None)
    rates = recipe.get("learning_rates", [])
    if not all(isinstance(rate, (int, float)) and 0 < rate < 1 for rate in rates):
        raise PumitError(f"learning_rates in {source} must be numbers below 1, got {rates}.")
    if "epochs" in recipe and "steps" in recipe.get("schedule", {}):
        raise PumitError(f"{source} has both epochs and steps in its schedule; give one of them.")
    if "initial" in recipe and "eva02" in recipe:
        raise PumitError(f"{source} begins with initial and with eva02; give one of them.")


def _whole_numbers(recipe: Mapping[str, Any], key: str, count: int | None) -> None:
    given = recipe.get(key, [1] * (count or 0))
    is_right = all(type(n) is int and n > 0 for n in given)
    if not is_right or (count is not None and len(given) != count):
        what = "whole numbers above 0" if count is None else f"{count} whole numbers above 0"
        raise PumitError(f"{key} must be {what}, got {given}.")


def read_data(run: TrainingRun) -> ClassificationData:
    """The data set that the recipe names.

    Raises:
        PumitError: If it cannot be learned from.
    """
    data = run.recipe["data"]
    path: Path = run.path(data["file"] if "file" in data else data["folder"])
    names = tuple(str(name) for name in data.get("classes", ()))
    if len(set(names)) < len(names):
        raise PumitError(f"data.classes holds a name twice: {', '.join(names)}.")
    return read_classification_data(
        path,
        classes=names,
        split=data.get("split"),
        patient=data.get("patient"),
        seed=run.seed,
    )


def form_of(
    recipe: Mapping[str, Any], sizes: Mapping[str, Any], is_stored: bool
) -> ClassifierInput:
    """What the network sees of an image.

    Args:
        recipe: The recipe.
        sizes: Of the network: `in_channels`, `fixed_patch`, and `position_table`, whose field is
            the default of `image_size`.
        is_stored: Whether the images come without headers, as those of MedMNIST.

    Raises:
        PumitError: If the patch is not fixed, the size is no multiple of it, or intensities
            cannot be scaled so.
    """
    patch = sizes["fixed_patch"]
    if patch is None:
        raise PumitError("A classifier's patch is fixed; give fixed_patch in network_sizes.")
    table = sizes["position_table"]
    d, h, w = recipe.get("image_size", [p * n for p, n in zip(patch, table, strict=True)])
    if any(n % p for n, p in zip((d, h, w), patch, strict=True)):
        raise PumitError(
            f"image_size {d} x {h} x {w} is no multiple of the network's patch "
            f"{' x '.join(map(str, patch))}; change one of them."
        )
    orientation = recipe.get("orientation", "stored" if is_stored else "anatomical")
    if orientation not in get_args(Orientation):
        known = " or ".join(get_args(Orientation))
        raise PumitError(f"orientation must be {known}, got {orientation!r}.")
    normalization = BYTES if is_stored else Normalization()
    if "intensity" in recipe:
        try:
            normalization = Normalization.from_recipe(recipe["intensity"])
        except CheckpointError as error:
            raise PumitError(f"intensity cannot be used: {error}") from None
    factor = 0.5 if recipe.get("random_intensity", False) else 1.0
    return ClassifierInput(
        (d, h, w),
        int(sizes["in_channels"]),
        normalization,
        cast(Orientation, orientation),
        factor,
    )


def plan_of(
    recipe: Mapping[str, Any], schedule: Schedule, cases: int, *, processes: int
) -> list[Schedule]:
    """Schedules with epochs counted in steps, one for each learning rate that is tried.

    `epochs` says how long to train unless the command line says `steps`; `drop_epochs` are the
    epochs after which the rate falls. Every epoch ends with a validation unless the recipe's
    schedule has `validate_every`.

    Args:
        recipe: The recipe.
        schedule: Its schedule, with defaults and what the command line says.
        cases: Training cases.
        processes: How many train together.
    """
    given = recipe.get("schedule", {})
    per_epoch = -(-cases // (batch_size(recipe) * schedule.accumulate * processes))
    changes: dict[str, Any] = {}
    if "epochs" in recipe:
        if "validate_every" not in given:
            changes["validate_every"] = per_epoch
        if schedule.steps == DEFAULT_SCHEDULE["steps"]:
            changes["steps"] = int(recipe["epochs"]) * per_epoch
    if recipe.get("drop_epochs"):
        milestones = sorted({int(epoch) * per_epoch for epoch in recipe["drop_epochs"]})
        changes |= {"shape": "steps", "milestones": milestones}
    rates = recipe.get("learning_rates") or [schedule.learning_rate]
    return [replace(schedule, **changes, learning_rate=float(rate)) for rate in rates]


def batch_size(recipe: Mapping[str, Any]) -> int:
    """Cases in a batch, by default as many as in the source."""
    return int(recipe.get("batch_size", 32))
