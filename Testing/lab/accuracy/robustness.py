"""Robustness: loss of Dice under perturbations that a person would hardly notice.

Run by hand: `python Testing/lab/accuracy/robustness.py CASES [--preset quick] [-o
rows.json]`. The simulated user of `pumit evaluate` works on labelled cases, unchanged and under
each perturbation of `disturbance.py`. Prints a table of Dice from a box and after 1, 3 and 5
clicks, and of the loss on the same targets. Intervals are 95 % bootstrap intervals over targets;
mean losses above 0.05 are bold. With `-o` an interrupted run resumes.

A resampled scan is compared with the resampled label, so part of its loss is due to the grid.
"""

import argparse
import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from disturbance import AS_IT_IS, DISTURBANCES, Disturbance, DisturbedSession
from pumit.evaluation.click_scores import group_of
from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import (
    dice_after_clicks,
    read_case,
    simulate_gesture,
    targets_of,
)
from pumit.inference.interactive.segmenter import Segmenter, load_segmenter
from pumit.preprocessing.channels import grey
from pumit.volume import Volume

CLICKS = 5
MEASURES = ("box", "1 click", "3 clicks", "5 clicks")
LIMIT = 0.05
RESAMPLES = 2000

Row = dict[str, Any]


def quick(cases: list[Path]) -> dict[Path, int]:
    """Choose cases for a quick run, with the rank of a target: up to three per group, ten in all.

    Cases of a group are spread over the list and have different ranks, so that not all targets are
    the largest organ.
    """
    groups: dict[str, list[Path]] = {}
    for case in cases:
        groups.setdefault(group_of(case.name), []).append(case)
    chosen: dict[Path, int] = {}
    for rank in range(3):
        for members in groups.values():
            if rank < len(members) and len(chosen) < 10:
                chosen[members[rank * len(members) // min(3, len(members))]] = rank
    return chosen


def scores(
    segmenter: Segmenter, disturbance: Disturbance, volume: Volume, target: np.ndarray, seed: int
) -> list[float] | None:
    """Return Dice for each of `MEASURES`; None if the perturbation does not apply."""
    rng = np.random.default_rng(seed)
    scene = disturbance.scene_of(volume, target, rng)
    if scene is None:
        return None
    session = DisturbedSession(segmenter, scene, disturbance.jitter_mm, rng)
    box = dice(simulate_gesture(session, scene.target, "box"), scene.target)
    session.reset()
    clicks, _ = dice_after_clicks(session, scene.target, CLICKS)
    return [box, clicks[0], clicks[2], clicks[4]]


def measured(
    segmenter: Segmenter, case: Path, label_range: slice, known: set[tuple[str, int, str]]
) -> Iterator[Row]:
    """Yield the missing rows of one case, under every perturbation."""
    volume, labels = read_case(case)
    volume = replace(volume, array=grey(volume, 0), source=None)
    found = targets_of(labels, 100)
    for label in found[label_range] or found[-1:]:
        for disturbance in DISTURBANCES:
            if (case.name, label, disturbance.name) in known:
                continue
            # The same noise in every run and for every model.
            seed = zlib.crc32(f"{case.name} {label} {disturbance.name}".encode())
            dices = scores(segmenter, disturbance, volume, labels == label, seed)
            if dices is not None:
                dices = [round(d, 4) for d in dices]
            yield {
                "case": case.name,
                "label": label,
                "disturbance": disturbance.name,
                "dice": dices,
            }


def interval(losses: np.ndarray) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean over targets."""
    rng = np.random.default_rng(0)
    means = losses[rng.integers(0, len(losses), (RESAMPLES, len(losses)))].mean(1)
    return float(np.percentile(means, 2.5)), float(np.percentile(means, 97.5))


def table(rows: list[Row]) -> str:
    """Return Markdown: a row per perturbation; mean losses above `LIMIT` are bold."""
    by_name: dict[str, dict[tuple[str, int], list[float]]] = {}
    for row in rows:
        if row["dice"] is not None:
            by_name.setdefault(row["disturbance"], {})[row["case"], row["label"]] = row["dice"]
    still = by_name[AS_IT_IS.name]
    heads = ["", "targets", f"Dice: {', '.join(MEASURES)}", *(f"lost, {m}" for m in MEASURES)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in (disturbance.name for disturbance in DISTURBANCES):
        given = by_name.get(name, {})
        keys = [key for key in given if key in still]
        if not keys:
            lines.append(f"| {name} | 0 |" + " |" * (len(heads) - 2))
            continue
        dices = np.array([given[key] for key in keys])
        losses = np.array([still[key] for key in keys]) - dices
        cells = [f"{len(keys)}", " / ".join(f"{d:.3f}" for d in dices.mean(0))]
        for column in losses.T if name != AS_IT_IS.name else ():
            low, high = interval(column)
            mean = f"{column.mean():+.3f}"
            mean = f"**{mean}**" if column.mean() > LIMIT else mean
            cells.append(f"{mean} [{low:+.2f}, {high:+.2f}]")
        cells += [""] * (2 + len(MEASURES) - len(cells))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, help="folder of <case>/{image,label}.nii.gz")
    parser.add_argument("--model", default="default")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", default="", help="comma-separated: cases whose name starts so")
    parser.add_argument("--limit", type=int, default=3, help="most targets per case")
    parser.add_argument("--preset", choices=("quick",), help="at most ten targets of all groups")
    parser.add_argument("-o", "--output", type=Path, help="rows as JSON; continued if it exists")
    args = parser.parse_args()
    starts = tuple(args.only.split(","))
    cases = sorted(c for c in args.cases.iterdir() if (c / "label.nii.gz").is_file())
    cases = [c for c in cases if c.name.startswith(starts)]
    ranks = {case: slice(0, args.limit) for case in cases}
    if args.preset == "quick":
        ranks = {case: slice(rank, rank + 1) for case, rank in quick(cases).items()}
    segmenter = load_segmenter(args.model, device=args.device)
    rows: list[Row] = []
    if args.output and args.output.is_file():
        stored = json.loads(args.output.read_text())
        if stored["sha256"] != segmenter.sha256:
            parser.error(f"{args.output} holds the rows of other weights; name another file")
        rows = stored["rows"]
    known = {(r["case"], r["label"], r["disturbance"]) for r in rows}
    for case, label_range in ranks.items():
        for row in measured(segmenter, case, label_range, known):
            rows.append(row)
            print(json.dumps(row), flush=True)
            if args.output:
                stored = {"version": segmenter.version, "sha256": segmenter.sha256, "rows": rows}
                args.output.write_text(json.dumps(stored, indent=1))
    print(f"\nmodel {segmenter.name} {segmenter.version}, {segmenter.sha256[:12]}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
