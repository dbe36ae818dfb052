"""Measure the cost of fine-tuning a promptable model: some steps, and clicks of a validation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pumit.evaluation.simulated_user import dice_after_clicks
from pumit.inference.interactive.session import InteractiveSession
from pumit.inference.loading import read_model
from pumit.training.data.checks import DataFacts
from pumit.training.data.classes import base_values, classes_of
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.split import Split
from pumit.training.planning.step_cost import StepCost, measure_steps, peak_bytes, striped_labels
from pumit.training.promptable.plan import ClickPlan, build_click_task, structures_of, validating
from pumit.training.promptable.real_scan import scan_of
from pumit.training.promptable.validation import CLICKS, generated_scan
from pumit.training.recipes.promptable import FineTuningRecipe
from pumit.volume import Volume

MOST_VOXELS = 1 << 24  # of the synthetic case; opening time is proportional to size


@dataclass(frozen=True)
class ClickCost:
    """Measured costs of steps and clicks.

    Attributes:
        opening_seconds: Time to open a scan before its first click, per voxel.
        answering_seconds: Time of one structure with all its clicks.
        scene_seconds: Time of a generated scan with its click.
    """

    step: StepCost
    opening_seconds: float
    answering_seconds: float
    scene_seconds: float
    peak_bytes: int | None
    process_bytes: int | None


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
    task, degrees = build_click_task(plan, [scan], device, seed=0)
    step = measure_steps(task, recipe.schedule, device, degrees=degrees)
    # 3. Opening the scan, a structure with all its clicks, and a generated scan with one click.
    session = InteractiveSession(validating(plan, device))
    began = time.perf_counter()
    session.set_volume(Volume(image, (d, h, w)))
    opened = time.perf_counter()
    dice_after_clicks(session, labels == 1, CLICKS)
    started = time.perf_counter()
    volume, target = generated_scan(0)
    session.set_volume(volume)
    dice_after_clicks(session, target, 1)
    ended = time.perf_counter()
    return ClickCost(
        step,
        (opened - began) / image.size,
        started - opened,
        ended - started,
        peak_bytes(device),
        peak_bytes(torch.device("cpu")),
    )


def _case(
    shape: Sequence[int], values: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Return a synthetic noise scan with all classes side by side in the middle."""
    shrunk = min(1.0, (MOST_VOXELS / np.prod(shape)) ** (1 / 3))
    size = [max(1, round(n * shrunk)) for n in shape]
    labels = striped_labels(size, range(1, values + 1)).astype(np.uint8)
    noise = np.random.default_rng(0).normal(0, 30, size) + 100.0 * labels
    return noise.astype(np.float32), labels
