"""What a model card says, gathered from a run's folder; nothing in it tells who a patient is.

Cases are numbered: "case 7". Which file that is stays in the run's folder, in `case_numbers.json`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pumit.evaluation.segmentation_metrics import Mean, MetricRow, mean_of, summarize
from pumit.export.classes import class_terminology
from pumit.geometry import Triple
from pumit.models.card import classes_of
from pumit.runs import read_log
from pumit.segmentation import TISSUE

logger = logging.getLogger(__name__)
VALIDATION = "validation.json"
CROSS_VALIDATION = "cross_validation.json"
ANSWERS = "answers.csv"
STARTED = "started.json"
ALL_CASES = "final"  # the part of a cross-validation that is trained on all cases
_SPLITS = {"val": "validation", "test": "test"}


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


def card_scores(folder: Path, numbers: Mapping[str, str]) -> list[Scores]:
    """Return scores case by case, the validation cases first; empty where nothing was measured."""
    try:
        if (folder / ANSWERS).is_file():
            return answer_scores(folder / ANSWERS, numbers)
        if folder.name == ALL_CASES and (folder.parent / CROSS_VALIDATION).is_file():
            return [_cross_validated(folder.parent / CROSS_VALIDATION, numbers)]
        content = read_json((folder / VALIDATION).read_text(encoding="utf-8"))
        if content is None or not content.get("rows"):
            return []
        return [segmentation_scores(content, numbers)]
    except FileNotFoundError:
        return []
    except (OSError, KeyError, IndexError, TypeError, ValueError, csv.Error) as error:
        logger.warning("what was measured case by case cannot be used (%s)", type(error).__name__)
        return []


def _cross_validated(path: Path, numbers: Mapping[str, str]) -> Scores:
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = [{k: v for k, v in row.items() if k != "fold"} for row in content["rows"]]
    scores = segmentation_scores({"rows": rows}, numbers)
    return Scores(scores.means, scores.cases, "cross-validation", None, scores.caption)


def answer_scores(path: Path, numbers: Mapping[str, str]) -> list[Scores]:
    """Scores of a classifier's `answers.csv`; a case's is the probability of what is true.

    Of several true classes of one case it is the mean; a case of none counts by how sure it is
    that there is none.
    """
    with path.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    found = []
    for split in dict.fromkeys(row["split"] for row in rows):
        of_split = [row for row in rows if row["split"] == split]
        scores, hits = [], []
        for row in of_split:
            answer = _probabilities(row)
            truth = [name for name in row["truth"].split(";") if name in answer]
            of_truth = [answer[name] for name in truth] or [1 - max(answer.values())]
            right = max(answer, key=lambda name: answer[name]) in truth
            hits.append(float(right) if len(truth) == 1 else None)
            values: dict[str, float | None] = {
                **answer,
                "true class": sum(of_truth) / len(of_truth),
            }
            scores.append(CaseMeasures(numbers[name_of(row["split"], row["case"])], values))
        means = {"right": {"accuracy": mean_of(hits)}} | _by_class(of_split)
        found.append(
            Scores(
                means,
                worst_first(scores, "true class"),
                _SPLITS.get(split, split),
                None,
                "the probability that it gives each class, and the true one",
            )
        )
    return found


def name_of(split: str, case: str) -> str:
    """Return the name in `case_numbers.json` of a case of a classifier's data."""
    return f"{split}/{case}"


def answered_names(folder: Path) -> list[str]:
    """Names of the cases in `answers.csv`; none where there is no such file."""
    try:
        with (folder / ANSWERS).open(encoding="utf-8", newline="") as handle:
            return [name_of(row["split"], row["case"]) for row in csv.DictReader(handle)]
    except (OSError, KeyError, ValueError, csv.Error):
        return []


def _probabilities(row: Mapping[str, str]) -> dict[str, float]:
    return {k: float(v) for k, v in row.items() if k not in ("split", "case", "truth")}


def _by_class(rows: Sequence[Mapping[str, str]]) -> dict[str, dict[str, Mean]]:
    """How often each class is recognised, only over the cases that have it."""
    found = {}
    for name in dict.fromkeys(row["truth"] for row in rows if ";" not in row["truth"]):
        answers = [_probabilities(row) for row in rows if row["truth"] == name]
        hits = [float(max(a, key=lambda k: a[k]) == name) for a in answers]
        found[f"right of {name or 'none'}"] = {"accuracy": mean_of(hits)}
    return found


def fold_of(folder: Path) -> str:
    """Which part of the data validated, such as "1 of 5"; "" where they were not folded."""
    try:
        content = json.loads((folder / STARTED).read_text(encoding="utf-8"))
        for keys in content["recipes"]:
            if "fold" in keys.get("data", {}):
                return str(keys["data"]["fold"]).replace("/", " of ")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    part = re.fullmatch(r"fold_(\d+)", folder.name)
    counts = [len(r["folds"]) for r in read_log(folder.parent)[0] if "folds" in r] if part else []
    return f"{part[1]} of {counts[-1]}" if part and counts else ""
