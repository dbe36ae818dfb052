"""How a training went, as a picture: losses, learning rate and what validations found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pumit.geometry import Triple
from pumit.report.line_chart import Line, LineChart, write_line_charts
from pumit.training.model_card.facts import ClassFact
from pumit.training.model_card.record import RunLog
from pumit.training.recipes.schedule import Schedule

# Of a progress record, what is neither a loss nor a score.
_OTHER = {
    "step",
    "seconds",
    "left_seconds",
    "learning_rate",
    "rate",
    "norm",
    "fields_per_second",
    "voxels_per_second",
    "drawing",
    "memory_gib",
}
_SCORE_WORDS = ("dice", "accuracy", "auc", "iou")
_ALL: Triple = (0.1, 0.1, 0.15)


def write_curves(
    log: RunLog,
    path: Path,
    *,
    schedule: Mapping[str, Any],
    classes: Sequence[ClassFact],
    best_step: int | None,
) -> bool:
    """Draw a run's log; returns whether there was anything to draw.

    Args:
        schedule: Schedule of the run, for its learning rate.
        classes: Classes, whose colours the validation's lines have.
        best_step: Step of the weights that were kept.

    Raises:
        ExportError: If it cannot be written.
    """
    if not log.steps:
        return False
    charts = [LineChart("loss", _losses(log))]
    rates = _rates(log, schedule)
    if rates:
        charts.append(LineChart("learning rate", [Line("learning rate", rates)]))
    scores = [*_validation(log, classes), *_training_scores(log)]
    if scores:
        marks = [] if best_step is None else [(f"kept: step {best_step}", float(best_step))]
        high = max(y for line in scores for _, y in line.points)
        limits = (-0.02, 1.02) if high <= 1.0 else None
        charts.append(LineChart(_score_label(scores), scores, limits=limits, marks=marks))
    unit, seconds = ("hours", 3600.0) if log.seconds > 3 * 3600 else ("minutes", 60.0)
    pairs = [(float(r["step"]), float(r["seconds"]) / seconds) for r in log.steps if "seconds" in r]
    if pairs and pairs[0][0] > 0 and pairs[0][1] > 0:
        pairs.insert(0, (0.0, 0.0))
    write_line_charts(charts, path, x_label="step", second=(unit, pairs) if pairs else None)
    return True


def _losses(log: RunLog) -> list[Line]:
    names = [n for n in _numbers_of(log.steps) if not _is_score(n)]
    names.sort(key=lambda name: (name != "loss", name))
    return [Line(name.replace("_", " "), _series(log.steps, name)) for name in names]


def _training_scores(log: RunLog) -> list[Line]:
    return [
        Line(f"in training: {name.replace('_', ' ')}", _series(log.steps, name), is_faint=True)
        for name in _numbers_of(log.steps)
        if _is_score(name)
    ]


def _rates(log: RunLog, schedule: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the schedule's rate at the time of each record."""
    known = {field.name for field in fields(Schedule)}
    given = {key: value for key, value in schedule.items() if key in known}
    if log.learning_rate is not None:
        given["learning_rate"] = log.learning_rate
    if "learning_rate" not in given:
        return []
    try:
        plan = Schedule(**given)
        return [
            (float(r["step"]), plan.rate_at(int(r["step"]) - 1, float(r.get("seconds", 0.0))))
            for r in log.steps
        ]
    except (TypeError, ValueError):  # of another version of this program
        return []


def _validation(log: RunLog, classes: Sequence[ClassFact]) -> list[Line]:
    records = [{"step": r["step"], **r["validation"]} for r in log.validations if "step" in r]
    colors = {f"dice_{fact.name}": fact.color_rgb for fact in classes}
    lines = []
    for name in _numbers_of(records):
        if name == "score" and not any(n.startswith("dice_") for n in _numbers_of(records)):
            continue  # the measure itself is there under its own name
        if not _is_score(name) and name != "score":
            continue
        title = "all classes" if name == "score" else name.removeprefix("dice_")
        lines.append(
            Line(
                title.replace("_", " "),
                _series(records, name),
                _ALL if name == "score" else colors.get(name),
                has_dots=True,
            )
        )
    return lines


def _score_label(lines: Sequence[Line]) -> str:
    names = " ".join(line.name for line in lines)
    return "AUC, accuracy" if "auc" in names else "Dice of the validation cases"


def _is_score(name: str) -> bool:
    return any(word in name.split("_") or name.startswith(word) for word in _SCORE_WORDS) and (
        "error" not in name
    )


def _numbers_of(records: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(
        key for r in records for key, value in r.items() if isinstance(value, (int, float))
    )
    return [name for name in names if name not in _OTHER]


def _series(records: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    return [(float(r["step"]), float(r[name])) for r in records if name in r]
