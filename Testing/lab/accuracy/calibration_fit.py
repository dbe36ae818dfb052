"""Fit of the weights and thresholds that map a prediction to a quality word.

Each word promises a Dice, and a largest share of predictions with that word that may have less
(`PROMISES`). Its threshold is the lowest one that keeps this promise, with expected Dice by weights
fitted to other kinds of scans. One error more than was found is counted, for the next prediction:
the correction of Angelopoulos et al., Conformal Risk Control, ICLR 2024, applied to the predictions
with the word. "Good" needs at least 33 predictions without an error, or 66 with one, of several
scans; with fewer, nothing is called good.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pumit.models.overlap import Evidence
from scipy.optimize import minimize

FOLDS = 6
# Promised Dice of each word, and the largest share of its predictions below that; best word first.
PROMISES = {"good": (0.75, 0.03), "check": (0.6, 0.15), "carefully": (0.4, 0.25)}
GOOD_DICE, MOST_FALSE = PROMISES["good"]
# Lowest threshold of each word: otherwise rare bad predictions would hide at the low end of a word
# that many fair ones get.
FLOORS = {"good": 0.75, "check": 0.7, "carefully": 0.5}
LEAST_SCANS = 5  # scans that the predictions of a word must come from
LEAST_KINDS = 4  # for cross-validation over kinds of scans instead of scans
NEVER = 1.01  # a threshold that no prediction reaches
RIDGE = 0.002
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One prediction: its scan, evidence and Dice."""

    scan: str
    evidence: Evidence
    dice: float


def kind_of(scan: str) -> str:
    """Return the kind of a scan: its folder in `KIND/SCAN`, `ct_sts` of `ct_sts001`."""
    folder, _, name = scan.rpartition("/")
    return folder or re.split(r"[\W_]*\d", name, maxsplit=1)[0]


def features(rows: list[Row]) -> Floats:
    """Return the features of each prediction, (N, features)."""
    return np.array([list(row.evidence.features().values()) for row in rows])


def truth(rows: list[Row]) -> Floats:
    """Return the Dice of each prediction, (N,)."""
    return np.array([row.dice for row in rows])


def fitted(rows: list[Row]) -> Floats:
    """Fit a ridge-regularised logistic regression of Dice, with equal weight per scan."""
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
    """Return the expected Dice for these features, (N,)."""
    return np.asarray(1 / (1 + np.exp(-(x @ w)))).clip(1e-6, 1 - 1e-6)


def by_other_scans(rows: list[Row]) -> Floats:
    """Return the expected Dice of each prediction by cross-validation, (N,)."""
    out = np.zeros(len(rows))
    for others, own in _folds(rows):
        out[own] = expected(features(rows)[own], fitted(others))
    return out


def good_bound(rows: list[Row], said: Floats) -> float:
    """Return the threshold of "good"; see `bounds`."""
    return bounds(rows, said)["good"]


def bounds(rows: list[Row], said: Floats) -> dict[str, float]:
    """Return the lowest expected Dice of each word, best word first.

    Args:
        rows: Predictions with known Dice.
        said: Their expected Dice by cross-validation, (N,).

    Returns:
        Thresholds, rounded to 0.01. If none keeps a word's promise: `NEVER` for "good", else the
        threshold of the next better word.
    """
    scans, true = np.array([row.scan for row in rows]), truth(rows)
    found: dict[str, float] = {}
    upper = NEVER
    for word, (least, most_false) in PROMISES.items():
        for hundredths in range(round(100 * FLOORS[word]), round(100 * min(upper, 1.0))):
            bound = hundredths / 100
            own = (said >= bound) & (said < upper)
            is_rare = (true[own] < least).sum() + 1 <= most_false * (own.sum() + 1)
            if is_rare and len(set(scans[own])) >= LEAST_SCANS:
                upper = bound
                break
        found[word] = upper
    return found


def words_by_other_scans(rows: list[Row]) -> list[str]:
    """Return the word of each prediction, with weights and thresholds of other folds, (N,)."""
    out = np.full(len(rows), "unreliable", dtype=object)
    for others, own in _folds(rows):
        limits = bounds(others, by_other_scans(others))
        said = expected(features(rows)[own], fitted(others))
        given = np.full(len(said), "unreliable", dtype=object)
        for word, bound in reversed(limits.items()):
            given[said >= bound] = word
        out[own] = given
    return list(out)


def _folds(rows: list[Row]) -> list[tuple[list[Row], npt.NDArray[np.bool_]]]:
    """Return for each fold the training rows and the mask of held-out rows.

    Folds are split by kind of scan, or by scan with fewer than `LEAST_KINDS` kinds.
    """
    of = kind_of if len({kind_of(row.scan) for row in rows}) >= LEAST_KINDS else str
    scans = sorted({of(row.scan) for row in rows})
    folds = []
    for fold in range(min(FOLDS, len(scans))):
        own = np.array([of(row.scan) in scans[fold::FOLDS] for row in rows])
        others = [row for row, is_own in zip(rows, own, strict=True) if not is_own]
        folds.append((others, own))
    return folds
