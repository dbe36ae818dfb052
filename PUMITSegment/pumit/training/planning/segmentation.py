"""Plan an automatic segmentation: from data, preset and machine to every value of its recipe."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from pumit.networks.build import RECIPES
from pumit.system.wording import listed
from pumit.training.data.checks import DataFacts
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.split import Split
from pumit.training.planning.fit import fit_to_machine
from pumit.training.planning.request import Planned, PlanRequest
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.presets import with_rate_of
from pumit.training.recipes.segmentation import SegmentationRecipe
from pumit.training.run.resolved_recipe import with_absolute_paths
from pumit.training.segmentation.data_plan import coarser, other_unit, target_spacing, usual_cases
from pumit.training.segmentation.networks import FOR_ANY_DATA, class_of, family_of, fitted_names
from pumit.training.segmentation.plan import (
    SegmentationPlan,
    examine_cases,
)
from pumit.training.validate import read_segmentation

# Sizes that follow from the data: the run works them out again where a recipe was edited.
FROM_DATA = ("in_channels", "num_classes", "position_table", "windows")
SHOWN_NAMES = 5
# In which one reads a recipe.
ORDER = (
    *("task", "name", "version", "network", "network_sizes", "initial", "unlabelled", "part"),
    *("rank", "seed"),
    *("device", "threads", "workers", "folds", "final_model", "data", "plan", "balanced_share"),
    *("real_share", "keep", "batch_size", "targets_per_field", "blend", "augmentation"),
    *("validation", "schedule"),
)
WORTH_IT = 1.05  # times the spacing: below, a case is hardly smaller


def plan_automatic(request: PlanRequest) -> Planned:
    """Plan a recipe with `task: segmentation`.

    Raises:
        PumitError: If the recipe or its data cannot be used, or the machine is too small.
    """
    keys = _draft(request)
    recipe = read_segmentation(keys, request.source)
    began = time.perf_counter()
    data, facts = examine_cases(recipe, request.resolve, progress=request.progress)
    reading_seconds = time.perf_counter() - began
    notes = about_classes(recipe.data, data)
    if recipe.unlabelled is not None:
        notes.append("learning from unlabelled scans first takes as long again as the training")
    keys["data"] = visible_data(keys["data"], data, request)
    data, facts, more = _leave_out(recipe, data, facts)
    notes += more
    notes += _coarsen(recipe, keys["plan"], request, facts)
    recipe = read_segmentation(keys, request.source)
    is_small = recipe.network.endswith(FOR_ANY_DATA)
    numbers = with_rate_of(request.numbers, class_of(recipe.network), is_small=is_small)
    request = replace(request, numbers=numbers)
    fitting = fit_to_machine(request, recipe, keys, data, facts, reading_seconds=reading_seconds)
    ready = fitting.plan
    keys["plan"] = _visible_plan(keys["plan"], ready)
    known = {**RECIPES[ready.network].sizes, **ready.sizes}
    for key in fitted_names(ready.network):  # chosen by the spacing and the slices
        keys["network_sizes"][key] = as_listed(known[key])
    if recipe.folds is None:
        name_cases(keys["data"], ready.split)
    keys["schedule"] = fitting.schedule
    warnings = [*data.doubts, *ready.split.warnings, *ready.facts.warnings, *notes, *fitting.notes]
    return Planned(in_order(keys), fitting.estimate, tuple(dict.fromkeys(warnings)))


def _draft(request: PlanRequest) -> dict[str, Any]:
    """Return the recipe before the cases were read."""
    given, preset = request.recipe, request.numbers
    assert isinstance(given, SegmentationRecipe)
    network = given.given("network") or preset.network
    sizes = dict(preset.network_sizes) if network == preset.network else {}
    left_open = fitted_names(network)
    if given.initial is not None:
        left_open += family_of(network).alike  # the initial model settles them
    own = {k: v for k, v in RECIPES[network].sizes.items() if k not in left_open}
    sizes = {**own, **sizes, **given.network_sizes}
    keys = {
        **drafted(request, "segmentation"),
        "balanced_share": given.balanced_share,
        **request.keys,
        "network": network,
        "network_sizes": {
            k: as_listed(v)
            for k, v in sizes.items()
            if k not in FROM_DATA or k in given.network_sizes
        },
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
    """Return what a recipe says whatever is trained, where the user's does not."""
    is_cpu = request.hardware.kind == "cpu"
    workers = 0 if is_cpu else min(8, request.hardware.cores - 1)
    return {"name": name, "version": "0.1", "seed": 0, "workers": workers}


def as_listed(value: Any) -> Any:
    """Return a size as a file holds it: lists instead of tuples."""
    return [as_listed(v) for v in value] if isinstance(value, (list, tuple)) else value


def about_classes(given: LabelledData, data: LabelledSet) -> list[str]:
    """Say that classes were read off the labels, where the recipe names none."""
    if given.classes is not None:
        return []
    names = [c.label.name for c in data.classes]
    return [
        f"the classes are those that the data name: {listed(names, SHOWN_NAMES)}; rename "
        "or remove them in data.classes"
    ]


def visible_data(given: dict[str, Any], data: LabelledSet, request: PlanRequest) -> dict[str, Any]:
    """Where the cases are, as it holds wherever the recipe lies, with classes and channels."""
    out: dict[str, Any] = with_absolute_paths({"data": dict(given)}, request.resolve)["data"]
    if not isinstance(given.get("classes"), list):  # rows may know other names too
        out["classes"] = [c.as_row() for c in data.classes]
    if data.channels:
        out["channels"] = list(data.channels)
    return out


def _leave_out(
    recipe: SegmentationRecipe, data: LabelledSet, facts: DataFacts
) -> tuple[LabelledSet, DataFacts, list[str]]:
    """Do without cases whose spacing is of another unit: at a common one they would be huge.

    Not where the recipe names who trains, nor in a cross-validation, which asks everybody.
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
    """Plan a coarser spacing where a usual case would have more voxels than the preset bears."""
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
        f"the cases are large: the network sees them at {shown} mm in place of {usually} mm, so "
        f"that {request.preset} has time for them"
    ]


def _visible_plan(given: dict[str, Any], ready: SegmentationPlan) -> dict[str, Any]:
    """Spacing, patch, batch and intensities."""
    planned = ready.plan.as_recipe()
    keys = ("spacing_mm", "patch_size", "batch_size", "intensity", "orientation")
    return {key: given.get(key, planned[key]) for key in keys}


def name_cases(data: dict[str, Any], split: Split) -> None:
    """Name who trains and who validates, instead of shares."""
    for key in ("fold", "share"):
        data.pop(key, None)
    data["training"], data["validation"] = list(split.training), list(split.validation)


def in_order(keys: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe in the order in which one reads it."""
    return {key: keys[key] for key in [*ORDER, *(k for k in keys if k not in ORDER)] if key in keys}
