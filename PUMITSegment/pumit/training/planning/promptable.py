"""Plan the fine-tuning of the promptable model for a data set, a preset and a machine."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pumit.errors import TrainingError
from pumit.evaluation.simulated_user import dice_after_clicks
from pumit.inference.interactive.session import InteractiveSession
from pumit.inference.loading import read_model
from pumit.training.data.checks import DataFacts
from pumit.training.data.classes import base_values, classes_of
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.split import Split
from pumit.training.planning.estimate import (
    TimeParts,
    checkpoint_bytes,
    estimate_of,
    fit,
    room_of,
    schedule_of,
    too_few,
)
from pumit.training.planning.request import (
    MemoryTooSmallError,
    Planned,
    PlanRequest,
    about_classes,
    drafted,
    in_order,
    name_cases,
    visible_data,
)
from pumit.training.planning.step_cost import (
    MeasuredCost,
    clock_of,
    measure_steps,
    peak_bytes,
    striped_labels,
)
from pumit.training.promptable.plan import (
    ClickPlan,
    build_click_task,
    plan_clicks,
    structures_of,
    validating,
)
from pumit.training.promptable.real_scan import scan_of
from pumit.training.promptable.validation import CLICKS, generated_scan, validated_structures
from pumit.training.recipes import model as recipe_model
from pumit.training.recipes.presets import CLICK_PRESETS
from pumit.training.recipes.promptable import SETTINGS, FineTuningRecipe
from pumit.volume import Volume

FEW_STEPS = 50  # warn about fewer steps, in which the model hardly learns
SCAN_BYTES = 8  # per voxel: intensity, label, and coarser copies of the intensities
MOST_VOXELS = 1 << 24  # of the synthetic case; opening time is proportional to size


@dataclass(frozen=True)
class ClickCost(MeasuredCost):
    """Measured costs of steps and clicks.

    Attributes:
        opening_seconds: Time to open a scan before its first click, per voxel.
        answering_seconds: Time of one structure with all its clicks.
        scene_seconds: Time of a generated scan with its click.
    """

    opening_seconds: float
    answering_seconds: float
    scene_seconds: float


def plan_better_clicks(request: PlanRequest) -> Planned:
    """Plan a recipe with `task: promptable`.

    Raises:
        PumitError: If the recipe or its data cannot be used, or the machine is too small.
    """
    if request.keys.get("folds") is not None:
        raise TrainingError(
            "Only automatic segmentation is trained in folds; for fewer clicks choose a share of "
            "the patients for validation."
        )
    # 1. Draft the recipe, and read all cases.
    draft = request.recipe
    assert isinstance(draft, FineTuningRecipe)
    preset = CLICK_PRESETS[request.hardware.kind][request.preset]
    preset = replace(preset, seconds=request.numbers.seconds)
    given = draft.schedule.named()
    validated = {"answers": preset.answers, "scenes": preset.scenes, **draft.validation.named()}
    keys: dict[str, Any] = {
        **drafted(request, "clicks"),
        **draft.model_dump(include=set(SETTINGS)),
        "part": preset.part,
        **request.keys,
        "validation": validated,
    }
    recipe = recipe_model.read_model(FineTuningRecipe, keys, request.source)
    clock = clock_of(recipe.schedule)
    began = clock()
    plan = plan_clicks(recipe, request.resolve, progress=request.progress)
    reading = clock() - began
    notes = about_classes(recipe.data, plan.data)
    keys["data"] = visible_data(keys["data"], plan.data, request)
    name_cases(keys["data"], plan.split)
    if request.resolve(recipe.initial).is_file():
        keys["initial"] = str(plan.path.absolute())
    # 2. Measure some steps and clicks on a typical case.
    facts = plan.facts.cases
    try:
        cost, starting = request.measure(
            ClickCost,
            keys,
            preset,
            initial=str(plan.path),
            shape=[int(n) for n in np.median([f.shape for f in facts], axis=0)],
            spacing_mm=[float(s) for s in np.median([f.spacing_mm for f in facts], axis=0)],
        )
    except MemoryTooSmallError:
        raise TrainingError(
            "A step does not fit into the memory that is free; close other programs, or set "
            "batch_size: 1, targets_per_field: 1 and part: decoder."
        ) from None
    # 3. Fit the steps into the time, and estimate the memory.
    parts = _parts(plan, cost, starting=reading + starting, reading=reading)
    steps = fit(parts, preset, given)
    if steps.steps < FEW_STEPS and "steps" not in given:
        notes.append(too_few(steps, "choose a longer preset, part: decoder, or a GPU"))
    keys["schedule"] = schedule_of(preset, steps, parts, given)
    scans = sum(math.prod(f.shape) * f.channels for f in plan.facts_of(plan.split.training))
    room = room_of(cost, checkpoint_bytes(cost.step), held=scans * SCAN_BYTES)
    estimate = estimate_of(parts, steps, room, request.hardware, tried=cost.step, runs=1)
    warnings = [*plan.split.warnings, *plan.facts.warnings, *notes]
    return Planned(in_order(keys), estimate, tuple(dict.fromkeys(warnings)))


def _parts(plan: ClickPlan, cost: ClickCost, *, starting: float, reading: float) -> TimeParts:
    """Return the durations of a run's parts from measured costs."""
    facts = {fact.name: fact for fact in plan.facts.cases}
    names = plan.split.validation
    structures = validated_structures(
        facts, names, plan.data.classes, plan.recipe.validation.answers
    )
    validation = (
        sum(math.prod(facts[name].shape) for name in structures) * cost.opening_seconds
        + sum(map(len, structures.values())) * cost.answering_seconds
        + plan.recipe.validation.scenes * cost.scene_seconds
    )
    share = len(plan.split.training) / max(len(facts), 1)
    # The initial model is validated first, and every blend at the end.
    return TimeParts(
        starting + validation,
        reading * share,
        cost.step.seconds,
        validation,
        len(plan.recipe.blend) * validation,
    ).idle(cost.step)


def try_clicks(request: Mapping[str, Any]) -> ClickCost:
    """Measure a planned run.

    Args:
        request: Planned `recipe`, `initial` as the path of the initial model, `shape` and
            `spacing_mm` of a typical case, `device` and `threads`.
    """
    torch.set_num_threads(int(request["threads"]))
    device = torch.device(request["device"])
    recipe = FineTuningRecipe.model_validate(request["recipe"])
    path = Path(request["initial"])
    # 1. A plan without cases, and a synthetic scan.
    data = LabelledSet((), classes_of(recipe.data.classes or ()), ())
    nothing = Split((), ())
    initial = read_model(path, "promptable")
    plan = ClickPlan(data, DataFacts((), 1, ()), nothing, recipe, path, initial)
    image, labels = _case(request["shape"], len(base_values(data.classes)))
    d, h, w = (float(s) for s in request["spacing_mm"])
    scan = scan_of(image, (d, h, w), labels, structures_of(data.classes))
    # 2. Training steps.
    task, degrees = build_click_task(plan, [scan], device)
    step = measure_steps(task, recipe.schedule, device, degrees=degrees, workers=recipe.workers)
    # 3. Opening the scan, a structure with all its clicks, and a generated scan with one click.
    session = InteractiveSession(validating(plan, device))
    clock = clock_of(recipe.schedule)
    began = clock()
    session.set_volume(Volume(image, (d, h, w)))
    opened = clock()
    dice_after_clicks(session, labels == 1, CLICKS)
    started = clock()
    volume, target = generated_scan(0)
    session.set_volume(volume)
    dice_after_clicks(session, target, 1)
    ended = clock()
    memory = peak_bytes(device), peak_bytes(torch.device("cpu"))
    opening = (opened - began) / image.size
    return ClickCost(step, *memory, opening, started - opened, ended - started)


def _case(
    shape: Sequence[int], values: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Return a synthetic noise scan with all classes side by side in the middle."""
    shrunk = min(1.0, (MOST_VOXELS / np.prod(shape)) ** (1 / 3))
    size = [max(1, round(n * shrunk)) for n in shape]
    labels = striped_labels(size, range(1, values + 1)).astype(np.uint8)
    noise = np.random.default_rng(0).normal(0, 30, size) + 100.0 * labels
    return noise.astype(np.float32), labels
