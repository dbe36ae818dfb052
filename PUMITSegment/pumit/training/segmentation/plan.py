"""What a segmentation run does, decided from its recipe and its data before anything is trained."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import torch
from torch import nn

from pumit.errors import PumitError
from pumit.networks.build import RECIPES
from pumit.preprocessing.network_axes import Orientation
from pumit.training.data.checks import DataFacts, examine
from pumit.training.data.classes import (
    ClassValue,
    has_regions,
    output_channels,
    region_table,
)
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.labelled_set import DATA_KINDS, LabelledCase, find_labelled_set
from pumit.training.data.split import Split, split_cases
from pumit.training.loop.context import COMMON_KINDS
from pumit.training.recipes.reader import Kinds, check_keys
from pumit.training.segmentation.augmentation import Augmentation, AugmentationSettings
from pumit.training.segmentation.data_plan import (
    MIN_BATCH,
    DataPlan,
    plan_for,
    usual_shape,
    wanted_spacing,
)
from pumit.training.segmentation.networks import (
    DEFAULT_NETWORK,
    fitted_sizes,
    network_sizes,
    patch_divisor,
    patch_step,
)
from pumit.training.segmentation.patches import SegmentationSource
from pumit.training.segmentation.prepared_cases import PreparedCase
from pumit.training.segmentation.task import SegmentationTask

logger = logging.getLogger(__name__)

SEGMENTATION_KINDS: Kinds = {
    **COMMON_KINDS,
    "plan": (dict,),
    "balanced_share": (int, float),
    "dice_background": (bool,),
    "augmentation": (dict, bool),
    "validation": (dict,),
}
VALIDATION_KINDS: Kinds = {"overlap": (int, float), "final_overlap": (int, float), "flips": (bool,)}
BALANCED_SHARE = 0.75  # random to class-balanced patches as 1 to 3, as published


@dataclass(frozen=True)
class SegmentationPlan:
    """A run that can begin.

    Attributes:
        data: Cases and classes.
        facts: What was found in them.
        split: Who trains and who validates.
        plan: Spacing, patch, batch and intensities.
        network: Name of the network.
        sizes: What it is built with.
    """

    data: LabelledSet
    facts: DataFacts
    split: Split
    plan: DataPlan
    network: str
    sizes: dict[str, Any]

    def cases(self, names: tuple[str, ...]) -> list[LabelledCase]:
        """Cases of these names."""
        by_name = {case.name: case for case in self.data.cases}
        return [by_name[name] for name in names]


def check_segmentation_recipe(recipe: Mapping[str, Any], source: str) -> None:
    """Check the keys of a recipe with `task: segmentation`.

    Args:
        recipe: The whole recipe.
        source: Its file's name, for messages.

    Raises:
        PumitError: If a key is misspelt (the nearest right one is named), or a value is unusable.
    """
    check_keys(recipe, SEGMENTATION_KINDS, source)
    if "data" not in recipe:
        raise PumitError(f"{source} needs data: a folder or a list of cases.")
    check_keys(recipe["data"], DATA_KINDS, "data")
    check_keys(recipe.get("validation", {}), VALIDATION_KINDS, "validation")
    if not 0 <= recipe.get("balanced_share", BALANCED_SHARE) <= 1:
        raise PumitError(f"balanced_share in {source} must be a share from 0 to 1.")
    AugmentationSettings.from_recipe(recipe.get("augmentation", {}))
    given = recipe.get("plan", {}).get("orientation", "anatomical")
    if given not in get_args(Orientation):
        raise PumitError(f"plan.orientation must be anatomical or stored, got {given!r}.")
    sizes = recipe.get("network_sizes", {})
    patch_divisor(_network(recipe), sizes)
    own = RECIPES[_network(recipe)].sizes
    kinds: Kinds = {k: (bool,) if isinstance(v, bool) else (object,) for k, v in own.items()}
    check_keys(sizes, kinds, "network_sizes")


def look_at_cases(
    recipe: Mapping[str, Any],
    resolve: Callable[[str], Path],
    *,
    progress: Callable[[int], None] | None = None,
) -> tuple[LabelledSet, DataFacts]:
    """Find all cases and read each once.

    Args:
        recipe: Checked by `check_segmentation_recipe`.
        resolve: Makes paths of the recipe's texts.
        progress: Told each case's number, from 1 on.

    Raises:
        PumitError: If any case cannot be used; one message names them all.
    """
    data = find_labelled_set(recipe["data"], resolve)

    def tell(number: int) -> None:
        logger.info("looking at case %d", number)
        if progress is not None:
            progress(number)

    return data, examine(data, orientation=_orientation(recipe), progress=tell)


def plan_segmentation(
    recipe: Mapping[str, Any],
    data: LabelledSet,
    facts: DataFacts,
    *,
    step_voxels: int,
    seed: int,
) -> SegmentationPlan:
    """Decide all that the recipe leaves open.

    Args:
        recipe: Checked by `check_segmentation_recipe`.
        data: Cases and classes.
        facts: What was found in them.
        step_voxels: Voxels of a step, where the recipe does not say.
        seed: Of the split.

    Raises:
        PumitError: If the recipe asks for what does not fit.
    """
    patients = {c.name: p for c in data.cases if (p := getattr(c, "patient", ""))}
    names = [case.name for case in data.cases]
    split = split_cases(names, recipe["data"], seed=seed, patients=patients)
    used = [fact for fact in facts.cases if fact.name in set(split.training)]
    network = _network(recipe)
    chosen = recipe.get("plan", {})
    spacing = wanted_spacing(used, chosen)
    given = fitted_sizes(
        network,
        recipe.get("network_sizes", {}),
        spacing,
        depth=usual_shape(used, spacing)[0],
        patch=chosen.get("patch_size", ()),
        most_voxels=int(chosen.get("step_voxels", step_voxels)) // MIN_BATCH,
    )
    plan = plan_for(
        used,
        divisor=(patch_divisor if "patch_size" in chosen else patch_step)(network, given),
        channels=facts.channels,
        channel_names=data.channels,
        orientation=_orientation(recipe),
        step_voxels=step_voxels,
        given=chosen,
    )
    sizes = network_sizes(
        network,
        given,
        patch=plan.patch_size,
        channels=plan.channels,
        classes=output_channels(data.classes),
    )
    return SegmentationPlan(data, facts, split, plan, network, sizes)


def build_task(
    recipe: Mapping[str, Any],
    network: nn.Module,
    plan: DataPlan,
    classes: Sequence[ClassValue],
    cases: Sequence[PreparedCase],
) -> SegmentationTask:
    """The objective of a run.

    Args:
        recipe: With `balanced_share`, `dice_background` and `augmentation`.
        network: What is trained.
        plan: Patch, batch and spacing.
        classes: Whether they are regions; their names tell which mirrors are allowed.
        cases: What patches are cut from.
    """
    settings = AugmentationSettings.from_recipe(recipe.get("augmentation", {}))
    flip_axes = settings.flip_axes([c.label.name for c in classes])
    source = SegmentationSource(
        cases,
        patch=plan.patch_size,
        batch_size=plan.batch_size,
        balanced_share=float(recipe.get("balanced_share", BALANCED_SHARE)),
        augmentation=Augmentation(settings, plan.patch_size, plan.spacing_mm, flip_axes),
    )
    regions = torch.from_numpy(region_table(classes)) if has_regions(classes) else None
    return SegmentationTask(
        network,
        source,
        regions=regions,
        dice_background=bool(recipe.get("dice_background", True)),
    )


def _network(recipe: Mapping[str, Any]) -> str:
    return str(recipe.get("network", DEFAULT_NETWORK))


def _orientation(recipe: Mapping[str, Any]) -> Orientation:
    return cast(Orientation, recipe.get("plan", {}).get("orientation", "anatomical"))
