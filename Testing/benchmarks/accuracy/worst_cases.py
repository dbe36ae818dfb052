"""Pictures of the targets with the lowest scores, for looking at what goes wrong.

Run by hand: `python Testing/benchmarks/accuracy/worst_cases.py CASES rows.json -o FOLDER [--worst
10]`, where rows.json is what `pumit evaluate -o` wrote for the folder of cases. Each target is
segmented again with the same prompts and drawn as answered from a box and after 1, 3 and 5 clicks:
truth green, answer red, the planes through the largest error. Who may see a picture is the scan's
licence to say.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from pumit.evaluation.simulated_user import boxed, clicked, read_case
from pumit.inference.interactive.segmenter import Segmenter, load_segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.report.error_picture import Stage, write_error_picture

SHOWN_CLICKS = (1, 3, 5)


def score_of(row: dict[str, Any], by: str) -> float:
    """The score a row is ranked by: "box", "clicks" (the mean of all) or a number of clicks."""
    if by == "box":
        return row["box"]
    return float(np.mean(row["clicks"])) if by == "clicks" else row["clicks"][int(by) - 1]


def stages_of(segmenter: Segmenter, case: Path, label: int) -> tuple[Any, Any, list[Stage]]:
    volume, labels = read_case(case)
    target = labels == label
    session = InteractiveSession(segmenter)
    session.set_volume(volume)
    stages = [Stage("box", boxed(session, target), session.prompts())]
    session.reset()
    for count, (mask, _) in enumerate(clicked(session, target, max(SHOWN_CLICKS)), start=1):
        if count in SHOWN_CLICKS:
            plural = "" if count == 1 else "s"
            stages.append(Stage(f"{count} click{plural}", mask, session.prompts()))
    return volume, target, stages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("rows", type=Path, help="what `pumit evaluate -o` wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--model", default="default")
    parser.add_argument("--worst", type=int, default=10)
    parser.add_argument("--by", default="5", help="box, clicks, or a number of clicks")
    args = parser.parse_args()
    rows = json.loads(args.rows.read_text())["rows"]
    rows = sorted(rows, key=lambda row: score_of(row, args.by))[: args.worst]
    args.output.mkdir(parents=True, exist_ok=True)
    segmenter = load_segmenter(args.model)
    for rank, row in enumerate(rows, start=1):
        case, label = row["case"], row["label"]
        volume, target, stages = stages_of(segmenter, args.cases / case, label)
        path = args.output / f"{rank:02d}_{case}_{label}.png"
        write_error_picture(volume, target, stages, path, title=f"{case}, label {label}")
        print(f"{path.name}: {score_of(row, args.by):.3f} by {args.by}", flush=True)


if __name__ == "__main__":
    main()
