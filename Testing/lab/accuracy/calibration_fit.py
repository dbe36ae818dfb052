"""Weights and bounds by which an answer gets its word, fitted to answers whose Dice is known.

"Good" is meant for Dice 0.75 or more, and of the answers called good at most 5 % may have less. So
its bound is not chosen by eye: it is the lowest one above which so few answers have less, by
weights fitted to other scans, and with one mistake more than was found, which the next answer may
be. That is the correction of Angelopoulos et al., Conformal Risk Control, ICLR 2024, for the
answers called good. It takes at least 19 answers without a mistake, 39 with one among them, of
several scans; where there are fewer, nothing is called good.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pumit.models.overlap import Evidence
from scipy.optimize import minimize

FOLDS = 6
CHECK = 0.65  # of the expected Dice: below it, check well
GOOD_DICE = 0.75  # that an answer called good should have
MOST_FALSE = 0.05  # of the answers called good
LEAST_SCANS = 5  # that they are of
NEVER = 1.01  # a bound that no answer reaches
RIDGE = 0.002
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One answer: its scan, what is known of it, and its Dice."""

    scan: str
    evidence: Evidence
    dice: float


def features(rows: list[Row]) -> Floats:
    """What is known of each answer, (N, features)."""
    return np.array([list(row.evidence.features().values()) for row in rows])


def truth(rows: list[Row]) -> Floats:
    """The Dice of each answer, (N,)."""
    return np.array([row.dice for row in rows])


def fitted(rows: list[Row]) -> Floats:
    """Weights of a logistic curve through the Dice, with a ridge; every scan weighs the same."""
    x, y = features(rows), truth(rows).clip(0.01, 0.99)
    counts = Counter(row.scan for row in rows)
    weight = np.array([1 / counts[row.scan] / len(counts) for row in rows])
    scale = x.std(0)

    def loss(w: Floats) -> float:
        p = expected(x, w)
        entropy = -(weight * (y * np.log(p) + (1 - y) * np.log(1 - p))).sum()
        return float(entropy + RIDGE * ((w * scale)[1:] ** 2).sum())

    return np.asarray(minimize(loss, np.zeros(x.shape[1]), method="BFGS").x)


def expected(x: Floats, w: Floats) -> Floats:
    """The Dice to expect of answers with these features, (N,)."""
    return np.asarray(1 / (1 + np.exp(-(x @ w)))).clip(1e-6, 1 - 1e-6)


def by_other_scans(rows: list[Row]) -> Floats:
    """The Dice to expect of each answer by weights fitted to other scans, (N,)."""
    out = np.zeros(len(rows))
    for others, own in _folds(rows):
        out[own] = expected(features(rows)[own], fitted(others))
    return out


def good_bound(rows: list[Row], said: Floats) -> float:
    """The lowest expected Dice from which on "good" may be said.

    Args:
        rows: Answers whose Dice is known.
        said: The Dice that was expected of each by weights fitted to other scans, (N,).

    Returns:
        The bound, in hundredths; `NEVER` where no bound keeps what "good" promises.
    """
    scans, is_false = np.array([row.scan for row in rows]), truth(rows) < GOOD_DICE
    for hundredths in range(round(100 * CHECK), 100):
        bound = hundredths / 100
        good = said >= bound
        is_rare = is_false[good].sum() + 1 <= MOST_FALSE * (good.sum() + 1)
        if is_rare and len(set(scans[good])) >= LEAST_SCANS:
            return bound
    return NEVER


def words_by_other_scans(rows: list[Row]) -> npt.NDArray[np.bool_]:
    """Which answers are called good by weights and a bound that are both of other scans, (N,)."""
    out = np.zeros(len(rows), dtype=bool)
    for others, own in _folds(rows):
        bound = good_bound(others, by_other_scans(others))
        out[own] = expected(features(rows)[own], fitted(others)) >= bound
    return out


def _folds(rows: list[Row]) -> list[tuple[list[Row], npt.NDArray[np.bool_]]]:
    """For each fold the rows of other scans, and which rows are its own."""
    scans = sorted({row.scan for row in rows})
    folds = []
    for fold in range(min(FOLDS, len(scans))):
        own = np.array([row.scan in scans[fold::FOLDS] for row in rows])
        others = [row for row, is_own in zip(rows, own, strict=True) if not is_own]
        folds.append((others, own))
    return folds
