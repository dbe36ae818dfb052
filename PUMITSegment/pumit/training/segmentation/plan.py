"""Plan of a segmentation run from its recipe and data, made before training."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pumit.errors import PumitError
from pumit.networks.build import RECIPES
from pumit.training.data.checks import DataFacts, examine
from pumit.training.data.classes import (
    ClassValue,
    has_regions,
    output_channels,
    region_table,
)
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.data.split import SplitData, split_set
from pumit.training.recipes.model import unknown_key
from pumit.training.recipes.segmentation import SegmentationRecipe
from pumit.training.segmentation.data_plan import (
    MIN_BATCH,
    DataPlan,
    plan_for,
    planned_spacing,
    usual_shape,
)
from pumit.training.segmentation.networks import (
    fitted_sizes,
    network_sizes,
    patch_divisor,
    patch_step,
)
from pumit.training.segmentation.patches import Augmentation, SegmentationSource, flip_axes
from pumit.training.segmentation.prepared_cases import PreparedCase
from pumit.training.segmentation.task import SegmentationTask

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SegmentationPlan(SplitData):
    """Complete plan of a run."""

    plan: DataPlan
    network: str
    sizes: dict[str, Any]


def check_network(recipe: SegmentationRecipe) -> None:
    """Check network and sizes of a recipe.

    Raises:
        PumitError: If the network is unknown, or a size is unknown or invalid.
    """
    patch_divisor(recipe.network, recipe.network_sizes)
    own = RECIPES[recipe.network].sizes
    for key, value in recipe.network_sizes.items():
        if key not in own:
            raise PumitError(unknown_key(key, own, "network_sizes"))
        if isinstance(own[key], bool) and not isinstance(value, bool):
            raise PumitError(f"{key} in network_sizes must be true or false, got {value!r}.")


def examine_cases(
    recipe: SegmentationRecipe,
    resolve: Callable[[str], Path],
    *,
    progress: Callable[[int], None] | None = None,
) -> tuple[LabelledSet, DataFacts]:
    """Find all cases and read each once.

    Raises:
        PumitError: If any case cannot be used; the message lists all of them.
    """
    data = find_labelled_set(recipe.data, resolve)

    def report(number: int) -> None:
        logger.info("looking at case %d", number)
        if progress is not None:
            progress(number)

    return data, examine(data, orientation=recipe.plan.orientation, progress=report)


def plan_segmentation(
    recipe: SegmentationRecipe,
    data: LabelledSet,
    facts: DataFacts,
    *,
    step_voxels: int,
) -> SegmentationPlan:
    """Plan everything that the recipe leaves open, such as `step_voxels` per step.

    Raises:
        PumitError: If values of the recipe do not fit together.
    """
    split = split_set(data.cases, recipe.data, seed=recipe.seed)
    used = SplitData(data, facts, split).facts_of(split.training)
    network, chosen = recipe.network, recipe.plan
    spacing = planned_spacing(used, chosen)
    given = fitted_sizes(
        network,
        recipe.network_sizes,
        spacing,
        depth=usual_shape(used, spacing)[0],
        patch=chosen.patch_size or (),
        most_voxels=(chosen.step_voxels or step_voxels) // MIN_BATCH,
    )
    plan = plan_for(
        used,
        divisor=(patch_divisor if chosen.patch_size else patch_step)(network, given),
        channels=facts.channels,
        channel_names=data.channels,
        orientation=chosen.orientation,
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
    recipe: SegmentationRecipe,
    network: nn.Module,
    plan: DataPlan,
    classes: Sequence[ClassValue],
    cases: Sequence[PreparedCase],
) -> SegmentationTask:
    """Return the training task; regions change its loss, names such as "left" turn flips off."""
    axes = flip_axes(recipe.augmentation, [c.label.name for c in classes])
    source = SegmentationSource(
        cases,
        patch=plan.patch_size,
        batch_size=plan.batch_size,
        balanced_share=recipe.balanced_share,
        augmentation=Augmentation(recipe.augmentation, plan.patch_size, plan.spacing_mm, axes),
    )
    regions = torch.from_numpy(region_table(classes)) if has_regions(classes) else None
    return SegmentationTask(
        network,
        source,
        regions=regions,
        dice_background=recipe.dice_background,
    )
