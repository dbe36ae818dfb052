"""Facts of a model card, collected from a run's folder without patient identities.

Cases are numbered: "case 7". The mapping to files stays in the run's folder, in
`case_numbers.json`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
# Errors of files that are no JSON or CSV, or of another form.
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, csv.Error)
_SPLITS = {"val": "validation", "test": "test"}


@dataclass(frozen=True)
class ClassFact:
    """Class with its label map values, terminology code and colour."""

    name: str
    values: tuple[int, ...]
    code: str
    color_rgb: Triple

    @property
    def color_hex(self) -> str:
        """Colour as `#rrggbb`."""
        return "#" + "".join(f"{round(255 * part):02x}" for part in self.color_rgb)


@dataclass(frozen=True)
class CaseFact:
    """A case without its name.

    Attributes:
        role: "training", "validation", "test", or several joined by "and".
        shape: Number of voxels, depth axis first; empty if not recorded.
        sha256: Fingerprint of the image's stored voxels.
        class_voxels: Number of voxels of each class in its label.
    """

    case: str
    role: str
    shape: tuple[int, ...] = ()
    spacing_mm: tuple[float, ...] = ()
    sha256: str = ""
    class_voxels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseMeasures:
    """Metrics of a case: column to value, or None for undefined values."""

    case: str
    values: dict[str, float | None]


@dataclass(frozen=True)
class Scores:
    """Metrics of cases that were not trained on.

    Attributes:
        means: Row, such as a class, to metric to its mean with interval.
        split: Role of the cases: "validation", "test" or "cross-validation".
    """

    means: dict[str, dict[str, Mean]]
    cases: tuple[CaseMeasures, ...]
    split: str = "validation"
    step: int | None = None
    caption: str = "Dice"


def case_numbers(names: Sequence[str]) -> dict[str, str]:
    """Return the card's number of each case, such as "case 7"."""
    return {name: f"case {number}" for number, name in enumerate(sorted(set(names)), start=1)}


def case_facts(data: Mapping[str, Any], numbers: Mapping[str, str]) -> tuple[CaseFact, ...]:
    """Return the cases of a run's log, without their names."""
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
    """Return the number of a case, 7 for "case 7"."""
    return int(case.removeprefix("case "))


def fingerprint_of_all(cases: Sequence[CaseFact]) -> str:
    """Return one order-independent SHA-256 of a data set; "" if a case has none."""
    parts = sorted(case.sha256 for case in cases)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest() if all(parts) and parts else ""


def class_facts(model: Mapping[str, Any]) -> tuple[ClassFact, ...]:
    """Return the classes of a checkpoint with their codes; empty if it has none."""
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
    """Return the scores in `validation.json` of an automatic or promptable run."""
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
    """Return means after the first and last click, of the initial and the fine-tuned model."""
    means = {}
    for number in dict.fromkeys((1, min(len(row["clicks"]) for row in rows))):
        after = f"after {number} click{'s' if number > 1 else ''}"
        means[f"before, {after}"] = mean_of([row["before"][number - 1] for row in rows])
        means[after] = mean_of([row["clicks"][number - 1] for row in rows])
    return means


def _over_classes(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mean]:
    """Return the same over cases, averaging the classes of each, which are not independent."""
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
    """Return the cases in ascending order of a column; those without it last."""

    def key(score: CaseMeasures) -> tuple[bool, float, int]:
        value = score.values.get(column)
        return (value is None, value or 0.0, number_of(score.case))

    return tuple(sorted(scores, key=key))


def without_paths(value: Any) -> Any:
    """Return a recipe's value with everything replaced that looks like a path, recursively."""
    if isinstance(value, Mapping):
        return {str(key): without_paths(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_paths(v) for v in value]
    if isinstance(value, str) and re.search(r"[\\/]", value):
        return "(a path)"
    return value


def card_scores(folder: Path, numbers: Mapping[str, str]) -> list[Scores]:
    """Return scores by case, validation first; empty if there are none."""
    try:
        if (folder / ANSWERS).is_file():
            return answer_scores(folder / ANSWERS, numbers)
        folds = folder.parent if folder.name == ALL_CASES else folder
        if (folds / CROSS_VALIDATION).is_file():
            text = (folds / CROSS_VALIDATION).read_text(encoding="utf-8")
            rows = [
                {k: v for k, v in row.items() if k != "fold"} for row in json.loads(text)["rows"]
            ]
            return [replace(segmentation_scores({"rows": rows}, numbers), split="cross-validation")]
        content = json.loads((folder / VALIDATION).read_text(encoding="utf-8"))
        return [segmentation_scores(content, numbers)] if content.get("rows") else []
    except FileNotFoundError:
        return []
    except _DAMAGED as error:
        logger.warning("what was measured case by case cannot be used (%s)", type(error).__name__)
        return []


def answer_scores(path: Path, numbers: Mapping[str, str]) -> list[Scores]:
    """Return the scores of a classifier's `answers.csv`, by the probability of the true class.

    For several true classes it is their mean; without any, it is one minus the highest probability.
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
    """Return the name of a classifier's case in `case_numbers.json`."""
    return f"{split}/{case}"


def answered_names(folder: Path) -> list[str]:
    """Return the names of the cases in `answers.csv`; empty without the file."""
    try:
        with (folder / ANSWERS).open(encoding="utf-8", newline="") as handle:
            return [name_of(row["split"], row["case"]) for row in csv.DictReader(handle)]
    except (OSError, KeyError, ValueError, csv.Error):
        return []


def _probabilities(row: Mapping[str, str]) -> dict[str, float]:
    return {k: float(v) for k, v in row.items() if k not in ("split", "case", "truth")}


def _by_class(rows: Sequence[Mapping[str, str]]) -> dict[str, dict[str, Mean]]:
    """Return the accuracy of each class over the cases that have it."""
    found = {}
    for name in dict.fromkeys(row["truth"] for row in rows if ";" not in row["truth"]):
        answers = [_probabilities(row) for row in rows if row["truth"] == name]
        hits = [float(max(a, key=lambda k: a[k]) == name) for a in answers]
        found[f"right of {name or 'none'}"] = {"accuracy": mean_of(hits)}
    return found


def fold_of(folder: Path) -> str:
    """Return the validation fold, such as "1 of 5"; "" without folds."""
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
