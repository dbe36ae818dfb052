"""Fit of the quality words to a file of predictions with known Dice.

    python Testing/lab/accuracy/fit_words.py ANSWERS.jsonl [--weights SHA256] [--measure KIND...]

Run by hand, on the file of `bench_calibration.py --answers`. Prints the entry of
`models/overlap.yaml` for these weights. By cross-validation over kinds of scans it reports for each
word the number of predictions, their Dice, and how many are below the word's promise. `--measure`
names kinds (`ct_btcv`) that are never fitted. Each line of the file is
{"weights": SHA-256, "scan": name, "answers": [[evidence, Dice], ...]}, where evidence has the names
of `pumit.models.overlap.Evidence`.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from calibration_fit import (
    PROMISES,
    Floats,
    Row,
    bounds,
    by_other_scans,
    expected,
    features,
    fitted,
    kind_of,
    truth,
    words_by_other_scans,
)
from pumit.models.overlap import Evidence

LAST = "unreliable"


def read_answers(path: Path) -> dict[str, dict[str, list[Row]]]:
    """Read the predictions of a file, by weights and scan."""
    found: dict[str, dict[str, list[Row]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        rows = [Row(record["scan"], Evidence(**e), d) for e, d in record["answers"]]
        found.setdefault(record["weights"], {})[record["scan"]] = rows
    return found


def words(said: Floats, limits: dict[str, float]) -> list[str]:
    """Return the word of each expected Dice."""
    return [next((word for word, bound in limits.items() if s >= bound), LAST) for s in said]


def print_entry(sha256: str, rows: list[Row]) -> tuple[Floats, dict[str, float]]:
    """Print the entry of `overlap.yaml`; return its weights and thresholds."""
    weights, limits = fitted(rows), bounds(rows, by_other_scans(rows))
    print(f"{sha256}:\n  weights:")
    for name, value in zip(rows[0].evidence.features(), weights, strict=True):
        print(f"    {name}: {value:.4f}")
    for word, bound in limits.items():
        print(f"  {word}: {bound}")
    print(f"  answers: {len(rows)}\n  scans: {len({row.scan for row in rows})}")
    return weights, limits


def report(title: str, said: Floats, true: Floats, word_of: list[str]) -> None:
    """Print the calibration error of the expected Dice, and the Dice of each word."""
    parts = np.array_split(np.argsort(said), 8)
    ece = sum(len(part) * abs(said[part].mean() - true[part].mean()) for part in parts) / len(said)
    print(f"{title}: {len(said)} answers, r {np.corrcoef(said, true)[0, 1]:.2f}, ECE {ece:.3f}")
    given = np.array(word_of)
    for word in (*PROMISES, LAST):
        own = true[given == word]
        if len(own):
            low, middle, high = np.quantile(own, (0.05, 0.5, 0.95))
            least = PROMISES.get(word, (0.0, 0.0))[0]
            print(
                f"  {word:>11} {len(own):4d}: Dice {low:.2f} {middle:.2f} {high:.2f} "
                f"(5, 50, 95 %), below {least}: {(own < least).sum()}"
            )
    best = given[true > 0.9]
    if len(best):
        print(f"  of {len(best)} answers above Dice 0.9, {(best == 'good').mean():.0%} are good")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path, help="file of answers, .jsonl")
    parser.add_argument("--weights", help="SHA-256; default: the only weights of the file")
    parser.add_argument("--measure", nargs="+", default=[], help="kinds that are never fitted")
    args = parser.parse_args()
    found = read_answers(args.answers)
    (sha256,) = [args.weights] if args.weights else found
    every = [row for rows in found[sha256].values() for row in rows]
    rows = [row for row in every if kind_of(row.scan) not in args.measure]
    weights, limits = print_entry(sha256, rows)
    report("other kinds of these", by_other_scans(rows), truth(rows), words_by_other_scans(rows))
    measured = [row for row in every if kind_of(row.scan) in args.measure]
    if measured:
        said = expected(features(measured), weights)
        report("never fitted", said, truth(measured), words(said, limits))


if __name__ == "__main__":
    main()
