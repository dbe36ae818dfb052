"""The text of a model card; its sentences are in `report/templates/model_card.md.j2`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import yaml

from pumit.evaluation.segmentation_metrics import Mean
from pumit.report.document import rendered
from pumit.system.wording import duration
from pumit.training.model_card.facts import CaseFact, Scores, fingerprint_of_all
from pumit.training.model_card.record import TASK_OF_KIND, RunCard

MOST_ROWS = 60
POOR_DICE = 0.7  # a class with a lower mean is named among the limits
WIDE = 0.2  # an interval this wide says little
MEASURES = {
    "dice": "Dice",
    "hd95_mm": "HD95, mm",
    "assd_mm": "ASSD, mm",
    "auc": "AUC",
    "accuracy": "accuracy",
}


def card_text(card: RunCard) -> str:
    """Return the text of a card, in markdown."""
    millions = f"{card.parameters / 1e6:.2f} million"
    scores = () if card.scores is None else (card.scores, *card.further_scores)
    numbers = _flat(card.metrics)
    training, validation = card.of_role("training"), card.of_role("validation")
    roles = dict.fromkeys(case.role for case in card.cases)
    text = rendered(
        "model_card.md.j2",
        {
            "card": card,
            "task": TASK_OF_KIND.get(card.kind, card.kind),
            "parameters": millions if card.parameters >= 10_000 else card.parameters,
            "preceding": [
                f"`{network}`, {steps} steps in {duration(seconds)}"
                for network, steps, seconds in card.preceding
            ],
            "metrics": [(_measure(k), f"{v:.3f}") for k, v in numbers],
            "measured": [(each, _means(each), _cases(each)) for each in scores],
            "is_seen": any("training" in case.role for case in validation),
            "most": MOST_ROWS,
            "numbers": {name: value for name, value in numbers if math.isfinite(value)},
            "recipe": _recipe(card),
            "roles": [f"{sum(c.role == role for c in card.cases)} for {role}" for role in roles],
            "spacings": span([case.spacing_mm for case in card.cases if case.spacing_mm]),
            "shapes": span([case.shape for case in card.cases if case.shape]),
            "fingerprint": fingerprint_of_all(card.cases),
            "training": training,
            "validation": validation,
            "rare": _rare(card, training),
            "weak": _weak(card.scores),
        },
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _means(scores: Scores) -> list[list[Any]]:
    """Return the table of means, its head first."""
    names = list(dict.fromkeys(m for row in scores.means.values() for m in row))
    columns = [c for c in names if c in MEASURES] or names
    rows: list[list[Any]] = [["", *map(_measure, columns), "cases"]]
    for name, row in scores.means.items():
        label = "all classes" if name == "mean" else name
        cases = max(m.cases for m in row.values())
        rows.append([label, *(interval(row.get(c)) for c in columns), cases])
    return rows


def _cases(scores: Scores) -> list[list[str]]:
    """Return the table of the worst cases, its head first."""
    columns = list(dict.fromkeys(column for case in scores.cases for column in case.values))
    rows = [["case", *columns]]
    for case in scores.cases[:MOST_ROWS]:
        values = (case.values.get(column) for column in columns)
        rows.append([case.case, *("" if v is None else f"{v:.3f}" for v in values)])
    return rows


def _rare(card: RunCard, training: Sequence[CaseFact]) -> list[str]:
    """Return the classes that few of the training cases have."""
    if not any(case.class_voxels for case in training):
        return []
    counts = {c.name: sum(bool(x.class_voxels.get(c.name)) for x in training) for c in card.classes}
    return [f"{name} ({count})" for name, count in counts.items() if count < len(training) / 4]


def _weak(scores: Scores | None) -> list[tuple[str, list[str]]]:
    """Return the classes that are found badly, or whose scores say little, under what they lack."""
    rows = {} if scores is None else scores.means
    dice = {name: row["dice"] for name, row in rows.items() if "dice" in row}
    of_classes = {name: mean for name, mean in dice.items() if name != "mean"}
    poor = {n: m.mean for n, m in of_classes.items() if m.mean is not None and m.mean < POOR_DICE}
    return [
        (f"These have a mean Dice below {POOR_DICE}", [f"{n} ({m:.2f})" for n, m in poor.items()]),
        (
            f"The intervals of these are wider than {WIDE}",
            [
                n
                for n, m in dice.items()
                if m.low is not None and m.high is not None and m.high - m.low > WIDE
            ],
        ),
        (
            "No validation case has these, so nothing is known of them",
            [n for n, m in of_classes.items() if m.mean is None],
        ),
    ]


def _recipe(card: RunCard) -> str:
    plan = {k: v for k, v in card.plan.items() if k != "median_shape"}
    data = {k: v for k, v in card.settings.get("data", {}).items() if k != "classes"}
    keys = {**card.settings, "data": data, "plan": plan, "schedule": card.schedule}
    keys = {k: v for k, v in keys.items() if v not in ({}, [], None)}
    return yaml.safe_dump(
        keys, sort_keys=False, allow_unicode=True, width=96, default_flow_style=None
    )


def span(rows: Sequence[Sequence[float]]) -> str:
    """Return the range of each axis: `1 to 2 x 0.5 x 0.5`; "" of no rows."""
    ranges = []
    for values in zip(*rows, strict=True):
        low, high = min(values), max(values)
        ranges.append(f"{low:g}" if low == high else f"{low:g} to {high:g}")
    return " x ".join(ranges)


def interval(mean: Mean | None) -> str:
    """Return a mean with its interval."""
    if mean is None or mean.mean is None:
        return "none"
    text = f"{mean.mean:.3f}"
    return text if mean.low is None else f"{text} [{mean.low:.3f}, {mean.high:.3f}]"


def _measure(name: str) -> str:
    return MEASURES.get(name, name.replace("_", " "))


def _flat(metrics: dict[str, Any]) -> list[tuple[str, float]]:
    """Numbers of a nested mapping, with their keys joined."""
    found: list[tuple[str, float]] = []
    for key, value in metrics.items():
        if isinstance(value, dict):
            found += [(f"{key} {inner}", number) for inner, number in _flat(value)]
        elif isinstance(value, (int, float)):
            found.append((key, float(value)))
    return found
