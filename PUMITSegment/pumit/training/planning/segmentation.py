"""Plan an automatic segmentation from data, preset, time and memory, by trying real steps."""

import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK
import torch

from pumit.errors import TrainingError
from pumit.inference.automatic.segmentation import NetworkPlan
from pumit.inference.automatic.sliding_window import SlidingWindow
from pumit.inference.loading import computing_in
from pumit.networks.build import RECIPES, build_network
from pumit.preprocessing.resize import resized_shape
from pumit.system.wording import count_of, times
from pumit.training.data.case import KEPT_BYTES
from pumit.training.data.checks import DataFacts
from pumit.training.data.classes import ClassValue, base_values, classes_of
from pumit.training.data.found_cases import LabelledCase, LabelledSet
from pumit.training.data.split import split_set
from pumit.training.planning.estimate import (
    Estimate,
    Hardware,
    Room,
    TimeParts,
    checkpoint_bytes,
    estimate_of,
    fit,
    room_of,
    schedule_of,
    too_few,
    voxels_that_fit,
)
from pumit.training.planning.request import (
    SHOWN_NAMES,
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
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.presets import ENCODED, adapted_to
from pumit.training.recipes.segmentation import SegmentationRecipe, WindowedValidation
from pumit.training.run.resolved_recipe import plain
from pumit.training.segmentation.data_plan import (
    DataPlan,
    Shape,
    coarser,
    other_unit,
    target_spacing,
    usual_cases,
)
from pumit.training.segmentation.networks import FOR_ANY_DATA, class_of, family_of, fitted_names
from pumit.training.segmentation.plan import (
    SegmentationPlan,
    build_task,
    examine_cases,
    plan_segmentation,
)
from pumit.training.segmentation.prepared_cases import MEMORY_BYTES, PreparedCase, prepare_all
from pumit.training.segmentation.validation import SegmentationValidation
from pumit.training.validate import read_segmentation

TRIALS = 6  # maximum number of step sizes to try
MEMORY_SHARE = 0.85  # of free memory
FEW_STEPS = 100  # warn about fewer steps, in which a network hardly learns
REFLECTIONS = 8
WORST_DRAWN = 3  # cases that are predicted once more for the model card
SCORE_BYTES = 1 << 30  # maximum memory of the logits of a scan
LONGER = 1.5  # depth of the synthetic case in patches, which gives two windows
WINDOWS = 2  # the first warms up
# Sizes that follow from the data; the run computes them again, as a recipe may be edited.
FROM_DATA = ("in_channels", "num_classes", "position_table", "windows")
# Keys of a planned recipe's `plan`.
PLANNED = ("spacing_mm", "patch_size", "batch_size", "intensity", "orientation")
WORTH_IT = 1.05  # minimum factor on the spacing; less makes cases hardly smaller


@dataclass(frozen=True)
class SegmentationCost(MeasuredCost):
    """Measured costs of steps and of a validation case.

    Attributes:
        window_seconds: Time of the network on one window.
        preparing_seconds: Time to read and pre-process a case, per voxel of the network's grid.
        validation_seconds: Time of a case in a validation without its windows, per voxel.
        final_validation_seconds: The same in the final validation, per voxel.
    """

    window_seconds: float
    preparing_seconds: float
    validation_seconds: float
    final_validation_seconds: float


def plan_automatic(request: PlanRequest) -> Planned:
    """Plan a recipe with `task: segmentation`.

    Raises:
        PumitError: If the recipe or its data cannot be used, or the machine is too small.
    """
    keys = _draft(request)
    recipe = read_segmentation(keys, request.source)
    scans = _unlabelled(keys)
    clock = clock_of(recipe.schedule)
    began = clock()
    data, facts = examine_cases(recipe, request.resolve, progress=request.progress)
    reading_seconds = clock() - began
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
    numbers = adapted_to(
        request.numbers,
        class_of(recipe.network),
        is_small=is_small,
        is_pretrained=recipe.initial is not None,
    )
    request = replace(request, numbers=numbers)
    ready, keys["schedule"], estimate, more = _tried(
        request, keys, data, facts, reading_seconds=reading_seconds
    )
    planned = ready.plan.as_recipe()
    keys["plan"] = {key: keys["plan"].get(key, planned[key]) for key in PLANNED}
    known = {**RECIPES[ready.network].sizes, **ready.sizes}
    for key in fitted_names(ready.network):  # chosen by spacing and number of slices
        keys["network_sizes"][key] = plain(known[key])
    if recipe.folds is None:
        name_cases(keys["data"], ready.split)
    warnings = [*data.doubts, *ready.split.warnings, *ready.facts.warnings, *notes, *more]
    return Planned(in_order(keys), estimate, tuple(dict.fromkeys(warnings)))


def _unlabelled(keys: dict[str, Any]) -> list[Any]:
    if "unlabelled" not in keys:
        return []
    from pumit.training.pretraining.image_recipe import found_images

    return found_images(Path(keys["unlabelled"]))


def _draft(request: PlanRequest) -> dict[str, Any]:
    """Return the recipe before the cases are read."""
    given, preset = request.recipe, request.numbers
    assert isinstance(given, SegmentationRecipe)
    initial = given.initial
    network = given.given("network") or preset.network
    own = (given.given("network"), given.network_sizes, initial, given.unlabelled)
    if preset.starts_from_clicks and not any(own):
        network, initial = ENCODED, "default"
    sizes = dict(preset.network_sizes) if network == preset.network else {}
    left_open = fitted_names(network)
    if initial is not None:
        left_open += family_of(network).alike  # taken from the initial model
    default = {k: v for k, v in RECIPES[network].sizes.items() if k not in left_open}
    sizes = {**default, **sizes, **given.network_sizes}
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
    if initial != given.initial:
        keys["initial"] = initial
    if given.unlabelled is not None:
        keys["unlabelled"] = str(request.resolve(given.unlabelled).absolute())
    if request.keys.get("augmentation") is not False:
        keys["augmentation"] = given.augmentation.model_dump()
    return keys


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


def _tried(
    request: PlanRequest,
    keys: dict[str, Any],
    data: LabelledSet,
    facts: DataFacts,
    *,
    reading_seconds: float,
) -> tuple[SegmentationPlan, dict[str, Any], Estimate, list[str]]:
    """Find patch, batch and length by trying real steps of different sizes.

    Returns:
        The best plan that fits, its schedule, its estimate, and notes.
    """
    recipe = read_segmentation(keys, request.source)
    numbers, hardware = request.numbers, request.hardware
    given = recipe.schedule.named()
    native = [float(s) for s in np.median([f.spacing_mm for f in facts.cases], axis=0)]

    def planned(voxels: int) -> SegmentationPlan:
        return plan_segmentation(recipe, data, facts, step_voxels=voxels)

    kept: tuple[SegmentationPlan, SegmentationCost, TimeParts] | None = None
    notes: list[str] = []
    tried: list[tuple[Shape, int]] = []
    voxels, has_shrunk = numbers.step_voxels, False
    for _ in range(TRIALS):
        plan = planned(voxels)
        size = (plan.plan.patch_size, plan.plan.batch_size)
        if size in tried:
            break
        tried.append(size)
        # 1. Measure steps of this size; if they do not fit into memory, try half.
        cost, starting = None, 0.0
        options = {"sizes": plan.sizes, "plan": plan.plan.as_recipe(), "native_spacing_mm": native}
        with suppress(MemoryTooSmallError):
            cost, starting = request.measure(SegmentationCost, keys, numbers, **options)
        if cost is None or not _has_room(plan, cost, hardware):
            half = planned(voxels // 2).plan
            was, now = (
                f"{n} patches of {times(p)}" for p, n in (size, (half.patch_size, half.batch_size))
            )
            if was == now and kept is None:
                raise TrainingError(
                    f"A step of {was} does not fit into the memory that is free, and a smaller one "
                    "is not possible; close other programs, or give narrower network_sizes."
                )
            if was == now:
                break
            notes.append(
                f"the memory is too small for steps of {was}: {now} are planned, where they fit"
            )
            voxels, has_shrunk = voxels // 2, True
            continue
        # 2. Adapt the size to the number of steps that fit into the time.
        parts = time_parts(plan, cost, recipe.validation, starting=reading_seconds + starting)
        kept = (plan, cost, parts)
        if "steps" in given:
            break
        unlimited = fit(parts, replace(numbers, most_steps=10**9), {})
        fitting = voxels_that_fit(voxels, unlimited, numbers)
        if fitting == voxels or (fitting > voxels and has_shrunk):
            break
        has_shrunk = has_shrunk or fitting < voxels
        voxels = fitting
    if kept is None:
        raise TrainingError(
            "Even the smallest step does not fit into the memory that is free; close other "
            "programs, or give narrower network_sizes or a smaller plan.patch_size."
        )
    plan, cost, parts = kept
    steps = fit(parts, numbers, given)
    if steps.steps < FEW_STEPS and "steps" not in given:
        notes.append(too_few(steps, "choose a longer preset or a GPU"))
    runs = (recipe.folds or 1) + recipe.final_model
    estimate = estimate_of(
        parts, steps, needed_room(plan, cost), hardware, tried=cost.step, runs=runs
    )
    return plan, schedule_of(numbers, steps, parts, given), estimate, notes


def _has_room(plan: SegmentationPlan, cost: SegmentationCost, hardware: Hardware) -> bool:
    room = needed_room(plan, cost)
    limits = [(room.main, hardware.memory_bytes)]
    if hardware.device_bytes is not None:
        limits.append((room.on_device, hardware.device_bytes))
    return all(free is None or need <= MEMORY_SHARE * free for need, free in limits)


def _voxels_of(plan: SegmentationPlan, names: Sequence[str]) -> list[Shape]:
    """Return the shapes of the named cases at the planned spacing."""
    spacing = plan.plan.spacing_mm
    return [resized_shape(f.shape, f.spacing_mm, spacing) for f in plan.facts_of(names)]


def time_parts(
    plan: SegmentationPlan,
    cost: SegmentationCost,
    validation: WindowedValidation,
    *,
    starting: float,
) -> TimeParts:
    """Return the durations of a run's parts; `starting` is the time until the cases are read, s."""
    training = _voxels_of(plan, plan.split.training)
    shapes = _voxels_of(plan, plan.split.validation)
    voxels = sum(map(math.prod, shapes))

    def windows(part: float) -> int:
        return sum(map(SlidingWindow(plan.plan.patch_size, part).count, shapes))

    turns = REFLECTIONS if validation.flips else 1
    judged = windows(validation.final_overlap) * cost.window_seconds * turns
    drawn = min(WORST_DRAWN, len(shapes)) / max(1, len(shapes))
    return TimeParts(
        starting,
        sum(map(math.prod, training)) * cost.preparing_seconds,
        cost.step.seconds,
        windows(validation.overlap) * cost.window_seconds + voxels * cost.validation_seconds,
        judged * (1 + drawn)
        + voxels * (cost.final_validation_seconds + drawn * cost.validation_seconds),
    ).idle(cost.step)


def needed_room(plan: SegmentationPlan, cost: SegmentationCost) -> Room:
    """Return the memory and disk space of a run; on a CPU, device memory is main memory."""
    voxel_bytes = 4 * plan.plan.channels + 1
    training = list(map(math.prod, _voxels_of(plan, plan.split.training)))
    prepared = sum(training) * voxel_bytes
    disk = checkpoint_bytes(cost.step)
    if prepared > MEMORY_BYTES:  # then memory-mapped, and the system can drop pages
        disk += prepared
        prepared = max(training) * voxel_bytes
    cases = plan.facts_of(plan.split.validation)
    kept = min(KEPT_BYTES, sum(math.prod(f.shape) * voxel_bytes for f in cases))
    largest = max(map(math.prod, _voxels_of(plan, plan.split.validation)), default=0)
    scores = min(SCORE_BYTES, 4 * largest * (len(plan.data.classes) + 2))
    return room_of(cost, disk, held=prepared + kept + scores)


def try_segmentation(request: dict[str, Any]) -> SegmentationCost:
    """Measure a planned run.

    Args:
        request: Planned `recipe`, `sizes` of its network, `plan` from `DataPlan.as_recipe`,
            `native_spacing_mm` of a typical case, `device` and `threads`.
    """
    torch.set_num_threads(int(request["threads"]))
    device = torch.device(request["device"])
    recipe = SegmentationRecipe.model_validate(request["recipe"])
    classes = classes_of(recipe.data.classes or ())
    plan = _plan(request["plan"])
    schedule = recipe.schedule
    clock = clock_of(schedule)
    torch.manual_seed(0)
    network = build_network(recipe.network, **request["sizes"])
    with tempfile.TemporaryDirectory() as folder:
        # 1. A synthetic case, pre-processed like the cases of the run.
        case, shape = _case(Path(folder), plan, classes, request["native_spacing_mm"])
        network_plan = NetworkPlan.from_recipe({"plan": plan.as_recipe()})
        voxels = math.prod(shape)
        began = clock()
        prepared = prepare_all(
            [case], classes, network_plan, folder=Path(folder) / "prepared", voxels=voxels
        )
        preparing = (clock() - began) / voxels
        # 2. Training steps.
        task = build_task(recipe, network, plan, classes, _larger(prepared, plan))
        steps = measure_steps(task, schedule, device, workers=recipe.workers)
        # 3. Validations, with the time of the windows measured separately.
        second = build_network(recipe.network, **request["sizes"]).to(device)
        validation = SegmentationValidation(second, network_plan, [case], classes, overlap=0.0)
        window = _window_seconds(validation, plan, device, clock)
        count = SlidingWindow(plan.patch_size, 0.0).count(shape)
        began = clock()
        validation(second.state_dict())
        started = clock()
        validation.rows()
        judged = clock()
    validating = max(started - began - count * window, 0.0) / voxels
    final_validation = max(judged - started - count * window, 0.0) / voxels
    memory = peak_bytes(device), peak_bytes(torch.device("cpu"))
    return SegmentationCost(steps, *memory, window, preparing, validating, final_validation)


def _plan(content: dict[str, Any]) -> DataPlan:
    lists = {k: tuple(v) for k, v in content.items() if k in ("spacing_mm", "patch_size")}
    return DataPlan(**{**content, **lists, "median_shape": tuple(content["median_shape"])})


def _case(
    folder: Path, plan: DataPlan, classes: Sequence[ClassValue], native: Sequence[float]
) -> tuple[LabelledCase, Shape]:
    """Write a synthetic case with all classes side by side, and return its network shape."""
    d, h, w = plan.patch_size
    longest = max(int(LONGER * d), 1) if plan.median_shape[0] > 1 else 1
    shape = (longest, h, w)
    here = [
        max(1, round(n * spacing / own))
        for n, spacing, own in zip(shape, plan.spacing_mm, native, strict=True)
    ]
    rng = np.random.default_rng(0)
    labels = striped_labels(here, base_values(classes))
    files = []
    for channel in range(plan.channels):
        image = rng.integers(0, 1000, here, dtype=np.int16) + 300 * (labels > 0).astype(np.int16)
        files.append(_write(folder / f"trial_{channel}.nii.gz", image, native))
    label = _write(folder / "labels.nii.gz", labels, native)
    return LabelledCase("trial", tuple(files), label), shape


def _write(path: Path, array: Any, spacing: Sequence[float]) -> Path:
    image = SimpleITK.GetImageFromArray(array)
    image.SetSpacing([float(s) for s in reversed(spacing)])
    SimpleITK.WriteImage(image, str(path), True)
    return path


def _larger(prepared: Sequence[PreparedCase], plan: DataPlan) -> list[PreparedCase]:
    """Pad the cases up to twice the patch, as rotated patches of the real cases may need."""
    shape = [min(m, 2 * p) for m, p in zip(plan.median_shape, plan.patch_size, strict=True)]
    larger = []
    for case in prepared:
        more = [(0, max(0, n - s)) for n, s in zip(shape, case.labels.shape, strict=True)]
        image = np.pad(case.image, [(0, 0), *more], mode="wrap")
        labels = np.pad(case.labels, more, mode="constant")
        larger.append(replace(case, stored_image=image, stored_labels=labels))
    return larger


def _window_seconds(
    validation: SegmentationValidation,
    plan: DataPlan,
    device: torch.device,
    clock: Callable[[], float],
) -> float:
    """Return the time of the network on one window at inference, s."""
    network, precision = validation.segmenter.network, validation.segmenter.precision
    x = torch.randn(1, plan.channels, *plan.patch_size, device=device)
    times = []
    with torch.inference_mode(), computing_in(precision, device):
        for _ in range(WINDOWS):
            began = clock()
            network(x).float().cpu()
            times.append(clock() - began)
    return times[-1]
