"""Plan a classifier for a data set, a preset and a machine, and measure the cost of its steps."""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pumit.networks.build import build_network
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.system.wording import count_of, times
from pumit.training.classification.cases import Cases, ClassificationData
from pumit.training.classification.run import form_of, plan_of, read_data, sizes_of
from pumit.training.classification.task import (
    CaseDraw,
    ClassificationTask,
    PreparedImages,
    probabilities_of,
)
from pumit.training.planning.estimate import (
    TimeParts,
    checkpoint_bytes,
    estimate_of,
    fit,
    room_of,
    schedule_of,
    too_few,
)
from pumit.training.planning.request import Planned, PlanRequest, drafted, in_order
from pumit.training.planning.step_cost import (
    MeasuredCost,
    clock_of,
    measure_steps,
    peak_bytes,
)
from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.model import read_model
from pumit.training.recipes.presets import CLASSIFIER_PRESETS
from pumit.training.recipes.reader import read_yaml, shipped_recipe
from pumit.training.run.resolved_recipe import with_absolute_paths
from pumit.volume import Volume

SAMPLE = 6  # scans whose reading is timed
FEW_STEPS = 100  # warn about fewer steps, in which a network hardly learns
FEW_CASES = 20  # warn about fewer validation cases
MUCH_LARGER = 27  # warn about scans with that many times the network's voxels
# Keys of the shipped recipe that a plan takes over; those of the network fit only its own.
OF_NETWORK = ("network", "network_sizes", "image_size")
SHIPPED = (*OF_NETWORK, "flips", "batch_size")


@dataclass(frozen=True)
class ClassifierCost(MeasuredCost):
    """Measured costs of steps and answers; `answering_seconds` is per image."""

    answering_seconds: float


def plan_classifier(request: PlanRequest) -> Planned:
    """Plan a recipe with `task: classification`, from the shipped recipe of that name.

    Raises:
        PumitError: If the recipe or its data cannot be used, or the machine is too small.
    """
    shipped = read_yaml(shipped_recipe("classification"))
    is_other = not {"network", "network_sizes", "initial", "eva02"}.isdisjoint(request.keys)
    taken = {k: shipped[k] for k in SHIPPED if not (is_other and k in OF_NETWORK)}
    draft = {**drafted(request, "classifier"), **taken, **request.keys}
    keys = with_absolute_paths(draft, request.resolve)
    recipe = read_model(ClassificationRecipe, keys, request.source)
    preset = replace(CLASSIFIER_PRESETS[request.preset], seconds=request.numbers.seconds)
    given: dict[str, Any] = {"precision": "fp32", **recipe.schedule.named()}
    data = read_data(recipe, request.resolve)
    sizes = sizes_of(recipe, data)
    form = form_of(recipe, sizes, data)
    sizes["position_table"] = [n // p for n, p in zip(form.size, sizes["fixed_patch"], strict=True)]
    counts = {name: len(cases) for name, cases in data.splits.items()}
    reading, shape = _sample(data, form, request)
    cost, starting = request.measure(
        ClassifierCost,
        {key: value for key, value in keys.items() if key != "epochs"},
        preset,
        sizes=sizes,
        input=form.as_recipe(),
        # Scans of files are prepared once, those of an array each time.
        shape=shape if data.is_stored_as_shown else None,
    )
    parts = TimeParts(
        starting,
        0.0 if data.is_stored_as_shown else reading * sum(counts.values()),
        cost.step.seconds,
        counts["val"] * cost.answering_seconds,
        (counts["val"] + counts.get("test", 0)) * cost.answering_seconds,
    ).idle(cost.step)
    if recipe.epochs is not None:
        given["steps"] = plan_of(recipe, counts["train"], processes=1)[0].steps
    steps = fit(parts, preset, given)
    keys["schedule"] = schedule_of(preset, steps, parts, given)
    if recipe.epochs is not None:
        del keys["schedule"]["steps"]
    disk = checkpoint_bytes(cost.step)
    if not data.is_stored_as_shown:  # prepared images are kept as float16
        disk += 2 * sum(counts.values()) * math.prod(form.size)
    room = room_of(cost, disk)
    runs = max(1, len(recipe.learning_rates))
    estimate = estimate_of(parts, steps, room, request.hardware, tried=cost.step, runs=runs)
    warnings = list(data.notes)
    if counts["val"] < FEW_CASES:
        scans = count_of(counts["val"], "scan")
        warnings.append(f"only {scans} for validation, so accuracy and AUC are rough figures")
    if math.prod(shape) > MUCH_LARGER * math.prod(form.size):
        warnings.append(
            f"the network sees a whole scan at {times(form.size)} voxels, one of them has "
            f"{times(shape)}; crop the scans to what matters, or give a larger image_size"
        )
    if steps.steps < FEW_STEPS and "steps" not in given:
        warnings.append(too_few(steps, "choose a longer preset or a GPU"))
    return Planned(in_order(keys), estimate, tuple(warnings))


def try_classifier(request: Mapping[str, Any]) -> ClassifierCost:
    """Measure a planned run on a synthetic image.

    Args:
        request: Planned `recipe`, network `sizes`, `input` as in a checkpoint, `shape` of an image
            that is prepared at every step or None, `device` and `threads`.
    """
    torch.set_num_threads(int(request["threads"]))
    device = torch.device(request["device"])
    recipe = ClassificationRecipe.model_validate(request["recipe"])
    form = ClassifierInput.from_recipe(request)
    size = recipe.batch_size
    noise = np.random.default_rng(0).integers(0, 255, request["shape"] or form.size)
    volume = Volume(noise.astype(np.float32))
    cases = Cases(["noise"] * size, np.zeros(size, dtype=np.int64), lambda _: volume)
    with tempfile.TemporaryDirectory() as folder:
        kept = None
        if request["shape"] is None:
            kept = [Path(folder) / "image.npy"] * size
            np.save(kept[0], np.zeros((1, *form.size), dtype=np.float16))
        images = PreparedImages(cases, form, kept)
        task = ClassificationTask(
            build_network(recipe.network, **request["sizes"]),
            CaseDraw(
                images,
                size,
                random_intensity=recipe.random_intensity,
                flips=recipe.flips,
            ),
        )
        step = measure_steps(task, recipe.schedule, device, workers=recipe.workers)
        network = task.network.eval()
        clock = clock_of(recipe.schedule)
        began = clock()
        probabilities_of(network, images, batch_size=size, is_multi_label=False)
        seconds = (clock() - began) / size
    return ClassifierCost(step, peak_bytes(device), peak_bytes(torch.device("cpu")), seconds)


def _sample(
    data: ClassificationData, form: ClassifierInput, request: PlanRequest
) -> tuple[float, list[int]]:
    """Return the time to read and prepare a scan, s, and the largest shape of some training scans.

    Raises:
        VolumeError: If one of them cannot be read.
    """
    cases, shapes = data.splits["train"], []
    chosen = range(0, len(cases), max(1, len(cases) // SAMPLE))
    clock = clock_of(request.recipe.schedule)
    began = clock()
    for number, index in enumerate(chosen, start=1):
        if request.progress is not None:
            request.progress(number)
        volume = cases.volume(index)
        shapes.append(list(volume.shape))
        form.prepare(volume)
    return (clock() - began) / len(chosen), max(shapes, key=math.prod)
