"""Scores of a run's best model on its validation cases, read from the run's files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PUMITTrainLib.runs.curves import MEAN

# Of a cross-validation, which has every case once, or of a single run.
FILES = ("cross_validation.json", "validation.json")


@dataclass(frozen=True)
class CaseScore:
    """Scores of a validation case.

    Attributes:
        case: Name of the case.
        dice: Dice of each class in it; for a click model after the first click.
        picture: Picture of the errors, or None.
        before: Dice of the initial model on the same case, if known.
    """

    case: str
    dice: Mapping[str, float]
    picture: Path | None = None
    before: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean Dice of its classes."""
        return sum(self.dice.values()) / len(self.dice) if self.dice else 0.0


def readScores(folder: Path) -> tuple[CaseScore, ...]:
    """Read the scores of a run, the worst first; none if not written yet."""
    try:
        file = next(folder / name for name in FILES if (folder / name).is_file())
        content = json.loads(file.read_text(encoding="utf-8"))
        byCase: dict[str, dict[str, float]] = {}
        before: dict[str, dict[str, float]] = {}
        for row in content["rows"]:
            dice = row["clicks"][0] if "clicks" in row else row["dice"]
            if dice is not None:
                byCase.setdefault(str(row["case"]), {})[str(row["label"])] = float(dice)
            for first in (row.get("before") or [])[:1]:
                before.setdefault(str(row["case"]), {})[str(row["label"])] = float(first)
    except (OSError, StopIteration, ValueError, TypeError, LookupError, AttributeError):
        return ()
    scores = sorted((CaseScore(case, dice) for case, dice in byCase.items()), key=_order)
    return tuple(
        CaseScore(score.case, score.dice, _picture(folder, rank), before.get(score.case, {}))
        for rank, score in enumerate(scores, start=1)
    )


def classMeans(scores: Iterable[CaseScore]) -> dict[str, float]:
    """Return the mean Dice of all cases and of each class; empty without scores."""
    kept = list(scores)
    if not kept:
        return {}
    means = {MEAN: sum(score.mean for score in kept) / len(kept)}
    labels = dict.fromkeys(label for score in kept for label in score.dice)
    for label in labels:
        values = [score.dice[label] for score in kept if label in score.dice]
        means[label] = sum(values) / len(values)
    return means


def meanBefore(scores: Iterable[CaseScore]) -> float | None:
    """Return the mean Dice of the initial model; None if unknown."""
    kept = [score.before for score in scores if score.before]
    if not kept:
        return None
    return sum(sum(dice.values()) / len(dice) for dice in kept) / len(kept)


def _order(score: CaseScore) -> tuple[float, Any]:
    return score.mean, score.case


def _picture(folder: Path, rank: int) -> Path | None:
    """Return the picture of a case by its rank from the worst; None if it was not drawn."""
    path = folder / "pictures" / f"worst_{rank}.png"
    return path if path.is_file() else None
