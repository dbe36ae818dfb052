"""Measure the cost of automatic segmentation: some steps, and a synthetic validation case."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK
import torch
from torch import nn

from pumit.inference.automatic.segmentation import NetworkPlan
from pumit.inference.automatic.sliding_window import SlidingWindow
from pumit.networks.build import build_network
from pumit.training.data.classes import ClassValue, base_values, classes_of
from pumit.training.data.labelled_set import LabelledCase
from pumit.training.planning.step_cost import StepCost, measure_steps, peak_bytes, striped_labels
from pumit.training.recipes.segmentation import SegmentationRecipe
from pumit.training.segmentation.data_plan import DataPlan, Shape
from pumit.training.segmentation.plan import build_task
from pumit.training.segmentation.prepared_cases import PreparedCase, prepare_all
from pumit.training.segmentation.validation import SegmentationValidation

LONGER = 1.5  # depth of the synthetic case in patches, which gives two windows
WINDOWS = 2  # the first warms up


@dataclass(frozen=True)
class SegmentationCost:
    """Measured costs of steps and of a validation case.

    Attributes:
        window_seconds: Time of the network on one window.
        preparing_seconds: Time to read and pre-process a case, per voxel of the network's grid.
        validation_seconds: Time of a case in a validation without its windows, per voxel.
        final_validation_seconds: The same in the final validation, per voxel.
    """

    step: StepCost
    window_seconds: float
    preparing_seconds: float
    validation_seconds: float
    final_validation_seconds: float
    peak_bytes: int | None
    process_bytes: int | None


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
    torch.manual_seed(0)
    network = build_network(recipe.network, **request["sizes"])
    with tempfile.TemporaryDirectory() as folder:
        # 1. A synthetic case, pre-processed like the cases of the run.
        case, shape = _case(Path(folder), plan, classes, request["native_spacing_mm"])
        network_plan = NetworkPlan.from_recipe({"plan": plan.as_recipe()})
        voxels = math.prod(shape)
        began = time.perf_counter()
        prepared = prepare_all(
            [case], classes, network_plan, folder=Path(folder) / "prepared", voxels=voxels
        )
        preparing = (time.perf_counter() - began) / voxels
        # 2. Training steps.
        steps = measure_steps(
            build_task(recipe, network, plan, classes, _larger(prepared, plan)), schedule, device
        )
        # 3. Validations, with the time of the windows measured separately.
        second = build_network(recipe.network, **request["sizes"]).to(device)
        validation = SegmentationValidation(
            second, network_plan, [case], classes, overlap=0.0, averages_flips=False
        )
        window = _window_seconds(validation, plan, device)
        count = SlidingWindow(plan.patch_size, 0.0).count(shape)
        began = time.perf_counter()
        validation(second.state_dict())
        started = time.perf_counter()
        validation.rows()
        judged = time.perf_counter()
    validating = max(started - began - count * window, 0.0) / voxels
    final_validation = max(judged - started - count * window, 0.0) / voxels
    own = peak_bytes(torch.device("cpu"))
    return SegmentationCost(
        steps, window, preparing, validating, final_validation, peak_bytes(device), own
    )


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
        larger.append(replace(case, image=image, labels=labels))
    return larger


def _window_seconds(
    validation: SegmentationValidation, plan: DataPlan, device: torch.device
) -> float:
    """Return the time of the network on one window at inference, s."""
    network: nn.Module = validation.segmenter.network
    precision = validation.segmenter.precision
    x = torch.randn(1, plan.channels, *plan.patch_size, device=device)
    times = []
    is_half = precision != torch.float32
    with torch.inference_mode(), torch.autocast(device.type, precision, enabled=is_half):
        for _ in range(WINDOWS):
            began = time.perf_counter()
            network(x).float().cpu()
            times.append(time.perf_counter() - began)
    return times[-1]
