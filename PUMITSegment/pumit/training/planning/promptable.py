"""Plan the fine-tuning of the promptable model for a data set, a preset and a machine."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from pumit.errors import TrainingError
from pumit.training.planning.estimate import (
    Estimate,
    Room,
    StepPlan,
    TimeParts,
    checkpoint_bytes,
    estimate_of,
    fit,
    schedule_of,
    too_few,
)
from pumit.training.planning.promptable_trial import ClickCost
from pumit.training.planning.request import MemoryTooSmallError, Planned, PlanRequest
from pumit.training.planning.segmentation import (
    about_classes,
    drafted,
    in_order,
    name_cases,
    visible_data,
)
from pumit.training.promptable.plan import ClickPlan, plan_clicks
from pumit.training.promptable.validation import validated_structures
from pumit.training.recipes.model import read_model
from pumit.training.recipes.presets import CLICK_PRESETS, ClickPreset
from pumit.training.recipes.promptable import SETTINGS, FineTuningRecipe

FEW_STEPS = 50  # warn about fewer steps, in which the model hardly learns
SCAN_BYTES = 8  # per voxel: intensity, label, and coarser copies of the intensities


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
    preset = CLICK_PRESETS[request.hardware.kind][request.preset]
    given = request.recipe.schedule.named()
    preset = replace(preset, seconds=given.get("seconds") or preset.seconds)
    keys = _draft(request, preset)
    recipe = read_model(FineTuningRecipe, keys, request.source)
    began = time.perf_counter()
    plan = plan_clicks(recipe, request.resolve, progress=request.progress)
    reading_seconds = time.perf_counter() - began
    notes = about_classes(recipe.data, plan.data)
    keys["data"] = visible_data(keys["data"], plan.data, request)
    name_cases(keys["data"], plan.split)
    if request.resolve(recipe.initial).is_file():
        keys["initial"] = str(plan.path.absolute())
    cost, starting = _measure(request, keys, plan, preset)
    parts = _parts(plan, cost, starting=reading_seconds + starting, reading=reading_seconds)
    steps = fit(parts, preset, given)
    if steps.steps < FEW_STEPS and "steps" not in given:
        notes.append(too_few(steps, "choose a longer preset, part: decoder, or a GPU"))
    keys["schedule"] = schedule_of(preset, steps, parts, given)
    estimate = _estimate(request, plan, cost, parts, steps)
    warnings = [*plan.split.warnings, *plan.facts.warnings, *notes]
    return Planned(in_order(keys), estimate, tuple(dict.fromkeys(warnings)))


def _draft(request: PlanRequest, preset: ClickPreset) -> dict[str, Any]:
    """Return the recipe before the cases are read."""
    given = request.recipe
    assert isinstance(given, FineTuningRecipe)
    return {
        **drafted(request, "clicks"),
        **given.model_dump(include=set(SETTINGS)),
        "part": preset.part,
        **request.keys,
        "validation": {
            "answers": preset.answers,
            "scenes": preset.scenes,
            **given.validation.named(),
        },
    }


def _measure(
    request: PlanRequest, keys: dict[str, Any], plan: ClickPlan, preset: ClickPreset
) -> tuple[ClickCost, float]:
    facts = plan.facts.cases
    try:
        return request.measure(
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
    )


def _estimate(
    request: PlanRequest, plan: ClickPlan, cost: ClickCost, parts: TimeParts, steps: StepPlan
) -> Estimate:
    training = plan.facts_of(plan.split.training)
    scans = sum(math.prod(f.shape) * f.channels for f in training) * SCAN_BYTES
    main = (cost.process_bytes or 0) + scans
    is_shared = cost.peak_bytes == cost.process_bytes
    on_device = main if is_shared else cost.peak_bytes or 0
    room = Room(main, on_device, checkpoint_bytes(cost.step))
    return estimate_of(parts, steps, room, request.hardware, tried=cost.step, runs=1)
