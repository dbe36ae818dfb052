"""How far the Dice that is expected of answers to clicks is right, and the weights that say it.

Run by hand, on cases that no word may be measured on later, and then on others:

    python Testing/benchmarks/accuracy/bench_calibration.py CASE... --measure CASE... -o diagram.png

fits the weights of `models/overlap.yaml` to the answers after 1 to 5 clicks of the simulated user
on the first cases, and prints what belongs there; tells by cross-validation over scans, and of the
cases to measure, which are never fitted, how often "good" is said of less than Dice 0.75. A case is
a folder with `image.nii.gz` and `label.nii.gz`. Nothing here is a test.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import clicked, read_case, targets_of
from pumit.inference.interactive.segmenter import Segmenter, load_segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.models.overlap import Evidence
from scipy.optimize import minimize

CLICKS, TARGETS, FOLDS = 5, 2, 6
GOOD, CHECK = 0.84, 0.65  # of the expected Dice
GOOD_DICE = 0.75  # that an answer called good should have
RIDGE = 0.002
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One answer: its scan, what is known of it, and its Dice."""

    scan: str
    evidence: Evidence
    dice: float


def answers(segmenter: Segmenter, case: Path) -> list[Row]:
    volume, labels = read_case(case)
    session = InteractiveSession(segmenter)
    session.set_volume(volume)
    rows = []
    for label in targets_of(labels, TARGETS):
        session.reset()
        for mask, _ in clicked(session, labels == label, CLICKS):
            evidence = session.evidence(session.prompts())
            if evidence is not None:
                rows.append(Row(case.name, evidence, dice(mask, labels == label)))
    return rows


def features(rows: list[Row]) -> Floats:
    return np.array([list(row.evidence.features().values()) for row in rows])


def truth(rows: list[Row]) -> Floats:
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
    return np.asarray(1 / (1 + np.exp(-(x @ w)))).clip(1e-6, 1 - 1e-6)


def cross_validated(rows: list[Row]) -> Floats:
    """The Dice to expect of each answer by weights fitted to other scans."""
    scans = sorted({row.scan for row in rows})
    out = np.zeros(len(rows))
    for fold in range(FOLDS):
        own = np.array([row.scan in scans[fold::FOLDS] for row in rows])
        w = fitted([row for row, is_own in zip(rows, own, strict=True) if not is_own])
        out[own] = expected(features(rows)[own], w)
    return out


def report(title: str, said: Floats, true: Floats) -> None:
    parts = np.array_split(np.argsort(said), 8)
    ece = sum(len(part) * abs(said[part].mean() - true[part].mean()) for part in parts) / len(said)
    good = said >= GOOD
    print(f"{title}: {len(said)} answers, r {np.corrcoef(said, true)[0, 1]:.2f}, ECE {ece:.3f}")
    print(f"  good {good.sum()}, of these below {GOOD_DICE}: {(true[good] < GOOD_DICE).sum()}")
    low = said < CHECK
    print(
        f"  check well {low.sum()}, of these {GOOD_DICE} or more: {(true[low] >= GOOD_DICE).sum()}"
    )


def draw(said: Floats, true: Floats, path: Path) -> None:
    """The reliability diagram: each answer, and means in tenths of what was expected."""
    figure = Figure(figsize=(4.6, 4.4), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", lw=1)
    axes.scatter(said, true, s=9, color="#3b76af", alpha=0.45, label="an answer")
    tenth = np.floor(said * 10)
    kept = [t for t in np.unique(tenth) if (tenth == t).sum() >= 3]
    means = [(said[tenth == t].mean(), true[tenth == t].mean()) for t in kept]
    axes.plot(*zip(*means, strict=True), "o-", color="#c75000", label="mean of a tenth")
    for edge in (CHECK, GOOD):
        axes.axvline(edge, color="0.4", ls=":", lw=1)
    axes.set(xlabel="Dice expected", ylabel="Dice", xlim=(0, 1), ylim=(0, 1))
    axes.legend(fontsize=8, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, format="png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, nargs="+", help="folders of cases to fit to")
    parser.add_argument("--measure", type=Path, nargs="+", default=[], help="never fitted")
    parser.add_argument("--model", default="default", help="name of the index, or a checkpoint")
    parser.add_argument("-o", "--output", type=Path, help="diagram of the cases to measure, .png")
    args = parser.parse_args()
    segmenter = load_segmenter(args.model, device="cpu")
    rows = [row for case in args.cases for row in answers(segmenter, case)]
    weights = fitted(rows)
    print(f"{segmenter.sha256}:\n  weights:")
    for name, value in zip(rows[0].evidence.features(), weights, strict=True):
        print(f"    {name}: {value:.4f}")
    scans = len({row.scan for row in rows})
    print(f"  good: {GOOD}\n  check: {CHECK}\n  answers: {len(rows)}\n  scans: {scans}")
    report("other scans of these", cross_validated(rows), truth(rows))
    measured = [row for case in args.measure for row in answers(segmenter, case)]
    if measured:
        said = expected(features(measured), weights)
        report("never fitted", said, truth(measured))
        if args.output:
            draw(said, truth(measured), args.output)


if __name__ == "__main__":
    main()
