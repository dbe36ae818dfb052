"""`pumit train` with `task: promptable`: a promptable model that knows a lab's structures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pumit.export.classes import class_colors
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.system.atomic import atomic_path
from pumit.training.data.fingerprints import fingerprints
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.trainer import train
from pumit.training.promptable.labelled_scans import RealScan
from pumit.training.promptable.lora import merged
from pumit.training.promptable.plan import (
    ClickPlan,
    build_click_task,
    build_validation,
    plan_clicks,
    scans_of,
)
from pumit.training.promptable.validation import ClickRow, ClickValidation
from pumit.training.run.origin import origin_of
from pumit.training.run.out_of_memory import (
    MemoryShortError,
    WorkerLostError,
    as_memory_allows,
    fewer_workers,
)
from pumit.training.run.resume_state import LAST
from pumit.training.run.validation_picture import OverlayPictures

State = dict[str, Tensor]
# Of two blends that score nearly alike, the one nearer to the initial model is taken: what it
# knew of other anatomy is tested on generated scans alone.
NEARLY = 0.005


def train_clicks(run: TrainingRun) -> Path:
    """Fine-tune a promptable model; started again, it resumes.

    In the output folder: `<name>.safetensors`, the best by Dice after one click less what is
    forgotten, `<name>_last`, and `validation.json` with Dice after each click for each case and
    class, of the initial model and of the best.

    Returns:
        The best checkpoint, which `load_segmenter` takes as it is.

    Raises:
        PumitError: If the recipe or the data cannot be used; before anything is trained.
    """
    plan = plan_clicks(
        run.recipe,
        run.source,
        run.path,
        seed=run.seed,
        progress=lambda number: run.at_case("Looking at", number),
    )
    _tell(run, plan)
    scans = scans_of(plan, progress=lambda number: run.at_case("Preparing", number))
    return as_memory_allows(
        lambda settings: _train(*settings, scans), (run, plan), _smaller, run.reporter
    )


def _train(run: TrainingRun, plan: ClickPlan, scans: Sequence[RealScan]) -> Path:
    """Train with a plan, and judge the best; returns its checkpoint."""
    run.settle(**_decided(run, plan))
    validation = build_validation(plan, run.device)
    validation.before_click = run.reporter.check
    pictures = OverlayPictures(run.reporter, run.output, plan.data.classes)
    initial = {k: v.float() for k, v in plan.initial.state.items()}
    if run.is_first:
        run.reporter.state("validating", "Clicking with the initial model, to compare with.")
        is_new = not (run.output / LAST).is_file()  # else all of this is told already
        if is_new:
            validation.on_answer = pictures
        before = validation.begin(initial)
        if is_new:
            run.report({"step": 0, "validation": _finite(before)})
    first_rows, validation.on_answer = validation.rows, pictures
    task, degrees = build_click_task(plan, scans, run.device, seed=run.seed)
    best = run.output / f"{run.name}.safetensors"
    keep = _keeper(run, plan, best)
    keep_last = _keeper(run, plan, run.output / f"{run.name}_last.safetensors")
    state = train(
        task,
        run.output,
        run.schedule,
        seed=run.seed,
        degrees=degrees,
        report=run.report,
        on_checkpoint=lambda state, step: keep_last(merged(state), step),
        validate=lambda state: validation(merged(state)),
        on_best=run.keeping(lambda state, step, found: keep(merged(state), step, found), best),
        device=run.device,
        workers=run.workers,
        reporter=run.reporter,
    )
    if run.is_first:
        if not best.is_file():  # no validation case has any class: none was better than another
            run.reporter.written(lambda: keep(merged(state), run.schedule.steps))
        _finish(run, plan, validation, initial, best, first_rows)
    return best


def _smaller(
    settings: tuple[TrainingRun, ClickPlan], short: MemoryShortError
) -> tuple[tuple[TrainingRun, ClickPlan], str] | None:
    """The same run with less memory, and what is less."""
    run, plan = settings
    if isinstance(short, WorkerLostError):
        fewer = fewer_workers(run.workers)
        return fewer and ((replace(run, workers=fewer[0]), plan), fewer[1])
    fields, targets = plan.settings.batch_size, plan.settings.targets_per_field
    if fields > 1:
        less = replace(plan.settings, batch_size=fields // 2)
        sentence = f"Each step takes {fields // 2} of {fields} fields now."
    elif targets > 1:
        less = replace(plan.settings, targets_per_field=targets // 2)
        sentence = f"Each field has {targets // 2} of {targets} targets now."
    else:
        return None
    return (run, replace(plan, settings=less)), sentence


def _decided(run: TrainingRun, plan: ClickPlan) -> dict[str, Any]:
    """Keys of the recipe that were planned, as another start finds them."""
    settings = asdict(plan.settings)
    data = {k: v for k, v in run.recipe["data"].items() if k not in ("fold", "share")}
    asked = {k: settings.pop(k) for k in ("answers", "scenes")}
    return {
        "task": "promptable",
        "name": run.name,
        **settings,
        "blend": list(plan.settings.blend),
        "validation": asked,
        "data": {
            **data,
            "classes": data.get("classes") or [c.as_row() for c in plan.data.classes],
            "training": list(plan.split.training),
            "validation": list(plan.split.validation),
        },
        "seed": run.seed,
        "workers": run.workers,
    }


def _tell(run: TrainingRun, plan: ClickPlan) -> None:
    """Say what was found and what will be done, before anything is trained."""
    classes = plan.data.classes
    run.report(
        {
            "data": {
                "cases": len(plan.data.cases),
                "classes": {
                    c.label.name: c.value if len(c.values) == 1 else list(c.values) for c in classes
                },
                "colors": class_colors([c.label for c in classes]),
                "training": list(plan.split.training),
                "validation": list(plan.split.validation),
                "warnings": [*plan.split.warnings, *plan.facts.warnings],
                "fingerprints": fingerprints(plan.facts.cases, [c.label.name for c in classes]),
            }
        }
    )
    settings = {**asdict(plan.settings), "initial": Path(plan.settings.initial).name}
    run.report({"plan": {"network": "promptable", **settings}})


def _keeper(run: TrainingRun, plan: ClickPlan, target: Path) -> Callable[..., None]:
    """What writes a checkpoint that `load_segmenter` takes."""
    recipe = plan.initial.recipe
    content: dict[str, Any] = {
        "name": run.name,
        "version": str(run.recipe.get("version", "0")),
        "kind": "promptable",
        "network": "promptable",
        "sizes": recipe.get("sizes", {}),
        "classes": [c.as_model_row() for c in plan.data.classes],
    }
    origin = {
        "name": str(recipe.get("name", "")),
        "version": str(recipe.get("version", "0")),
        **origin_of(plan.path),
    }
    training = {
        **{k: v for k, v in asdict(plan.settings).items() if k not in ("answers", "scenes")},
        "initial": origin,
        "cases": len(plan.split.training),
        "validation_cases": len(plan.split.validation),
        "channels": list(plan.data.channels),
        "seed": run.seed,
        "schedule": asdict(run.schedule),
    }

    def keep(
        state: State, step: int, found: dict[str, float] | None = None, share: float | None = None
    ) -> None:
        half = {k: (v.half() if v.is_floating_point() else v).cpu() for k, v in state.items()}
        more: dict[str, Any] = {"step": step, "training": training}
        if found is not None:
            more["metrics"] = _finite(found)
        if share is not None:
            more["tuned_share"] = share
        save_checkpoint(target, half, {**content, **more, **run.recipe.get("card", {})})

    return keep


def _finish(
    run: TrainingRun,
    plan: ClickPlan,
    validation: ClickValidation,
    initial: State,
    best: Path,
    before: Sequence[ClickRow],
) -> None:
    """Try averages of the best weights with the initial ones, and keep the one to be used.

    Source:
        Wortsman et al., Robust fine-tuning of zero-shot models (WiSE-FT), CVPR 2022, eq. 1.
    """
    checkpoint = load_checkpoint(best)
    if "tuned_share" in checkpoint.recipe:
        return  # a run that had ended was started again
    tuned = {k: v.float() for k, v in checkpoint.state.items()}

    def blended(share: float) -> State:
        return {k: torch.lerp(initial[k], tuned[k], share) for k in tuned}

    tried: list[tuple[float, dict[str, float], list[ClickRow]]] = []
    for share in plan.settings.blend:
        run.reporter.state("validating", f"Clicking with {share:.0%} of what was learnt.")
        found = validation(blended(share))
        tried.append((share, found, validation.rows))
        run.report({"blend": {"tuned_share": share, **_finite(found)}})
    share, found, rows = tried[_chosen([found.get("score", math.nan) for _, found, _ in tried])]
    step = int(checkpoint.recipe["step"])
    run.reporter.written(lambda: _keeper(run, plan, best)(blended(share), step, found, share))
    result = {
        "step": step,
        "tuned_share": share,
        "mean": _finite(found),
        "rows": [{**asdict(r), "before": b.clicks} for r, b in zip(rows, before, strict=True)],
    }
    run.reporter.written(lambda: _write(run.output / "validation.json", result))
    rounded = {k: round(v, 4) for k, v in _finite(found).items()}
    run.report({"best": {"step": step, "tuned_share": share, **rounded}})


def _chosen(scores: Sequence[float]) -> int:
    """Number of the last score that is nearly the best; the first where there is none."""
    finite = [score for score in scores if math.isfinite(score)]
    good = [i for i, score in enumerate(scores) if finite and score >= max(finite) - NEARLY]
    return good[-1] if good else 0


def _write(path: Path, content: dict[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _finite(found: dict[str, float]) -> dict[str, float]:
    """What of a validation can be written as JSON."""
    return {k: v for k, v in found.items() if math.isfinite(v)}
