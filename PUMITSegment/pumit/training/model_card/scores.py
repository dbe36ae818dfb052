"""What was measured on each case of a run, wherever the run has written it."""

from __future__ import annotations

import csv
import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pumit.evaluation.segmentation_metrics import Mean, mean_of
from pumit.runs import read_log
from pumit.training.model_card.facts import (
    CaseMeasures,
    Scores,
    read_json,
    segmentation_scores,
    worst_first,
)

logger = logging.getLogger(__name__)

VALIDATION = "validation.json"
CROSS_VALIDATION = "cross_validation.json"
ANSWERS = "answers.csv"
STARTED = "started.json"
ALL_CASES = "final"  # the part of a cross-validation that is trained on all cases
_SPLITS = {"val": "validation", "test": "test"}


def card_scores(folder: Path, numbers: Mapping[str, str]) -> list[Scores]:
    """Return scores case by case, the validation cases first; empty where nothing was measured.

    Args:
        numbers: Name of a case to "case 7".
    """
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
