"""`pumit train` with `task: segmentation`: from labelled scans to a model that `predict` uses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pumit.evaluation.segmentation_metrics import summarize
from pumit.export.classes import class_colors
from pumit.inference.automatic.segmentation import NetworkPlan
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.networks.build import RECIPES
from pumit.system.atomic import atomic_path
from pumit.training.data.classes import has_regions
from pumit.training.data.fingerprints import fingerprints
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.trainer import train
from pumit.training.run.origin import origin_of
from pumit.training.run.out_of_memory import (
    MemoryShortError,
    WorkerLostError,
    as_memory_allows,
    fewer_workers,
)
from pumit.training.run.validation_picture import OverlayPictures
from pumit.training.segmentation.augmentation import AugmentationSettings
from pumit.training.segmentation.data_plan import (
    CPU_STEP_VOXELS,
    GPU_STEP_VOXELS,
    PLAN_KINDS,
    smaller_plan,
)
from pumit.training.segmentation.initial_weights import begin_with, sizes_of_initial
from pumit.training.segmentation.networks import build_segmentation, patch_step
from pumit.training.segmentation.plan import (
    BALANCED_SHARE,
    SegmentationPlan,
    build_task,
    check_segmentation_recipe,
    look_at_cases,
    plan_segmentation,
)
from pumit.training.segmentation.prepared_cases import PreparedCase, prepare_all
from pumit.training.segmentation.validation import SegmentationValidation

# Of the recipe's `validation`: overlap of windows meanwhile and at the end, and whether eight
# reflections are averaged at the end.
VALIDATION: dict[str, Any] = {"overlap": 0.5, "final_overlap": 0.75, "flips": False}


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
    network, told = _network(run, ready)  # says what does not fit, before anything is written
    _tell(run, ready, flip_axes, parameters=sum(p.numel() for p in network.parameters()))
    if told:
        run.report({"event": "initial", "sentence": told})
    del network
    plan = NetworkPlan.from_recipe({"plan": ready.plan.as_recipe()})
    cases = run.reporter.written(
        lambda: prepare_all(
            ready.cases(ready.split.training),
            ready.data.classes,
            plan,
            folder=run.output / "prepared",
            voxels=math.prod(ready.plan.median_shape) * len(ready.split.training),
            progress=lambda number: run.at_case("Preparing", number),
        )
    )
    return as_memory_allows(
        lambda settings: _train(*settings, cases), (run, ready), _smaller, run.reporter
    )


def _network(run: TrainingRun, ready: SegmentationPlan) -> tuple[nn.Module, str]:
    """The network as training begins, and what the user is told of it, if anything."""
    torch.manual_seed(run.seed)
    network, told = build_segmentation(ready.network, ready.sizes), ""
    if "initial" in run.recipe:
        told = begin_with(
            network,
            _model(run, run.recipe["initial"]),
            sizes={**RECIPES[ready.network].sizes, **ready.sizes},
        )
    return network, told


def _train(run: TrainingRun, ready: SegmentationPlan, cases: Sequence[PreparedCase]) -> Path:
    """Train with a plan, and judge the best; returns its checkpoint."""
    run.settle(**_decided(run, ready))
    best = run.output / f"{run.name}.safetensors"
    validation = _validation(run, ready)
    keep = _keeper(run, ready, best)
    state = train(
        build_task(run.recipe, _network(run, ready)[0], ready.plan, ready.data.classes, cases),
        run.output,
        run.schedule,
        seed=run.seed,
        degrees={0: 1.0},  # one spacing
        report=run.report,
        on_checkpoint=_keeper(run, ready, run.output / f"{run.name}_last.safetensors"),
        validate=validation,
        on_best=run.keeping(keep, best),
        device=run.device,
        workers=run.workers,
        reporter=run.reporter,
    )
    if run.is_first:
        if not best.is_file():  # no validation case has any class: none was better than another
            run.reporter.written(lambda: keep(state, run.schedule.steps))
        _judge(run, validation, best)
    return best


def _smaller(
    settings: tuple[TrainingRun, SegmentationPlan], short: MemoryShortError
) -> tuple[tuple[TrainingRun, SegmentationPlan], str] | None:
    """The same run with less memory, and what is less."""
    run, ready = settings
    if isinstance(short, WorkerLostError):
        fewer = fewer_workers(run.workers)
        return fewer and ((replace(run, workers=fewer[0]), ready), fewer[1])
    less = smaller_plan(ready.plan, patch_step(ready.network, ready.sizes))
    return less and ((run, replace(ready, plan=less[0])), less[1])


def _decided(run: TrainingRun, ready: SegmentationPlan) -> dict[str, Any]:
    """Keys of the recipe that were planned, as another start finds them."""
    recipe = run.recipe
    data = {k: v for k, v in recipe["data"].items() if k not in ("fold", "share")}
    plan = {k: v for k, v in ready.plan.as_recipe().items() if k in PLAN_KINDS}
    settings = AugmentationSettings.from_recipe(recipe.get("augmentation", {}))
    return {
        "task": "segmentation",
        "name": run.name,
        "network": ready.network,
        "network_sizes": ready.sizes,
        "data": {
            **data,
            # As given they may know other names too.
            "classes": data.get("classes") or [c.as_row() for c in ready.data.classes],
            "training": list(ready.split.training),
            "validation": list(ready.split.validation),
        },
        "plan": {**recipe.get("plan", {}), **plan},
        "balanced_share": recipe.get("balanced_share", BALANCED_SHARE),
        "augmentation": asdict(settings),
        "validation": {**VALIDATION, **recipe.get("validation", {})},
        "seed": run.seed,
        "workers": run.workers,
    }


def _model(run: TrainingRun, text: str) -> str:
    """A name of the index as it is; a file as a path."""
    path = run.path(text)
    return str(path) if path.is_file() else text


def _plan(run: TrainingRun) -> SegmentationPlan:
    """Look at all data and decide how to train."""
    data, facts = look_at_cases(
        run.recipe, run.path, progress=lambda number: run.at_case("Looking at", number)
    )
    voxels = CPU_STEP_VOXELS if run.device.type == "cpu" else GPU_STEP_VOXELS
    ready = plan_segmentation(run.recipe, data, facts, step_voxels=voxels, seed=run.seed)
    if "initial" in run.recipe:
        given = run.recipe.get("network_sizes", {})
        settled = sizes_of_initial(ready.network, given, _model(run, run.recipe["initial"]))
        ready = replace(ready, sizes={**ready.sizes, **settled})
    return ready


def _tell(
    run: TrainingRun, ready: SegmentationPlan, flip_axes: tuple[int, ...], *, parameters: int
) -> None:
    """Say what was found and what was decided, before anything is trained."""
    run.report(
        {
            "data": {
                "cases": len(ready.data.cases),
                "classes": {
                    c.label.name: c.value if len(c.values) == 1 else list(c.values)
                    for c in ready.data.classes
                },
                "colors": class_colors([c.label for c in ready.data.classes]),
                "training": list(ready.split.training),
                "validation": list(ready.split.validation),
                "warnings": [*ready.split.warnings, *ready.facts.warnings],
                "fingerprints": fingerprints(
                    ready.facts.cases, [c.label.name for c in ready.data.classes]
                ),
            }
        }
    )
    plan = {"network": ready.network, "parameters": parameters, **ready.plan.as_recipe()}
    run.report({"plan": {**plan, "flips": "".join("dhw"[a] for a in flip_axes)}})


def _validation(run: TrainingRun, ready: SegmentationPlan) -> SegmentationValidation:
    settings = {**VALIDATION, **run.recipe.get("validation", {})}
    second = build_segmentation(ready.network, ready.sizes)
    validation = SegmentationValidation(
        second.to(run.device),
        NetworkPlan.from_recipe({"plan": ready.plan.as_recipe()}),
        ready.cases(ready.split.validation),
        ready.data.classes,
        overlap=float(settings["overlap"]),
        averages_flips=False,
    )
    validation.before_window = run.reporter.check
    validation.on_answer = OverlayPictures(run.reporter, run.output, ready.data.classes)
    return validation


def _keeper(run: TrainingRun, ready: SegmentationPlan, target: Path) -> Callable[..., None]:
    """What writes a checkpoint that `pumit predict` uses as it is."""
    content: dict[str, Any] = {
        "name": run.name,
        "version": str(run.recipe.get("version", "0")),
        "kind": "automatic",
        "network": ready.network,
        "sizes": ready.sizes,
        "plan": ready.plan.as_recipe(),
        "classes": [c.as_model_row() for c in ready.data.classes],
    }
    if has_regions(ready.data.classes):
        content["regions"] = [list(c.values) for c in ready.data.classes]
    training = {
        "cases": len(ready.split.training),
        "validation_cases": len(ready.split.validation),
        "channels": list(ready.data.channels),
        "repeat_single_channel": ready.data.repeats_single,
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
    settings = {**VALIDATION, **run.recipe.get("validation", {})}
    run.reporter.state("validating", "Measuring the best model on the validation cases.")
    checkpoint = load_checkpoint(best)
    validation.overlap = float(settings["final_overlap"])
    validation.averages_flips = bool(settings["flips"])
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
        "prediction": _mean_times(validation.took),
        "mean": summary,
        "rows": [asdict(row) for row in rows],
    }
    run.reporter.written(lambda: _write_json(run.output / "validation.json", result))
    short = {
        label: {k: round(m["mean"], 4) for k, m in metrics.items() if m["mean"] is not None}
        for label, metrics in summary.items()
    }
    run.report({"best": {"step": result["step"], **short}})


def _mean_times(took: Sequence[tuple[float, float]]) -> dict[str, float]:
    """What segmenting a case takes."""
    means = [sum(column) / len(took) for column in zip(*took, strict=True)]
    return dict(zip(("seconds", "processor_seconds"), means, strict=False))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
