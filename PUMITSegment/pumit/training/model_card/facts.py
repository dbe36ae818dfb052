"""What a model card says, gathered from a run's folder; nothing in it tells who a patient is.

Cases are numbered: "case 7". Which file that is stays in the run's folder, in `case_numbers.json`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pumit.evaluation.segmentation_metrics import Mean, MetricRow, mean_of, summarize
from pumit.export.classes import class_terminology
from pumit.geometry import Triple
from pumit.models.card import classes_of
from pumit.segmentation import TISSUE


@dataclass(frozen=True)
class ClassFact:
    """A class: its name, values in the label maps, code and colour."""

    name: str
    values: tuple[int, ...]
    code: str
    color_rgb: Triple

    @property
    def color_hex(self) -> str:
        """Its colour as `#rrggbb`."""
        return "#" + "".join(f"{round(255 * part):02x}" for part in self.color_rgb)


@dataclass(frozen=True)
class CaseFact:
    """A case without its name.

    Attributes:
        case: "case 7".
        role: "training", "validation" or what else it was for.
        shape: Voxels, the coarsest axis first; empty where no one wrote it down.
        spacing_mm: Voxel size along these, mm.
        sha256: Fingerprint of the image's voxels as they are stored.
        class_voxels: Voxels of each class in its label.
    """

    case: str
    role: str
    shape: tuple[int, ...] = ()
    spacing_mm: tuple[float, ...] = ()
    sha256: str = ""
    class_voxels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseMeasures:
    """Measures of a case: column to number, or to None where there is none."""

    case: str
    values: dict[str, float | None]


@dataclass(frozen=True)
class Scores:
    """Measures of cases that were not trained on.

    Attributes:
        means: Row (a class, or a number of clicks) to measure to its mean with interval.
        cases: Case by case, the worst first.
        split: Role of the cases: "validation" or "test".
        step: Step of the checkpoint that was measured.
    """

    means: dict[str, dict[str, Mean]]
    cases: tuple[CaseMeasures, ...]
    split: str = "validation"
    step: int | None = None
    caption: str = "Dice"


def case_numbers(names: Sequence[str]) -> dict[str, str]:
    """Name of a case to what the card calls it."""
    return {name: f"case {number}" for number, name in enumerate(sorted(set(names)), start=1)}


def case_facts(data: Mapping[str, Any], numbers: Mapping[str, str]) -> tuple[CaseFact, ...]:
    """Cases of a run's log, without their names."""
    known = {row["case"]: row for row in data.get("fingerprints", ()) if "case" in row}
    roles: dict[str, str] = {}
    for role in ("training", "validation", "test"):
        for name in data.get(role, ()):
            roles[name] = f"{roles[name]} and {role}" if name in roles else role
    facts = []
    for name, role in roles.items():
        row = known.get(name, {})
        facts.append(
            CaseFact(
                numbers[name],
                role,
                tuple(row.get("shape", ())),
                tuple(row.get("spacing_mm", ())),
                str(row.get("sha256", "")),
                dict(row.get("class_voxels", {})),
            )
        )
    return tuple(sorted(facts, key=lambda fact: number_of(fact.case)))


def number_of(case: str) -> int:
    """7 of "case 7"."""
    return int(case.removeprefix("case "))


def fingerprint_of_all(cases: Sequence[CaseFact]) -> str:
    """One SHA-256 for a data set, whatever the order of its cases; "" where one has none."""
    parts = sorted(case.sha256 for case in cases)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest() if all(parts) and parts else ""


def class_facts(model: Mapping[str, Any]) -> tuple[ClassFact, ...]:
    """Classes of a checkpoint, with their codes; none where it has none."""
    if not model.get("classes"):
        return ()
    labels = classes_of(model)
    facts = []
    for label, meaning, row in zip(
        labels, class_terminology(labels), model["classes"], strict=True
    ):
        values = row.get("values", [row["value"]] if "value" in row else [])
        parts = [meaning.type, meaning.type_modifier, meaning.anatomic_region]
        parts = [] if meaning.type == TISSUE and not label.terminology else parts
        code = ", ".join(f"{c.scheme} {c.value} {c.meaning}" for c in parts if c is not None)
        facts.append(ClassFact(label.name, tuple(values), code, meaning.color_rgb))
    return tuple(facts)


def segmentation_scores(content: Mapping[str, Any], numbers: Mapping[str, str]) -> Scores:
    """Return the scores in `validation.json` of a segmentation run, also one trained for clicks."""
    if any("clicks" in row for row in content["rows"]):
        return click_scores(content, numbers)
    rows = [MetricRow(**row) for row in content["rows"]]
    by_case: dict[str, dict[str, float | None]] = {}
    for row in rows:
        of_case = by_case.setdefault(numbers[row.case], {})
        of_case[row.label] = row.dice
    scores = []
    for case, values in by_case.items():
        present = [v for v in values.values() if v is not None]
        mean = sum(present) / len(present) if present else None
        scores.append(CaseMeasures(case, {**values, "mean": mean}))
    return Scores(summarize(rows), worst_first(scores, "mean"), step=content.get("step"))


def click_scores(content: Mapping[str, Any], numbers: Mapping[str, str]) -> Scores:
    """Return the scores in `validation.json` of a promptable run."""
    rows = content["rows"]
    means: dict[str, dict[str, Mean]] = {}
    by_case: dict[str, dict[str, float | None]] = {}
    for label in dict.fromkeys(str(row["label"]) for row in rows):
        of_class = [row for row in rows if row["label"] == label]
        means[label] = _click_means(of_class)
        for row in of_class:
            by_case.setdefault(numbers[row["case"]], {})[label] = float(row["clicks"][0])
    if len(means) > 1:
        means["mean"] = _over_classes(rows)
    scores = []
    for case, values in by_case.items():
        present = [v for v in values.values() if v is not None]
        scores.append(CaseMeasures(case, {**values, "mean": sum(present) / len(present)}))
    caption = "Dice after one click"
    return Scores(means, worst_first(scores, "mean"), step=content.get("step"), caption=caption)


def _click_means(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mean]:
    """Means after the first click and after the last, of the model before and of the tuned one."""
    last = min(len(row["clicks"]) for row in rows)
    first = {
        "before, after 1 click": mean_of([row["before"][0] for row in rows]),
        "after 1 click": mean_of([row["clicks"][0] for row in rows]),
    }
    if last == 1:
        return first
    return {
        **first,
        f"before, after {last} clicks": mean_of([row["before"][last - 1] for row in rows]),
        f"after {last} clicks": mean_of([row["clicks"][last - 1] for row in rows]),
    }


def _over_classes(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mean]:
    """Return the same of each case's mean over its classes, which are not independent."""
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        cases.setdefault(str(row["case"]), []).append(row)
    last = min(len(row["clicks"]) for row in rows)
    return _click_means(
        [
            {
                key: [sum(r[key][i] for r in of_case) / len(of_case) for i in range(last)]
                for key in ("before", "clicks")
            }
            for of_case in cases.values()
        ]
    )


def worst_first(scores: Sequence[CaseMeasures], column: str) -> tuple[CaseMeasures, ...]:
    """Cases in rising order of a column; those without it last."""

    def key(score: CaseMeasures) -> tuple[bool, float, int]:
        value = score.values.get(column)
        return (value is None, value or 0.0, number_of(score.case))

    return tuple(sorted(scores, key=key))


def read_json(text: str) -> dict[str, Any] | None:
    """Return an object of a JSON text; None where it is none."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def without_paths(value: Any) -> Any:
    """Return a recipe's value without what looks like a path; lists and mappings throughout."""
    if isinstance(value, Mapping):
        return {str(key): without_paths(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_paths(v) for v in value]
    if isinstance(value, str) and re.search(r"[\\/]", value):
        return "(a path)"
    return value
