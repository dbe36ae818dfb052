"""Recipe, plan and facts of a comparison, which all its trainings share."""

import math
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pumit import __version__
from pumit.errors import PumitError
from pumit.inference.loading import pick_device
from pumit.networks.build import build_network
from pumit.system.machine import usable_cores
from pumit.training.data.checks import DataFacts
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.split import SplitData
from pumit.training.planning.estimate import hardware_for
from pumit.training.recipes.comparison import ComparedNetwork, ComparisonRecipe
from pumit.training.recipes.model import read_model
from pumit.training.recipes.reader import RecipeFile
from pumit.training.recipes.segmentation import PlanChoices
from pumit.training.run.hardware import processor_title
from pumit.training.run.resolved_recipe import Recipe, plain, with_absolute_paths
from pumit.training.segmentation.data_plan import (
    CPU_STEP_VOXELS,
    GPU_STEP_VOXELS,
    MIN_BATCH,
    DataPlan,
    patch_for,
)
from pumit.training.segmentation.initial_weights import load_initial_weights
from pumit.training.segmentation.networks import patch_step
from pumit.training.segmentation.plan import SegmentationPlan, examine_cases, plan_segmentation
from pumit.training.validate import read_segmentation

FOREVER = 1_000_000  # steps of a training that is ended by its seconds
# Keys of a comparison that are copied to each training.
SHARED = ("data", "plan", "augmentation", "balanced_share", "validation", "device", "threads")


@dataclass(frozen=True)
class Comparison:
    """Recipe of a comparison with its file.

    Attributes:
        file: Keys of the file, with overrides of the command line.
    """

    recipe: ComparisonRecipe
    file: RecipeFile

    @property
    def schedule(self) -> dict[str, Any]:
        """Schedule that all networks share, with its defaults."""
        recipe = self.recipe
        ends = {} if recipe.seconds is None else {"seconds": recipe.seconds, "steps": FOREVER}
        schedule = {
            **recipe.schedule.model_dump(),
            **ends,
            **recipe.schedule.named("steps"),
            "clock": recipe.clock,
            "validate_every": 0,
        }
        return {key: value for key, value in schedule.items() if value is not None}

    def training_keys(self, network: ComparedNetwork, seed: int) -> dict[str, Any]:
        """Return the recipe of one training, for `pumit train`."""
        keys: dict[str, Any] = {
            "task": "segmentation",
            "name": network.slug,
            "network": network.network,
            "network_sizes": dict(network.network_sizes),
            "seed": seed,
            "workers": 0,  # the CPU time of workers is not counted
            "register": False,
            **{key: self.file.keys[key] for key in SHARED if key in self.file.keys},
            "schedule": {**self.schedule, **network.schedule.named()},
        }
        if network.initial is not None:
            keys["initial"] = network.initial
        if network.share is not None:
            keys["data"] = {**keys["data"], "share": network.share}
        return keys


def read_comparison(
    path: Path, *, folder: Path | None = None, data: Mapping[str, Any] | None = None
) -> Comparison:
    """Read the recipe of a comparison and check every key; reads no scan. `data` overrides keys.

    Raises:
        PumitError: If a key is unknown (the closest match is suggested), a value is invalid, or the
            trainings are not comparable.
    """
    file = RecipeFile.read(path, folder).changed({"data": data or {}})
    if "networks" not in file.keys:
        raise PumitError(f"{file.source} is no recipe of `pumit compare`: it lists no networks.")
    recipe = read_model(ComparisonRecipe, file.keys, file.source)
    found = Comparison(recipe, file)
    for network in recipe.networks:
        with _named(network):
            read_segmentation(found.training_keys(network, recipe.seeds[0]), path.name)
    return found


@contextmanager
def _named(network: ComparedNetwork) -> Iterator[None]:
    """Name the network in errors."""
    try:
        yield
    except PumitError as error:
        raise PumitError(f"{network.name}: {error}") from None


@dataclass(frozen=True)
class Training:
    """One training of a comparison.

    Attributes:
        keys: Its complete recipe, with absolute paths.
    """

    network: ComparedNetwork
    seed: int
    keys: Recipe

    @property
    def title(self) -> str:
        """Title in messages."""
        return f"{self.network.name}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return f"{self.network.slug}_{self.seed}"


@dataclass(frozen=True)
class PlannedComparison(SplitData):
    """Complete plan of a comparison.

    Attributes:
        trainings: Trainings by seed, then by network in the recipe's order.
    """

    trainings: tuple[Training, ...]
    plan: DataPlan
    device: torch.device


def plan_comparison(
    comparison: Comparison, *, progress: Callable[[int], None] | None = None
) -> PlannedComparison:
    """Read all cases once and plan what the trainings share.

    Unless the recipe gives the patch, it is planned as a multiple of the divisors of all networks.

    Args:
        progress: Called with the number of each case that is read.

    Raises:
        PumitError: If the data cannot be used, there is no validation case, or something does not
            fit a network, which the message names.
    """
    recipe, file = comparison.recipe, comparison.file
    device = pick_device(recipe.device)
    if device.type != "cpu" and recipe.clock == "processor":
        raise PumitError(
            f"clock: processor counts CPU time, and these trainings use {device.type}; "
            "choose clock: wall, or device: cpu."
        )
    first = read_segmentation(
        comparison.training_keys(recipe.networks[0], recipe.seeds[0]), file.source
    )
    data, facts = examine_cases(first, file.path, progress=progress)
    planner = _Planner(comparison, data, facts, device)
    ready = planner.together()
    if not ready.split.validation:
        raise PumitError("A comparison needs cases that no training uses; give data.validation.")
    whole: dict[str, Any] = {
        "data": ready.settled(file.keys["data"]),
        "plan": {k: v for k, v in ready.plan.as_recipe().items() if k in PlanChoices.model_fields},
        "device": str(device),
        "threads": recipe.threads or max(1, usable_cores() // recipe.processes),
    }
    fixed = replace(comparison, file=replace(file, keys={**file.keys, **whole}))
    # Build every network as its training will.
    planner.comparison = fixed
    for network in recipe.networks:
        planner.build(network)
    trainings = tuple(
        Training(
            network, seed, plain(with_absolute_paths(fixed.training_keys(network, seed), file.path))
        )
        for seed in recipe.seeds
        for network in recipe.networks
    )
    return PlannedComparison(data, facts, ready.split, trainings, ready.plan, device)


class _Planner:
    """Planner of single networks and of their common patch; its errors name the network."""

    def __init__(
        self, comparison: Comparison, data: LabelledSet, facts: DataFacts, device: torch.device
    ) -> None:
        self.comparison, self.data, self.facts = comparison, data, facts
        self.voxels = CPU_STEP_VOXELS if device.type == "cpu" else GPU_STEP_VOXELS

    def plan(self, network: ComparedNetwork, **plan: Any) -> SegmentationPlan:
        """Return the plan of a network; `plan` holds values of it that are already fixed."""
        keys = self.comparison.training_keys(network, self.comparison.recipe.seeds[0])
        keys["plan"] = {**keys.get("plan", {}), **plan}
        keys["data"] = {k: v for k, v in keys["data"].items() if k != "share"}
        with _named(network):
            return plan_segmentation(
                read_segmentation(keys, self.comparison.file.source),
                self.data,
                self.facts,
                step_voxels=self.voxels,
            )

    def build(self, network: ComparedNetwork) -> None:
        """Build a network as it is planned, with its initial weights."""
        ready = self.plan(network)
        with _named(network):
            built = build_network(ready.network, **ready.sizes)
            if network.initial is not None:
                load_initial_weights(built, self.comparison.file.model(network.initial))

    def together(self) -> SegmentationPlan:
        """Return the plan of the first network, with a patch that fits all networks."""
        first, *others = self.comparison.recipe.networks
        plan = self.comparison.recipe.plan
        if plan.patch_size is not None:
            return self.plan(first)
        alone = [self.plan(network) for network in (first, *others)]
        steps = [patch_step(one.network, one.sizes) for one in alone]
        d, h, w = (math.lcm(*axis) for axis in zip(*steps, strict=True))
        voxels = plan.step_voxels or self.voxels
        patch = patch_for(alone[0].plan.median_shape, (d, h, w), voxels // MIN_BATCH)
        return self.plan(first, patch_size=list(patch))


def facts_of_comparison(comparison: Comparison, planned: PlannedComparison) -> dict[str, Any]:
    """Return the content of the page in addition to the recipe and the rows."""
    shapes = [fact.shape for fact in planned.facts_of(planned.split.training)]
    first = planned.trainings[0].keys
    return plain(
        {
            "training": list(planned.split.training),
            "validation": list(planned.split.validation),
            "classes": [c.as_model_row() for c in planned.data.classes],
            "channels": planned.plan.channels,
            "plan": planned.plan.as_recipe(),
            "shapes": {
                "least": [min(axis) for axis in zip(*shapes, strict=True)],
                "most": [max(axis) for axis in zip(*shapes, strict=True)],
            },
            "seeds": list(comparison.recipe.seeds),
            "schedule": comparison.schedule,
            "augmentation": comparison.recipe.augmentation.model_dump(),
            "threads": first["threads"],
            "processes": comparison.recipe.processes,
            "machine": {
                "hardware": str(hardware_for(planned.device)),
                "processor": processor_title(),
                "device": planned.device.type,
                "system": platform.system(),
                "python": platform.python_version(),
                "torch": torch.__version__,
                "pumit": __version__,
            },
        }
    )
