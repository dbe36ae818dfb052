"""Corrective clicks on an automatic segmentation, compared with clicks from scratch.

For each case and structure of the automatic model: Dice of its mask, of the mask after 1 and 3
corrective clicks by the simulated user, and of the same number of clicks from scratch. Each click
is placed in the largest error of the current mask, so the two users click at different places.

    python Testing/lab/accuracy/bench_refine.py --model heart-mr --data CASES --cases \
        'mr_acdc_*' --out refine.jsonl
    python Testing/lab/accuracy/bench_refine.py --table refine.jsonl

CASES holds `<case>/{image,label}.nii.gz` with the label values of the model's classes. Run again
with the same --out, it makes only what is missing.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import MIN_VOXELS, deepest, read_case
from pumit.inference.automatic.components import largest_component
from pumit.inference.automatic.segmentation import AutomaticSegmenter, load_automatic
from pumit.inference.interactive.segmenter import Segmenter, load_segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.models.card import classes_of
from pumit.models.checkpoint import read_recipe
from pumit.models.index import find_model

Mask = npt.NDArray[np.bool_]
SHOWN = (1, 3)


def corrected(
    session: InteractiveSession, start: Mask | None, target: Mask, clicks: int
) -> list[float]:
    """Return Dice after each click, and first before any click if there is a start mask."""
    session.reset()
    shown = np.zeros_like(target) if start is None else start
    scores = [] if start is None else [dice(shown, target)]
    if start is not None and start.any():
        session.set_mask_prior(start)
    for _ in range(clicks):
        missing, excess = target & ~shown, shown & ~target
        if not missing.any() and not excess.any():
            scores.append(1.0)
            continue
        sizes = [int(largest_component(m).sum()) if m.any() else 0 for m in (missing, excess)]
        is_positive = sizes[0] >= sizes[1]
        index = deepest(missing if is_positive else excess, session.volume.spacing_mm)
        x, y, z = session.volume.index_to_world(index).tolist()
        session.add_point((x, y, z), positive=is_positive)
        shown = session.predict()
        scores.append(dice(shown, target))
    return [round(score, 4) for score in scores]


def rows_of(
    case: Path, automatic: AutomaticSegmenter, segmenter: Segmenter, values: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each structure of a case."""
    volume, labels = read_case(case)
    answer = automatic.segment(volume, overlap=0.5)
    session = InteractiveSession(segmenter)
    session.set_volume(volume)
    for number, (label, value) in enumerate(zip(automatic.classes, values, strict=True), start=1):
        target = labels == value
        if int(target.sum()) < MIN_VOXELS:
            continue
        yield {
            "model": automatic.name,
            "clicks_by": segmenter.name,
            "case": case.name,
            "structure": label.name,
            "voxels": int(target.sum()),
            "automatic": corrected(session, answer.mask(number), target, max(SHOWN)),
            "nothing": corrected(session, None, target, max(SHOWN)),
        }


def values_of(model: str) -> list[int]:
    """Return the value of each class in the model's training label maps."""
    recipe, _ = read_recipe(find_model(model))
    count = len(classes_of(recipe))
    return [int(row.get("value", i + 1)) for i, row in enumerate(recipe["classes"][:count])]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return Markdown: means by model and structure."""
    head = ["model", "structure", "cases", "automatic"]
    head += [f"automatic + {n}" for n in SHOWN] + [f"{n} from nothing" for n in SHOWN]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    keys = sorted({(row["model"], row["structure"]) for row in rows})
    for model in sorted({row["model"] for row in rows}):
        keys.append((model, "mean"))
    for model, structure in keys:
        mine = [r for r in rows if r["model"] == model and structure in ("mean", r["structure"])]
        found = np.mean([row["automatic"] for row in mine], axis=0)
        plain = np.mean([row["nothing"] for row in mine], axis=0)
        shown = [found[0], *(found[n] for n in SHOWN), *(plain[n - 1] for n in SHOWN)]
        cells = [model, structure, str(len({row["case"] for row in mine}))]
        lines.append(f"| {' | '.join([*cells, *(f'{value:.3f}' for value in shown)])} |")
    return "\n".join(lines)


def main() -> int:
    """Measure missing cases, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="an automatic model: name, or checkpoint")
    parser.add_argument("--clicks-by", default="default", help="the promptable model (%(default)s)")
    parser.add_argument("--data", type=Path, help="folder of the cases")
    parser.add_argument("--cases", default="*", help="pattern of their names")
    parser.add_argument("--out", type=Path, default=Path("refine.jsonl"))
    parser.add_argument("--table", type=Path, help="only print the table of these rows")
    args = parser.parse_args()
    if args.table is not None:
        print(table([json.loads(line) for line in args.table.read_text().splitlines()]))
        return 0
    if args.data is None or args.model is None:
        parser.error("--data and --model are needed")
    torch.set_num_threads(1)
    automatic, segmenter = load_automatic(args.model), load_segmenter(args.clicks_by)
    rows = []
    if args.out.exists():
        rows = [json.loads(line) for line in args.out.read_text().splitlines()]
    done = {(row["model"], row["clicks_by"], row["case"]) for row in rows}
    for case in sorted(p for p in args.data.glob(args.cases) if p.is_dir()):
        if (automatic.name, segmenter.name, case.name) in done:
            continue
        found = list(rows_of(case, automatic, segmenter, values_of(args.model)))
        rows += found
        with args.out.open("a") as out:
            out.writelines(json.dumps(row) + "\n" for row in found)
        print(json.dumps(found), flush=True)
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
