"""`pumit train` with `task: segmentation`: from labelled scans to a model that `predict` uses."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from pumit.evaluation.segmentation_metrics import summarize
from pumit.inference.automatic import NetworkPlan
from pumit.io.atomic import atomic_path
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.networks.pumit.segmentation_network import SegmentationNetwork
from pumit.training.augmentation import AugmentationSettings
from pumit.training.data_plan import CPU_STEP_VOXELS, GPU_STEP_VOXELS
from pumit.training.origin import origin_of
from pumit.training.prepared_cases import prepare_all
from pumit.training.run_card_facts import fingerprints
from pumit.training.segmentation_plan import (
    SegmentationPlan,
    build_task,
    check_segmentation_recipe,
    look_at_cases,
    plan_segmentation,
)
from pumit.training.segmentation_validation import SegmentationValidation
from pumit.training.trainable_networks import begin_with, build_segmentation
from pumit.training.trainer import train
from pumit.training.training_run import TrainingRun

logger = logging.getLogger(__name__)


def train_segmentation(run: TrainingRun) -> Path:
    """Train an automatic network; started again, it resumes.

    In the output folder: `<name>.safetensors`, the best by validation Dice, `<name>_last`, and
    `validation.json` with Dice, ASSD, HD and HD95 of the best for each case and class.

    Returns:
        The best checkpoint.

    Raises:
        PumitError: If the recipe or the data cannot be used; before anything is trained.
    """
    recipe = run.recipe
    check_segmentation_recipe(recipe, run.source)
    settings = AugmentationSettings.from_recipe(recipe.get("augmentation", {}))
    ready = _plan(run)
    flip_axes = settings.flip_axes([c.label.name for c in ready.data.classes])
    network = build_segmentation(ready.network, ready.sizes)
    if "initial" in recipe:
        begin_with(network, _model(run, recipe["initial"]))
    _tell(run, ready, flip_axes)
    plan = NetworkPlan.from_recipe({"plan": ready.plan.as_recipe()})
    cases = prepare_all(
        ready.cases(ready.split.training),
        ready.data.classes,
        plan,
        folder=run.output / "prepared",
        voxels=math.prod(ready.plan.median_shape) * len(ready.split.training),
        progress=lambda number: logger.info("preparing case %d", number),
    )
    best = run.output / f"{run.name}.safetensors"
    validation = _validation(run, ready, plan)
    keep = _keeper(run, ready, best)
    state = train(
        build_task(recipe, network, ready.plan, ready.data.classes, cases),
        run.output,
        run.schedule,
        seed=run.seed,
        degrees={0: 1.0},  # one spacing
        report=run.report,
        on_checkpoint=_keeper(run, ready, run.output / f"{run.name}_last.safetensors"),
        validate=validation,
        on_best=keep,
        device=run.device,
        workers=run.workers,
    )
    if run.is_first:
        if not best.is_file():  # no validation case has any class: none was better than another
            keep(state, run.schedule.steps)
        _judge(run, validation, best)
    return best


def _model(run: TrainingRun, text: str) -> str:
    """A name of the index as it is; a file as a path."""
    path = run.path(text)
    return str(path) if path.is_file() else text


def _plan(run: TrainingRun) -> SegmentationPlan:
    """Look at all data and decide how to train."""
    data, facts = look_at_cases(run.recipe, run.path)
    voxels = CPU_STEP_VOXELS if run.device.type == "cpu" else GPU_STEP_VOXELS
    return plan_segmentation(run.recipe, data, facts, step_voxels=voxels, seed=run.seed)


def _tell(run: TrainingRun, ready: SegmentationPlan, flip_axes: tuple[int, ...]) -> None:
    """Say what was found and what was decided, before anything is trained."""
    run.report(
        {
            "data": {
                "cases": len(ready.data.cases),
                "classes": {c.label.name: c.value for c in ready.data.classes},
                "training": list(ready.split.training),
                "validation": list(ready.split.validation),
                "warnings": [*ready.split.warnings, *ready.facts.warnings],
                "fingerprints": fingerprints(
                    ready.facts.cases, [c.label.name for c in ready.data.classes]
                ),
            }
        }
    )
    plan = {"network": ready.network, **ready.plan.as_recipe()}
    run.report({"plan": {**plan, "flips": "".join("dhw"[a] for a in flip_axes)}})


def _validation(
    run: TrainingRun, ready: SegmentationPlan, plan: NetworkPlan
) -> SegmentationValidation:
    settings = run.recipe.get("validation", {})
    second: SegmentationNetwork = build_segmentation(ready.network, ready.sizes)
    return SegmentationValidation(
        second.to(run.device),
        plan,
        ready.cases(ready.split.validation),
        ready.data.classes,
        overlap=float(settings.get("overlap", 0.5)),
        averages_flips=False,
    )


def _keeper(run: TrainingRun, ready: SegmentationPlan, target: Path) -> Callable[..., None]:
    """What writes a checkpoint that `pumit predict` uses as it is."""
    content: dict[str, Any] = {
        "name": run.name,
        "version": str(run.recipe.get("version", "0")),
        "kind": "automatic",
        "network": ready.network,
        "sizes": ready.sizes,
        "plan": ready.plan.as_recipe(),
        "classes": [c.as_row() for c in ready.data.classes],
    }
    training = {
        "cases": len(ready.split.training),
        "validation_cases": len(ready.split.validation),
        "channels": list(ready.data.channels),
        "seed": run.seed,
        "initial": (
            origin_of(_model(run, run.recipe["initial"])) if "initial" in run.recipe else None
        ),
        "schedule": asdict(run.schedule),
    }

    def keep(state: dict[str, Tensor], step: int, found: dict[str, float] | None = None) -> None:
        half = {k: (v.half() if v.is_floating_point() else v).cpu() for k, v in state.items()}
        more: dict[str, Any] = {"step": step, "training": training}
        if found is not None:
            more["metrics"] = {k: v for k, v in found.items() if math.isfinite(v)}
        save_checkpoint(target, half, {**content, **more, **run.recipe.get("card", {})})

    return keep


def _judge(run: TrainingRun, validation: SegmentationValidation, best: Path) -> None:
    """Write what the best checkpoint does on each validation case."""
    settings = run.recipe.get("validation", {})
    checkpoint = load_checkpoint(best)
    validation.overlap = float(settings.get("final_overlap", 0.75))
    validation.averages_flips = bool(settings.get("flips", False))
    state = {k: v.float() if v.is_floating_point() else v for k, v in checkpoint.state.items()}
    validation.segmenter.network.load_state_dict(state)
    rows = validation.rows()
    summary = {
        label: {metric: asdict(mean) for metric, mean in metrics.items()}
        for label, metrics in summarize(rows).items()
    }
    result = {
        "step": checkpoint.recipe.get("step"),
        "overlap": validation.overlap,
        "flips": validation.averages_flips,
        "mean": summary,
        "rows": [asdict(row) for row in rows],
    }
    with atomic_path(run.output / "validation.json") as temporary:
        temporary.write_text(json.dumps(result, indent=1), encoding="utf-8")
    short = {
        label: {k: round(m["mean"], 4) for k, m in metrics.items() if m["mean"] is not None}
        for label, metrics in summary.items()
    }
    run.report({"best": {"step": result["step"], **short}})
