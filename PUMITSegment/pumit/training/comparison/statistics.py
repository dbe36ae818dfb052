"""Means of a comparison with intervals, and paired differences to its first network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pumit.evaluation.crossed_bootstrap import CrossedMean, Values, crossed_mean
from pumit.training.comparison.results import TrainingRow

METRICS = ("dice", "hd95_mm", "assd_mm")
ALL = "all classes"  # a case's mean over its classes


@dataclass(frozen=True)
class NetworkScores:
    """All measured values of a network.

    Attributes:
        rows: Rows of its finished trainings, by seed.
        values: Metric and class, or `ALL`, to values (seeds, cases); NaN where there is none.
    """

    name: str
    rows: tuple[TrainingRow, ...]
    values: dict[tuple[str, str], Values]

    @property
    def seeds(self) -> list[int]:
        """Of its trainings, in the order of the values."""
        return [row.seed for row in self.rows]

    def mean(self, metric: str, label: str = ALL) -> CrossedMean:
        """Mean over seeds and cases."""
        return crossed_mean(self.values[metric, label])

    def undefined(self, metric: str, label: str = ALL) -> int:
        """How many answers have no such distance though there is something to be found."""
        dice = self.values["dice", label]
        return int((np.isfinite(dice) & ~np.isfinite(self.values[metric, label])).sum())

    @property
    def lacking_distances(self) -> int:
        """Number of answers without a Hausdorff distance."""
        return self.undefined("hd95_mm")

    def worst(self) -> tuple[TrainingRow, str, float] | None:
        """Return the training, the case and the Dice of the answer with the lowest mean Dice."""
        dice = self.values["dice", ALL]
        if not np.isfinite(dice).any():
            return None
        seed, case = np.unravel_index(int(np.nanargmin(dice)), dice.shape)
        row = self.rows[int(seed)]
        return row, case_names([row])[int(case)], float(dice[seed, case])


@dataclass(frozen=True)
class Difference:
    """A network's values minus the first network's, seed by seed and case by case.

    Attributes:
        seeds: Number of seeds that both were trained with.
    """

    name: str
    seeds: int
    by_metric: dict[str, CrossedMean]


def case_names(rows: Sequence[TrainingRow]) -> list[str]:
    """Cases of some trainings, in order."""
    return sorted({score.case for row in rows for score in row.cases})


def class_names(rows: Sequence[TrainingRow]) -> list[str]:
    """Classes of some trainings, in order of appearance."""
    return list(dict.fromkeys(score.label for row in rows for score in row.cases))


def network_scores(rows: Sequence[TrainingRow], names: Sequence[str]) -> list[NetworkScores]:
    """Values of each network that has a finished training.

    The mean over the classes of a case leaves out a class that is neither in the labels nor in the
    answer. A distance that one of the other classes lacks, its answer or its label being empty, is
    lacking in the mean as well: else the worst answers would raise it.

    Args:
        names: Networks in the order that they shall have.
    """
    cases, labels = case_names(rows), class_names(rows)
    found = []
    for name in names:
        mine = tuple(sorted((r for r in rows if r.name == name), key=lambda row: row.seed))
        if not mine:
            continue
        values: dict[tuple[str, str], Values] = {}
        for metric in METRICS:
            for label in labels:
                values[metric, label] = _values(mine, cases, metric, [label])
            values[metric, ALL] = _values(mine, cases, metric, labels)
        found.append(NetworkScores(name, mine, values))
    return found


def differences_of(scores: Sequence[NetworkScores]) -> list[Difference]:
    """Of every other network to the first, over the seeds that both have."""
    found = []
    for other in scores[1:]:
        first = scores[0]
        seeds = [seed for seed in other.seeds if seed in first.seeds]
        ours = [other.seeds.index(seed) for seed in seeds]
        theirs = [first.seeds.index(seed) for seed in seeds]
        by_metric = {
            metric: crossed_mean(
                other.values[metric, ALL][ours] - first.values[metric, ALL][theirs]
            )
            for metric in METRICS
        }
        found.append(Difference(other.name, len(seeds), by_metric))
    return found


def _values(
    rows: Sequence[TrainingRow],
    cases: Sequence[str],
    metric: str,
    labels: Sequence[str],
) -> Values:
    """Values (seeds, cases), of several classes their mean."""
    table = np.full((len(rows), len(cases)), np.nan)
    for i, row in enumerate(rows):
        of_case: dict[str, list[float]] = {}
        for score in row.cases:
            if score.label in labels and score.dice is not None:
                value = getattr(score, metric)
                of_case.setdefault(score.case, []).append(np.nan if value is None else value)
        for case, values in of_case.items():
            table[i, cases.index(case)] = float(np.mean(values))
    return table
