"""Plan an automatic segmentation from data, preset, time and memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pumit.errors import TrainingError
from pumit.networks.build import RECIPES
from pumit.system.wording import count_of, listed, times
from pumit.training.data.checks import DataFacts
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.split import Split, split_set
from pumit.training.planning.estimate import (
    Estimate,
    TimeParts,
    estimate_of,
    fit,
    room_of,
    schedule_of,
    time_parts,
    too_few,
    voxels_that_fit,
)
from pumit.training.planning.request import MemoryTooSmallError, Planned, PlanRequest
from pumit.training.planning.segmentation_trial import SegmentationCost
from pumit.training.pretraining.image_recipe import found_images
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.presets import with_rate_of
from pumit.training.recipes.segmentation import SegmentationRecipe
from pumit.training.run.resolved_recipe import plain, with_absolute_paths
from pumit.training.segmentation.data_plan import coarser, other_unit, target_spacing, usual_cases
from pumit.training.segmentation.networks import FOR_ANY_DATA, class_of, family_of, fitted_names
from pumit.training.segmentation.plan import (
    SegmentationPlan,
    examine_cases,
    plan_segmentation,
)
from pumit.training.validate import read_segmentation

TRIALS = 6  # maximum number of step sizes to try
MEMORY_SHARE = 0.85  # of free memory
FEW_STEPS = 100  # warn about fewer steps, in which a network hardly learns
# Sizes that follow from the data; the run computes them again, as a recipe may be edited.
FROM_DATA = ("in_channels", "num_classes", "position_table", "windows")
# Keys of a planned recipe's `plan`.
PLANNED = ("spacing_mm", "patch_size", "batch_size", "intensity", "orientation")
SHOWN_NAMES = 5
# Order of the keys in a planned recipe.
ORDER = (
    *("task", "name", "version", "network", "network_sizes", "initial", "unlabelled", "part"),
    *("image_size", "flips"),
    *("rank", "seed"),
    *("device", "threads", "workers", "folds", "final_model", "data", "plan", "balanced_share"),
    *("real_share", "keep", "batch_size", "targets_per_field", "blend", "augmentation"),
    *("validation", "schedule"),
)
WORTH_IT = 1.05  # minimum factor on the spacing; less makes cases hardly smaller


@dataclass
class _Search:
    """Search for patch, batch and length by trying real steps of different sizes.

    Attributes:
        recipe: Recipe without patch, batch and schedule.
        reading_seconds: Time that reading all cases took, s.
    """

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
        """Keys of the schedule that the recipe gives."""
        return self.recipe.schedule.named()

    def attempt(self, voxels: int) -> int:
        """Try steps of this many voxels, and return the number to try next; the same to stop."""
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
        free = replace(self.request.numbers, most_steps=10**9)
        fitting = voxels_that_fit(voxels, fit(parts, free, {}), self.request.numbers)
        if fitting < voxels:
            self._has_shrunk = True
        return voxels if fitting > voxels and self._has_shrunk else fitting

    def result(self) -> tuple[SegmentationPlan, dict[str, Any], Estimate]:
        """Return the best plan that fits, its schedule and its estimate."""
        voxels = self.request.numbers.step_voxels
        for _ in range(TRIALS):
            voxels_next = self.attempt(voxels)
            if voxels_next == voxels:
                break
            voxels = voxels_next
        if self.kept is None:
            raise TrainingError(
                "Even the smallest step does not fit into the memory that is free; close other "
                "programs, or give narrower network_sizes or a smaller plan.patch_size."
            )
        plan, cost, parts = self.kept
        steps = fit(parts, self.request.numbers, self.schedule)
        if steps.steps < FEW_STEPS and "steps" not in self.schedule:
            self.notes.append(too_few(steps, "choose a longer preset or a GPU"))
        schedule = schedule_of(self.request.numbers, steps, parts, self.schedule)
        runs = (self.recipe.folds or 1) + self.recipe.final_model
        room, hardware = room_of(plan, cost), self.request.hardware
        estimate = estimate_of(parts, steps, room, hardware, tried=cost.step, runs=runs)
        return plan, schedule, estimate

    def _plan(self, voxels: int) -> SegmentationPlan:
        seed = self.recipe.seed
        return plan_segmentation(self.recipe, self.data, self.facts, step_voxels=voxels, seed=seed)

    def _measure(self, plan: SegmentationPlan) -> tuple[SegmentationCost, float]:
        native = np.median([f.spacing_mm for f in plan.facts.cases], axis=0)
        cost, starting = self.request.measure(
            SegmentationCost,
            self.keys,
            self.request.numbers,
            sizes=plan.sizes,
            plan=plan.plan.as_recipe(),
            native_spacing_mm=[float(s) for s in native],
        )
        return cost, self.reading_seconds + starting

    def _has_room(self, plan: SegmentationPlan, cost: SegmentationCost) -> bool:
        room, hardware = room_of(plan, cost), self.request.hardware
        limits = [(room.main, hardware.memory_bytes)]
        if hardware.device_bytes is not None:
            limits.append((room.on_device, hardware.device_bytes))
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


def plan_automatic(request: PlanRequest) -> Planned:
    """Plan a recipe with `task: segmentation`.

    Raises:
        PumitError: If the recipe or its data cannot be used, or the machine is too small.
    """
    keys = _draft(request)
    recipe = read_segmentation(keys, request.source)
    scans = [] if recipe.unlabelled is None else found_images(Path(keys["unlabelled"]))
    began = time.perf_counter()
    data, facts = examine_cases(recipe, request.resolve, progress=request.progress)
    reading_seconds = time.perf_counter() - began
    notes = about_classes(recipe.data, data)
    if scans:
        first = f"learning from {count_of(len(scans), 'unlabelled scan')} first"
        notes.append(f"{first} takes as long again as the training")
    keys["data"] = visible_data(keys["data"], data, request)
    data, facts, more = _leave_out(recipe, data, facts)
    notes += more
    if recipe.folds is not None:  # raises if there are fewer patients
        fold = LabelledData(patient=recipe.data.patient, fold=f"1 of {recipe.folds}")
        split_set(list(data.cases), fold, seed=recipe.seed)
    notes += _coarsen(recipe, keys["plan"], request, facts)
    recipe = read_segmentation(keys, request.source)
    is_small = recipe.network.endswith(FOR_ANY_DATA)
    numbers = with_rate_of(request.numbers, class_of(recipe.network), is_small=is_small)
    request = replace(request, numbers=numbers)
    search = _Search(request, recipe, keys, data, facts, reading_seconds)
    ready, keys["schedule"], estimate = search.result()
    planned = ready.plan.as_recipe()
    keys["plan"] = {key: keys["plan"].get(key, planned[key]) for key in PLANNED}
    known = {**RECIPES[ready.network].sizes, **ready.sizes}
    for key in fitted_names(ready.network):  # chosen by spacing and number of slices
        keys["network_sizes"][key] = plain(known[key])
    if recipe.folds is None:
        name_cases(keys["data"], ready.split)
    warnings = [*data.doubts, *ready.split.warnings, *ready.facts.warnings, *notes, *search.notes]
    return Planned(in_order(keys), estimate, tuple(dict.fromkeys(warnings)))


def _draft(request: PlanRequest) -> dict[str, Any]:
    """Return the recipe before the cases are read."""
    given, preset = request.recipe, request.numbers
    assert isinstance(given, SegmentationRecipe)
    network = given.given("network") or preset.network
    sizes = dict(preset.network_sizes) if network == preset.network else {}
    left_open = fitted_names(network)
    if given.initial is not None:
        left_open += family_of(network).alike  # taken from the initial model
    own = {k: v for k, v in RECIPES[network].sizes.items() if k not in left_open}
    sizes = {**own, **sizes, **given.network_sizes}
    keys = {
        **drafted(request, "segmentation"),
        "balanced_share": given.balanced_share,
        **request.keys,
        "network": network,
        "network_sizes": plain(
            {k: v for k, v in sizes.items() if k not in FROM_DATA or k in given.network_sizes}
        ),
        "plan": given.plan.named(),
        "validation": {
            "overlap": preset.overlap,
            "final_overlap": preset.final_overlap,
            "flips": preset.flips,
            **given.validation.named(),
        },
    }
    if given.unlabelled is not None:
        keys["unlabelled"] = str(request.resolve(given.unlabelled).absolute())
    if request.keys.get("augmentation") is not False:
        keys["augmentation"] = given.augmentation.model_dump()
    return keys


def drafted(request: PlanRequest, name: str) -> dict[str, Any]:
    """Return defaults that are common to the recipes of all goals."""
    is_cpu = request.hardware.kind == "cpu"
    workers = 0 if is_cpu else min(8, request.hardware.cores - 1)
    return {"name": name, "version": "0.1", "seed": 0, "workers": workers}


def about_classes(given: LabelledData, data: LabelledSet) -> list[str]:
    """Return a note if the classes were taken from the labels."""
    if given.classes is not None:
        return []
    names = [c.label.name for c in data.classes]
    return [
        f"the classes are those in the labels: {listed(names, SHOWN_NAMES)}; rename or remove "
        "those that are wrong (data.classes)"
    ]


def visible_data(given: dict[str, Any], data: LabelledSet, request: PlanRequest) -> dict[str, Any]:
    """Return a recipe's `data` with absolute paths, classes and channels."""
    out: dict[str, Any] = with_absolute_paths({"data": dict(given)}, request.resolve)["data"]
    if not isinstance(given.get("classes"), list):  # rows may have further segment names
        out["classes"] = [c.as_row() for c in data.classes]
    if data.channels:
        out["channels"] = list(data.channels)
    return out


def _leave_out(
    recipe: SegmentationRecipe, data: LabelledSet, facts: DataFacts
) -> tuple[LabelledSet, DataFacts, list[str]]:
    """Exclude cases whose spacing is in another unit, which resampling would make huge.

    Nothing is excluded if the recipe names the training cases, or in a cross-validation, which
    uses all cases.
    """
    odd = {f.name for f in other_unit(facts.cases)}
    validation = recipe.data.validation
    odd -= set(map(str, validation)) if isinstance(validation, list) else set()
    if not odd or recipe.data.training is not None or recipe.folds is not None:
        return data, facts, []
    shown = ", ".join(sorted(odd)[:SHOWN_NAMES])
    note = (
        f"{shown} {'is' if len(odd) == 1 else 'are'} left out: the spacing is of another order of "
        "magnitude than that of the other cases; correct the files, or list them in data.training"
    )
    kept = tuple(case for case in data.cases if case.name not in odd)
    known = tuple(fact for fact in facts.cases if fact.name not in odd)
    return replace(data, cases=kept), replace(facts, cases=known), [note]


def _coarsen(
    recipe: SegmentationRecipe, plan: dict[str, Any], request: PlanRequest, facts: DataFacts
) -> list[str]:
    """Plan a coarser spacing if a typical case has more voxels than the preset allows."""
    if recipe.plan.spacing_mm is not None:
        return []
    usual = usual_cases(facts.cases)
    fine = target_spacing(usual)
    spacing = coarser(fine, usual, request.numbers.case_voxels)
    if max(a / b for a, b in zip(spacing, fine, strict=True)) < WORTH_IT:
        return []
    plan["spacing_mm"] = list(spacing)
    shown = " x ".join(f"{s:.2g}" for s in spacing)
    usually = " x ".join(f"{s:.2g}" for s in fine)
    return [
        f"the cases are large: the network sees them at {shown} mm instead of {usually} mm, so "
        f"that {request.preset} has enough time for them"
    ]


def name_cases(data: dict[str, Any], split: Split) -> None:
    """Replace fold and share by the names of the training and validation cases."""
    for key in ("fold", "share"):
        data.pop(key, None)
    data["training"], data["validation"] = list(split.training), list(split.validation)


def in_order(keys: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe with its keys in `ORDER`."""
    return {key: keys[key] for key in [*ORDER, *(k for k in keys if k not in ORDER)] if key in keys}
