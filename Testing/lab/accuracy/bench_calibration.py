"""Calibration of the expected Dice of click predictions, and fit of its weights.

    python Testing/lab/accuracy/bench_calibration.py CASE... [--measure CASE...] -o diagram.png

Run by hand. Fits the weights of `models/overlap.yaml` to the masks after 1 to 5 clicks of the
simulated user. Chooses the thresholds of the quality words (`calibration_fit.py`), and prints the
entry of the file. Reports the Dice of the masks with each word: by cross-validation of weights and
thresholds over kinds of scans, and on the `--measure` cases, which are never fitted. A case is a
folder with `image.nii.gz` and `label.nii.gz`; its kind is its parent folder (`kinds.py build`). A
second session of each target clicks as people do. `--answers FILE` caches the predictions, so that
another run computes only new ones and `fit_words.py` needs no model.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from calibration_fit import (
    Floats,
    Row,
    by_other_scans,
    expected,
    features,
    truth,
    words_by_other_scans,
)
from fit_words import print_entry, read_answers, report, words
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import read_case, simulate_clicks, targets_of
from pumit.inference.interactive.segmenter import Segmenter, load_segmenter
from pumit.inference.interactive.session import InteractiveSession

CLICKS, TARGETS = 5, 2


def answers(segmenter: Segmenter, case: Path) -> list[Row]:
    volume, labels = read_case(case)
    session = InteractiveSession(segmenter)
    session.set_volume(volume)
    rows = []
    for label in targets_of(labels, TARGETS):
        for rng in (None, np.random.default_rng(label)):  # centre of errors; then human-like
            session.reset()
            for mask, _ in simulate_clicks(session, labels == label, CLICKS, rng):
                evidence = session.evidence(session.prompts())
                if evidence is not None:
                    rows.append(Row(name_of(case), evidence, dice(mask, labels == label)))
    return rows


def name_of(case: Path) -> str:
    """Return kind and name of a case, `KIND/NAME`."""
    return f"{case.parent.name}/{case.name}"


def kept(path: Path | None, segmenter: Segmenter, cases: list[Path]) -> list[Row]:
    """Return the predictions on some cases, cached in a file by weights."""
    rows: dict[str, list[Row]] = {}
    if path and path.is_file():
        rows = read_answers(path).get(segmenter.sha256, {})
    for case in cases:
        if name_of(case) in rows:
            continue
        found = rows[name_of(case)] = answers(segmenter, case)
        if path:
            record = {"weights": segmenter.sha256, "scan": name_of(case)}
            record["answers"] = [(asdict(row.evidence), row.dice) for row in found]
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    return [row for case in cases for row in rows[name_of(case)]]


def draw(said: Floats, true: Floats, limits: dict[str, float], path: Path) -> None:
    """Draw the reliability diagram: each prediction, and means in bins of expected Dice."""
    figure = Figure(figsize=(4.6, 4.4), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", lw=1)
    axes.scatter(said, true, s=9, color="#3b76af", alpha=0.45, label="an answer")
    tenth = np.floor(said * 10)
    often = [t for t in np.unique(tenth) if (tenth == t).sum() >= 3]
    means = [(said[tenth == t].mean(), true[tenth == t].mean()) for t in often]
    axes.plot(*zip(*means, strict=True), "o-", color="#c75000", label="mean of a tenth")
    for edge in limits.values():
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
    parser.add_argument("-o", "--output", type=Path, help="diagram by weights of other kinds, .png")
    parser.add_argument(
        "--answers", type=Path, help="file of answers to read and to add to, .jsonl"
    )
    args = parser.parse_args()
    segmenter = load_segmenter(args.model, device="cpu")
    rows = kept(args.answers, segmenter, args.cases)
    weights, limits = print_entry(segmenter.sha256, rows)
    said = by_other_scans(rows)
    report("other kinds of these", said, truth(rows), words_by_other_scans(rows))
    if args.output:
        draw(said, truth(rows), limits, args.output)
    measured = kept(args.answers, segmenter, args.measure)
    if measured:
        said = expected(features(measured), weights)
        report("never fitted", said, truth(measured), words(said, limits))


if __name__ == "__main__":
    main()
