"""Gain of alternative masks: Dice of the shown mask and of the best of the first two to four.

`another_answer.py CASES PATTERN... [--model M] [--targets N]` prompts the largest targets of each
case once with each gesture. It prints mean Dice over cases, and the time of choosing another mask
relative to that of the first.
"""

import argparse
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import GESTURES, deepest, read_case, targets_of
from pumit.inference.interactive.segmenter import Segmenter, load_segmenter
from pumit.inference.interactive.session import InteractiveSession

MOST = 4
DRAWN = ("box", "click", "scribble", "lasso")
Row = tuple[str, list[float], list[float]]  # gesture, Dice of each answer, seconds of each


def rows_of(segmenter: Segmenter, folder: Path, targets: int) -> Iterator[Row]:
    """Yield Dice and seconds of each mask, for each target and gesture of a case."""
    volume, labels = read_case(folder)
    session = InteractiveSession(segmenter)
    session.set_volume(volume)
    for label in targets_of(labels, targets):
        target = labels == label
        for gesture in DRAWN:
            session.reset()
            if gesture == "click":
                place = volume.index_to_world(deepest(target, volume.spacing_mm))
                session.add_point(place.tolist())
            else:
                for prompt in GESTURES[gesture](volume, target):
                    session.add_prompt(prompt)
            scores, seconds = [], []
            for number in range(1, MOST + 1):
                started = time.perf_counter()
                if number > 1:
                    if number > session.answer_count():
                        break
                    session.choose_answer(number)
                mask = session.predict()
                seconds.append(time.perf_counter() - started)
                scores.append(dice(mask, target))
            yield gesture, scores, seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("patterns", nargs="+", help="regular expressions; each is a kind")
    parser.add_argument("--model", default="default")
    parser.add_argument("--targets", type=int, default=2)
    parser.add_argument("--most", type=int, default=6, help="most cases of a kind")
    args = parser.parse_args()
    segmenter = load_segmenter(args.model, device="cpu")
    ratios: list[float] = []
    slowest = 0.0
    print("| kind | prompt | shown | better of 2 | best of 3 | best of 4 | answers | cases |")
    print("|---|---|---|---|---|---|---|---|")
    for pattern in args.patterns:
        found = sorted(p for p in args.cases.iterdir() if re.match(pattern, p.name))[: args.most]
        means: dict[str, list[list[float]]] = defaultdict(list)
        for folder in found:
            of_case: dict[str, list[list[float]]] = defaultdict(list)
            for gesture, scores, seconds in rows_of(segmenter, folder, args.targets):
                best = [max(scores[:count]) for count in range(1, MOST + 1)]
                of_case[gesture].append([*best, len(scores)])
                ratios += [second / seconds[0] for second in seconds[1:]]
                slowest = max([slowest, *seconds[1:]])
            for gesture, rows in of_case.items():
                means[gesture].append(np.mean(rows, axis=0).tolist())
        for gesture, rows in means.items():
            values = " | ".join(f"{v:.3f}" for v in np.mean(rows, axis=0))
            print(f"| {pattern} | {gesture} | {values} | {len(rows)} |", flush=True)
    if ratios:
        print(f"\nTime of a choice over that of the answer: median {statistics.median(ratios):.3f}")
        print(f"slowest choice with its mask: {1000 * slowest:.0f} ms on this machine")


if __name__ == "__main__":
    main()
