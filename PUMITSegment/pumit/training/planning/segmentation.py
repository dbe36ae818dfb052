"""Plan an automatic segmentation: from data, preset and machine to every value of its recipe."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any

from pumit.networks.build import RECIPES
from pumit.training.data.checks import DataFacts
from pumit.training.data.found_cases import LabelledSet
from pumit.training.planning.fit import fit_to_machine
from pumit.training.planning.request import Planned, PlanRequest
from pumit.training.recipes.presets import with_rate_of
from pumit.training.run.resolved_recipe import with_absolute_paths
from pumit.training.segmentation.augmentation import AugmentationSettings
from pumit.training.segmentation.data_plan import coarser, other_unit, target_spacing, usual_cases
from pumit.training.segmentation.networks import FOR_ANY_DATA, class_of, family_of, fitted_names
from pumit.training.segmentation.plan import (
    BALANCED_SHARE,
    SegmentationPlan,
    check_segmentation_recipe,
    look_at_cases,
)

# Sizes that follow from the data: the run works them out again where a recipe was edited.
FROM_DATA = ("in_channels", "num_classes", "position_table")
SHOWN_NAMES = 5
WORTH_IT = 1.05  # times the spacing: below, a case is hardly smaller


def plan_automatic(request: PlanRequest) -> Planned:
    """Plan a recipe with `task: segmentation`.

    Raises:
        PumitError: If the recipe or its data cannot be used, or the machine is too small.
    """
    recipe = _draft(request)
    check_segmentation_recipe(recipe, request.source)
    began = time.perf_counter()
    data, facts = look_at_cases(recipe, request.resolve, progress=request.progress)
    looked = time.perf_counter() - began
    notes = about_classes(recipe["data"], data)
    recipe["data"] = visible_data(recipe["data"], data, request)
    data, facts, more = _leave_out(recipe, data, facts)
    notes += more
    notes += _coarsen(recipe, request, facts)
    network = str(recipe["network"])
    is_small = network.endswith(FOR_ANY_DATA)
    numbers = with_rate_of(request.numbers, class_of(network), is_small=is_small)
    request = replace(request, numbers=numbers)
    fitting = fit_to_machine(request, recipe, data, facts, looked=looked)
    ready = fitting.plan
    recipe["plan"] = _visible_plan(recipe["plan"], ready)
    known = {**RECIPES[ready.network].sizes, **ready.sizes}
    for key in fitted_names(ready.network):  # chosen by the spacing and the slices
        recipe["network_sizes"][key] = as_listed(known[key])
    if "folds" not in recipe:
        _write_split(recipe["data"], ready)
    recipe["schedule"] = fitting.schedule
    warnings = [*data.doubts, *ready.split.warnings, *ready.facts.warnings, *notes, *fitting.notes]
    return Planned(_ordered(recipe), fitting.estimate, tuple(dict.fromkeys(warnings)))


def _draft(request: PlanRequest) -> dict[str, Any]:
    """The recipe before anybody has looked at the cases."""
    given, preset = request.given, request.numbers
    network = str(given.get("network", preset.network))
    sizes = dict(preset.network_sizes) if network == preset.network else {}
    own = RECIPES[network].sizes if network in RECIPES else {}
    left_open = fitted_names(network) if network in RECIPES else ()
    if "initial" in given and network in RECIPES:
        left_open += family_of(network).alike  # the initial model settles them
    own = {k: v for k, v in own.items() if k not in left_open}
    sizes = {**own, **sizes, **given.get("network_sizes", {})}
    recipe = {
        "name": "segmentation",
        "version": "0.1",
        "seed": 0,
        "workers": 0 if request.hardware.kind == "cpu" else min(8, request.hardware.cores - 1),
        "balanced_share": BALANCED_SHARE,
        **given,
        "network": network,
        "network_sizes": {
            k: as_listed(v)
            for k, v in sizes.items()
            if k not in FROM_DATA or k in given.get("network_sizes", {})
        },
        "plan": dict(given.get("plan", {})),
        "validation": {
            "overlap": preset.overlap,
            "final_overlap": preset.final_overlap,
            "flips": preset.flips,
            **given.get("validation", {}),
        },
    }
    augmentation = given.get("augmentation", {})
    if augmentation is not False:
        recipe["augmentation"] = asdict(AugmentationSettings.from_recipe(augmentation))
    return recipe


def as_listed(value: Any) -> Any:
    """A size as a file holds it: lists in place of tuples."""
    return [as_listed(v) for v in value] if isinstance(value, (list, tuple)) else value


def about_classes(given: dict[str, Any], data: LabelledSet) -> list[str]:
    """That classes were read off the labels, where the recipe names none."""
    if "classes" in given:
        return []
    names = [c.label.name for c in data.classes]
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return [
        f"the classes are those that the data name: {', '.join(names[:SHOWN_NAMES])}{more}; rename "
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
    recipe: dict[str, Any], data: LabelledSet, facts: DataFacts
) -> tuple[LabelledSet, DataFacts, list[str]]:
    """Do without cases whose spacing is of another unit: at a common one they would be huge.

    Not where the recipe names who trains, nor in a cross-validation, which asks everybody.
    """
    odd = {f.name for f in other_unit(facts.cases)}
    asked = recipe["data"].get("validation")
    odd -= set(asked) if isinstance(asked, list) else set()
    if not odd or "training" in recipe["data"] or "folds" in recipe:
        return data, facts, []
    shown = ", ".join(sorted(odd)[:SHOWN_NAMES])
    note = (
        f"{shown} {'is' if len(odd) == 1 else 'are'} left out: the spacing is of another order of "
        "magnitude than that of the other cases; correct the files, or list them in data.training"
    )
    kept = tuple(case for case in data.cases if case.name not in odd)
    known = tuple(fact for fact in facts.cases if fact.name not in odd)
    return replace(data, cases=kept), replace(facts, cases=known), [note]


def _coarsen(recipe: dict[str, Any], request: PlanRequest, facts: DataFacts) -> list[str]:
    """Plan a coarser spacing where a usual case would have more voxels than the preset bears."""
    if "spacing_mm" in recipe["plan"]:
        return []
    usual = usual_cases(facts.cases)
    fine = target_spacing(usual)
    spacing = coarser(fine, usual, request.numbers.case_voxels)
    if max(a / b for a, b in zip(spacing, fine, strict=True)) < WORTH_IT:
        return []
    recipe["plan"]["spacing_mm"] = list(spacing)
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


def _write_split(data: dict[str, Any], ready: SegmentationPlan) -> None:
    """Name who trains and who validates, in place of shares."""
    for key in ("fold", "share"):
        data.pop(key, None)
    data["training"] = list(ready.split.training)
    data["validation"] = list(ready.split.validation)


def _ordered(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe in the order in which one reads it."""
    first = ("task", "name", "version", "network", "network_sizes", "initial", "seed", "device")
    last = ("threads", "workers", "folds", "final_model", "data", "plan", "balanced_share")
    order = [*first, *last, "augmentation", "validation", "schedule"]
    rest = [key for key in recipe if key not in order]
    return {key: recipe[key] for key in [*order, *rest] if key in recipe}
