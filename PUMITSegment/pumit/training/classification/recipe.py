"""What the recipe of a classifier says, checked before anything is read or built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pumit.errors import PumitError
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.preprocessing.normalization import Normalization
from pumit.training.classification.cases import ClassificationData, require_split
from pumit.training.classification.reader import read_classification_data
from pumit.training.loop.context import TrainingRun
from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.schedule import Schedule

# MedMNIST's images are unsigned bytes.
BYTES = Normalization("range", (0.0, 255.0), (0.0, 1.0))


def read_data(recipe: ClassificationRecipe, run: TrainingRun) -> ClassificationData:
    """Return the data set that the recipe names.

    Raises:
        PumitError: If it cannot be learned from.
    """
    data = recipe.data
    require_split(data.split)
    path = run.file.path(str(data.folder if data.file is None else data.file))
    names = tuple(str(name) for name in data.classes)
    if len(set(names)) < len(names):
        raise PumitError(f"data.classes holds a name twice: {', '.join(names)}.")
    return read_classification_data(
        path,
        classes=names,
        split=data.split,
        patient=data.patient,
        seed=run.seed,
    )


def form_of(
    recipe: ClassificationRecipe, sizes: Mapping[str, Any], is_stored: bool
) -> ClassifierInput:
    """Return the form of an image that the network sees.

    Args:
        sizes: Sizes of the network: `in_channels`, `fixed_patch`, and `position_table`, whose
            field is the default of `image_size`.
        is_stored: Whether the images come without headers, as those of MedMNIST.

    Raises:
        PumitError: If the patch is not fixed, the size is no multiple of it, or intensities
            cannot be scaled so.
    """
    patch = sizes["fixed_patch"]
    if patch is None:
        raise PumitError("A classifier's patch is fixed; give fixed_patch in network_sizes.")
    table = sizes["position_table"]
    d, h, w = recipe.image_size or [p * n for p, n in zip(patch, table, strict=True)]
    if any(n % p for n, p in zip((d, h, w), patch, strict=True)):
        raise PumitError(
            f"image_size {d} x {h} x {w} is no multiple of the network's patch "
            f"{' x '.join(map(str, patch))}; change one of them."
        )
    orientation = recipe.orientation or ("stored" if is_stored else "anatomical")
    normalization = BYTES if is_stored else Normalization()
    if recipe.intensity is not None:
        normalization = Normalization.from_recipe(recipe.intensity.model_dump())
    factor = 0.5 if recipe.random_intensity else 1.0
    return ClassifierInput(
        (d, h, w),
        int(sizes["in_channels"]),
        normalization,
        orientation,
        factor,
    )


def plan_of(
    recipe: ClassificationRecipe, schedule: Schedule, cases: int, *, processes: int
) -> list[Schedule]:
    """Schedules with epochs counted in steps, one for each learning rate that is tried.

    Where the recipe has `epochs`, every one ends with a validation unless its schedule has
    `validate_every`; `drop_epochs` are the epochs after which the rate falls.

    Args:
        schedule: Its schedule, with defaults and what the command line says.
    """
    per_epoch = -(-cases // (recipe.batch_size * schedule.accumulate * processes))
    changes: dict[str, Any] = {}
    if recipe.epochs is not None:
        changes["steps"] = recipe.epochs * per_epoch
        if "validate_every" not in recipe.schedule.model_fields_set:
            changes["validate_every"] = per_epoch
    if recipe.drop_epochs:
        milestones = sorted({epoch * per_epoch for epoch in recipe.drop_epochs})
        changes |= {"shape": "steps", "milestones": milestones}
    rates = recipe.learning_rates or [schedule.learning_rate]
    return [replace(schedule, **changes, learning_rate=float(rate)) for rate in rates]
