"""Weights and bounds by which an answer gets its word, fitted to answers whose Dice is known.

Each word promises a Dice (`PROMISES`), and of the answers that get it only this many may have less.
So its bound is not chosen by eye: it is the lowest one above which so few answers have less, by
weights fitted to other kinds of scans, and with one mistake more than was found, which the next
answer may be. That is the correction of Angelopoulos et al., Conformal Risk Control, ICLR 2024, for
the answers that get the word. "Good" takes at least 33 answers without a mistake, 66 with one among
them, of several scans; where there are fewer, nothing is called good.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pumit.models.overlap import Evidence
from scipy.optimize import minimize

FOLDS = 6
# The Dice that a word promises, and the most answers of that word that may have less, best first.
PROMISES = {"good": (0.75, 0.03), "check": (0.6, 0.15), "carefully": (0.4, 0.25)}
GOOD_DICE, MOST_FALSE = PROMISES["good"]
# The least Dice to expect of a word: bad answers are rare, and would hide at the low end of a word
# that many fair ones get.
FLOORS = {"good": 0.75, "check": 0.7, "carefully": 0.5}
LEAST_SCANS = 5  # that the answers of a word are of
LEAST_KINDS = 4  # that tell how the words do on a kind that nothing was fitted to
NEVER = 1.01  # a bound that no answer reaches
RIDGE = 0.002
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One answer: its scan, what is known of it, and its Dice."""

    scan: str
    evidence: Evidence
    dice: float


def kind_of(scan: str) -> str:
    """Return the kind of a scan: its folder in `KIND/SCAN`, `ct_sts` of `ct_sts001`."""
    folder, _, name = scan.rpartition("/")
    return folder or re.split(r"[\W_]*\d", name, maxsplit=1)[0]


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
    """The lowest expected Dice from which on "good" may be said; see `bounds`."""
    return bounds(rows, said)["good"]


def bounds(rows: list[Row], said: Floats) -> dict[str, float]:
    """The lowest expected Dice from which on each word may be said, best word first.

    Args:
        rows: Answers whose Dice is known.
        said: The Dice that was expected of each by weights fitted to other scans, (N,).

    Returns:
        Bounds in hundredths; of "good" `NEVER`, of another word that of the better one, where no
        bound keeps what the word promises.
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
    """The word of each answer by weights and bounds that are both of other scans, (N,)."""
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
    """For each fold the rows of other kinds of scans, or other scans, and which are its own."""
    of = kind_of if len({kind_of(row.scan) for row in rows}) >= LEAST_KINDS else str
    scans = sorted({of(row.scan) for row in rows})
    folds = []
    for fold in range(min(FOLDS, len(scans))):
        own = np.array([of(row.scan) in scans[fold::FOLDS] for row in rows])
        others = [row for row, is_own in zip(rows, own, strict=True) if not is_own]
        folds.append((others, own))
    return folds
