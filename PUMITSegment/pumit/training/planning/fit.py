"""Fit the steps of an automatic network to the time and the memory that there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pumit.errors import TrainingError
from pumit.system.wording import times
from pumit.training.data.checks import DataFacts
from pumit.training.data.found_cases import LabelledSet
from pumit.training.planning.estimate import (
    Estimate,
    Room,
    disk_bytes,
    estimate_of,
    memory_bytes,
    time_parts,
)
from pumit.training.planning.request import PlanRequest
from pumit.training.planning.segmentation_trial import SegmentationCost
from pumit.training.planning.step_cost import read_cost
from pumit.training.planning.steps import (
    StepPlan,
    TimeParts,
    fit,
    schedule_of,
    too_few,
    voxels_that_fit,
)
from pumit.training.planning.trial_process import MemoryTooSmallError
from pumit.training.recipes.presets import Preset
from pumit.training.recipes.segmentation import SegmentationRecipe
from pumit.training.segmentation.plan import SegmentationPlan, plan_segmentation

TRIALS = 6  # of ever smaller or larger steps
MEMORY_SHARE = 0.85  # of what is free
# A cosine of so few steps has not learnt much; said, not forbidden.
FEW_STEPS = 100


@dataclass(frozen=True)
class Fitting:
    """Steps that fit time and memory."""

    plan: SegmentationPlan
    schedule: dict[str, Any]
    estimate: Estimate
    notes: list[str]


def fit_to_machine(
    request: PlanRequest,
    recipe: SegmentationRecipe,
    keys: Mapping[str, Any],
    data: LabelledSet,
    facts: DataFacts,
    *,
    reading_seconds: float,
) -> Fitting:
    """Choose patch, batch and length by trying real steps.

    Args:
        recipe: All but patch, batch and schedule.
        keys: The same as its file will hold it.
        reading_seconds: Seconds that reading all cases took.

    Raises:
        TrainingError: If even the smallest step does not fit into the memory.
    """
    search = _Search(request, recipe, keys, data, facts, reading_seconds)
    voxels = request.numbers.step_voxels
    for _ in range(TRIALS):
        voxels_next = search.attempt(voxels)
        if voxels_next == voxels:
            break
        voxels = voxels_next
    return search.result()


@dataclass
class _Search:
    """Attempts with ever smaller or larger steps, of which the best is kept."""

    request: PlanRequest
    recipe: SegmentationRecipe
    keys: Mapping[str, Any]
    data: LabelledSet
    facts: DataFacts
    reading_seconds: float
    kept: tuple[SegmentationPlan, SegmentationCost, TimeParts] | None = None
    notes: list[str] = field(default_factory=list)
    _tried: set[tuple[Any, ...]] = field(default_factory=set)
    _has_shrunk: bool = False

    @property
    def schedule(self) -> dict[str, Any]:
        """Keys of the schedule that the recipe names."""
        return self.recipe.schedule.named()

    def attempt(self, voxels: int) -> int:
        """Try steps of this many voxels; returns how many to try next, the same to stop."""
        plan = self._plan(voxels)
        size = (*plan.plan.patch_size, plan.plan.batch_size)
        if size in self._tried:
            return voxels
        self._tried.add(size)
        try:
            cost, starting = self._measure(plan)
            enough = self._has_room(plan, cost)
        except MemoryTooSmallError:
            enough, cost = False, None
        if not enough or cost is None:
            return self._smaller(voxels, plan)
        parts = time_parts(plan, cost, self.recipe.validation, starting=starting)
        self.kept = (plan, cost, parts)
        if "steps" in self.schedule:
            return voxels
        free = replace(self._budget(), most_steps=10**9)
        fitting = voxels_that_fit(voxels, fit(parts, free), self._budget())
        if fitting < voxels:
            self._has_shrunk = True
        return voxels if fitting > voxels and self._has_shrunk else fitting

    def result(self) -> Fitting:
        """Return what fits best."""
        if self.kept is None:
            raise TrainingError(
                "Even the smallest step does not fit into the memory that is free; close other "
                "programs, or give narrower network_sizes or a smaller plan.patch_size."
            )
        plan, cost, parts = self.kept
        steps = fit(
            parts,
            self._budget(),
            steps=self.schedule.get("steps"),
            validate_every=self.schedule.get("validate_every"),
        )
        if steps.steps < FEW_STEPS and "steps" not in self.schedule:
            self.notes.append(too_few(steps, "choose a longer preset or a GPU"))
        schedule = schedule_of(self.request.numbers, steps, parts, self.schedule)
        main, on_device = memory_bytes(plan, cost)
        estimate = estimate_of(
            parts,
            steps,
            Room(main, on_device, disk_bytes(plan, cost)),
            self.request.hardware,
            tried=cost.step,
            runs=(self.recipe.folds or 1) + self.recipe.final_model,
        )
        return Fitting(plan, schedule, estimate, self.notes)

    def _budget(self) -> Preset:
        """Return the preset, with the time that the recipe gives instead of its own."""
        numbers = self.request.numbers
        seconds = self.schedule.get("seconds")
        return replace(numbers, seconds=seconds) if seconds else numbers

    def _plan(self, voxels: int) -> SegmentationPlan:
        seed = self.recipe.seed
        return plan_segmentation(self.recipe, self.data, self.facts, step_voxels=voxels, seed=seed)

    def _measure(self, plan: SegmentationPlan) -> tuple[SegmentationCost, float]:
        numbers = self.request.numbers
        length = StepPlan(1000, 1, numbers.seconds, numbers.seconds)
        schedule = schedule_of(numbers, length, TimeParts(0, 0, 1, 0, 0), self.schedule)
        native = np.median([f.spacing_mm for f in plan.facts.cases], axis=0)
        found = self.request.trial.run(
            {
                "task": "segmentation",
                "recipe": {**self.keys, "schedule": schedule},
                "sizes": plan.sizes,
                "plan": plan.plan.as_recipe(),
                "native_spacing_mm": [float(s) for s in native],
                "device": str(self.request.hardware.device),
                "threads": self.request.threads,
            }
        )
        starting = self.reading_seconds + found.pop("starting")
        return read_cost(SegmentationCost, found), starting

    def _has_room(self, plan: SegmentationPlan, cost: SegmentationCost) -> bool:
        main, on_device = memory_bytes(plan, cost)
        hardware = self.request.hardware
        limits = [(main, hardware.memory_bytes)]
        if hardware.device_bytes is not None:
            limits.append((on_device, hardware.device_bytes))
        return all(free is None or need <= MEMORY_SHARE * free for need, free in limits)

    def _smaller(self, voxels: int, plan: SegmentationPlan) -> int:
        half = self._plan(voxels // 2).plan
        was, now = (f"{p.batch_size} patches of {times(p.patch_size)}" for p in (plan.plan, half))
        if (half.patch_size, half.batch_size) == (plan.plan.patch_size, plan.plan.batch_size):
            if self.kept is None:
                raise TrainingError(
                    f"A step of {was} does not fit into the memory that is free, and a smaller one "
                    "is not possible; close other programs, or give narrower network_sizes."
                )
            return voxels
        self._has_shrunk = True
        self.notes.append(
            f"the memory is too small for steps of {was}: {now} are planned, where they fit"
        )
        return voxels // 2
