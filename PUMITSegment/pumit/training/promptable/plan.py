"""Plan of a run with `task: promptable`, built from recipe and data before training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pumit.errors import PumitError
from pumit.inference.engine.choice import layer_ranges
from pumit.inference.engine.torch_engine import TorchEngine
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.loading import build_from, read_model
from pumit.models.checkpoint import Checkpoint
from pumit.models.index import find_model
from pumit.networks.promptable.network import PromptableNetwork
from pumit.preprocessing.channels import grey
from pumit.training.data.case import CaseFacts, read_labelled
from pumit.training.data.checks import examine
from pumit.training.data.class_matching import cut_classes
from pumit.training.data.classes import UNKNOWN, ClassValue, base_values
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.data.split import SplitData, split_set
from pumit.training.promptable.finetuning_task import ClickTask, OwnScans
from pumit.training.promptable.lora import add_adapters
from pumit.training.promptable.real_scan import FEWEST_VOXELS, RealScan, scan_of
from pumit.training.promptable.task import DEGREE_SHARES, DEGREES
from pumit.training.promptable.validation import ClickValidation, validated_structures
from pumit.training.recipes.promptable import FineTuningRecipe


@dataclass(frozen=True)
class ClickPlan(SplitData):
    """Checked recipe, data and initial model of a run."""

    recipe: FineTuningRecipe
    path: Path
    initial: Checkpoint

    def network(self, device: torch.device) -> PromptableNetwork:
        """Build a new network with the initial model's weights."""
        network = build_from(self.initial, self.path, device)
        assert isinstance(network, PromptableNetwork)
        return network


def plan_clicks(
    recipe: FineTuningRecipe,
    resolve: Callable[[str], Path],
    *,
    progress: Callable[[int], None] | None = None,
) -> ClickPlan:
    """Read and check the initial model and all data before training.

    Raises:
        PumitError: If the initial model or the data cannot be used; one message lists all cases.
    """
    given = resolve(recipe.initial)
    path = find_model(given if given.is_file() else recipe.initial)
    initial = read_model(path, "promptable")
    data = find_labelled_set(recipe.data, resolve)
    facts = examine(data, progress=progress)
    split = split_set(data.cases, recipe.data, seed=recipe.seed)
    plan = ClickPlan(data, facts, split, recipe, path, initial)
    require_clickable(plan.facts_of(split.training), data.classes)
    return plan


def require_clickable(facts: Sequence[CaseFacts], classes: Sequence[ClassValue]) -> None:
    """Raise PumitError with the classes that have too few voxels in every case to be clicked on."""
    most = {
        c.label.name: max(0 if i in fact.cut else fact.class_voxels[i] for fact in facts)
        for i, c in enumerate(classes, start=1)
    }
    small = [f"{name} (at most {n})" for name, n in most.items() if n < FEWEST_VOXELS]
    if small:
        raise PumitError(
            f"Too small to be clicked on, with fewer than {FEWEST_VOXELS} voxels in every training "
            f"case: {', '.join(small)}. Remove them from data.classes, or add cases that have them."
        )


def build_click_task(
    plan: ClickPlan, scans: Sequence[RealScan], device: torch.device
) -> tuple[ClickTask, dict[int, float]]:
    """Build the training task, and the share of steps of each degree of anisotropy."""
    recipe = plan.recipe
    network = plan.network(device).train()
    if recipe.part == "decoder":
        network.image_encoder.requires_grad_(False)
    elif recipe.part == "adapters":
        torch.manual_seed(recipe.seed)  # the same in every process
        add_adapters(network.image_encoder, recipe.rank)
    own = OwnScans(scans, network.field_size)
    share, real = recipe.real_share, own.degrees
    degrees = {
        da0: share * real.get(da0, 0.0) + (1 - share) * usual
        for da0, usual in zip(DEGREES, DEGREE_SHARES, strict=True)
    }
    degrees = {da0: part for da0, part in degrees.items() if part > 0}
    task = ClickTask(
        network,
        plan.network(device),
        own,
        real_share={da0: share * real.get(da0, 0.0) / part for da0, part in degrees.items()},
        distillation_weight=recipe.keep,
        batch_size=recipe.batch_size,
        targets_per_field=recipe.targets_per_field,
    )
    return task, degrees


def scans_of(plan: ClickPlan, progress: Callable[[int], None] | None = None) -> list[RealScan]:
    """Prepare every channel of every training case as a scan, because a user may click on any."""
    classes = plan.data.classes
    values = structures_of(classes)
    scans = []
    for number, case in enumerate(plan.training, start=1):
        if progress is not None:
            progress(number)
        read = read_labelled(case, classes)
        volume, labels, whole = read.volume, read.labels, values
        if (labels == UNKNOWN).any():  # leave out classes whose extent is not fully annotated
            cut = cut_classes(labels, classes)
            whole = {i: members for i, members in values.items() if i not in cut}
            labels = np.where(labels == UNKNOWN, np.uint8(0), labels)
        is_colour = volume.channels in (3, 4) and volume.array.dtype == np.uint8
        for channel in range(1 if is_colour else volume.channels):
            scans.append(scan_of(grey(volume, channel), volume.spacing_mm, labels, whole))
    return [scan for scan in scans if scan.places]


def structures_of(classes: Sequence[ClassValue]) -> dict[int, tuple[int, ...]]:
    """Map class numbers, from 1, to the labels of `read_labelled` that make up each class."""
    index = {value: i for i, value in enumerate(base_values(classes), start=1)}
    return {i: tuple(index[v] for v in c.values) for i, c in enumerate(classes, start=1)}


def validating(plan: ClickPlan, device: torch.device) -> Segmenter:
    """Build a segmenter for validation, with its own network."""
    initial = plan.initial
    return Segmenter(
        TorchEngine(plan.network(device), device),
        initial.header.name,
        initial.header.version,
        initial.sha256,
        initial.recipe,
    )


def build_validation(plan: ClickPlan, device: torch.device) -> ClickValidation:
    """Build the validation on the validation cases."""
    facts = {fact.name: fact for fact in plan.facts.cases}
    classes, validation = plan.data.classes, plan.recipe.validation
    return ClickValidation(
        validating(plan, device),
        plan.validation,
        validated_structures(facts, plan.split.validation, classes, validation.answers),
        classes,
        scenes=validation.scenes,
        known_ranges=layer_ranges(plan.initial),
    )
