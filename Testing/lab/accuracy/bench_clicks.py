"""Gain of `pumit train clicks` on the trained structures, and its cost on other anatomy.

Fine-tunes the default promptable model on 16 hippocampus scans and on 8 ACDC scans of 4 patients.
Scores the simulated user's clicks before and after, on 8 and 4 scans of other patients and on other
anatomy that neither training has seen.

    python Testing/lab/accuracy/bench_clicks.py --data FOLDER -o runs/clicks [--only \
        hippocampus]

FOLDER holds `hippocampus/{images,labels}` and `cases/<case>/{image,label}.nii.gz`. Results are
cached in the output folder.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from pumit.evaluation.click_scores import group_of
from pumit.evaluation.simulated_user import dice_after_clicks, labels_on, read_case, targets_of
from pumit.inference.interactive.segmenter import Segmenter, load_segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.training.train import finetune
from pumit.volume import Volume

TARGETS = 3
TEST_EVERY = 3  # every third of the sorted hippocampus scans is held out: 8 of 24
ACDC_TEST_PATIENTS = ("patient041", "patient051")
# Seen neither by the default model nor by the trainings here.
OTHERS = ("ct_btcv", "ct_chaos", "mr_chaos")
SHOWN = (1, 2, 3, 5)
Case = tuple[str, Volume, npt.NDArray[Any]]


def hippocampus_names(data: Path) -> list[str]:
    files = (data / "hippocampus" / "images").iterdir()
    return sorted(file.name.removesuffix(".nii.gz") for file in files)


def acdc_names(data: Path) -> list[str]:
    return sorted(p.name for p in (data / "cases").iterdir() if p.name.startswith("mr_acdc"))


def recipe_for(task: str, data: Path) -> dict[str, Any]:
    """Return the recipe's `data`, without the test scans."""
    if task == "hippocampus":
        names = hippocampus_names(data)
        trained = [name for i, name in enumerate(names) if i % TEST_EVERY]
        folder = data / "hippocampus"
        cases = [
            {
                "name": name,
                "image": str(folder / "images" / f"{name}.nii.gz"),
                "label": str(folder / "labels" / f"{name}.nii.gz"),
            }
            for name in trained
        ]
        return {"cases": cases, "classes": {"anterior": 1, "posterior": 2}}
    trained = [n for n in acdc_names(data) if not any(p in n for p in ACDC_TEST_PATIENTS)]
    cases = [
        {
            "name": name,
            "image": str(data / "cases" / name / "image.nii.gz"),
            "label": str(data / "cases" / name / "label.nii.gz"),
        }
        for name in trained
    ]
    classes = {"right ventricle": 1, "myocardium": 2, "left ventricle": 3}
    return {"cases": cases, "classes": classes, "patient": r"patient\d+"}


def tested(task: str, data: Path) -> Iterator[Case]:
    """Yield the test scans of a training, or those of `others`."""
    folder = data / "cases"
    if task == "hippocampus":
        for name in hippocampus_names(data)[::TEST_EVERY]:
            volume = Volume.read(data / task / "images" / f"{name}.nii.gz")
            label = Volume.read(data / task / "labels" / f"{name}.nii.gz")
            yield name, volume, labels_on(volume, label)
        return
    names = sorted(p.name for p in folder.iterdir() if group_of(p.name) in OTHERS)
    if task == "acdc":
        names = [n for n in acdc_names(data) if any(p in n for p in ACDC_TEST_PATIENTS)]
    for name in names:
        yield (name, *read_case(folder / name))


def clicks_on(segmenter: Segmenter, cases: Iterator[Case], clicks: int) -> list[dict[str, Any]]:
    """Return Dice after each click, for the largest structures of each case."""
    rows = []
    session = InteractiveSession(segmenter)
    for name, volume, labels in cases:
        session.set_volume(volume)
        for label in targets_of(labels, TARGETS):
            session.reset()
            scores, _ = dice_after_clicks(session, labels == label, clicks)
            rows.append({"case": name, "label": label, "clicks": [round(s, 4) for s in scores]})
    return rows


def kept(path: Path, work: Any) -> Any:
    """Return the content of a file, or run `work` and store its result there."""
    if not path.is_file():
        found = work()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    return json.loads(path.read_text())


def train(task: str, args: argparse.Namespace) -> dict[str, float]:
    """Fine-tune; return the total wall-clock and CPU seconds."""
    folder = Path(__file__).parents[3] / "PUMITSegment" / "pumit" / "training" / "recipes"
    recipe = yaml.safe_load((folder / "clicks.yaml").read_text())
    schedule = {**recipe["schedule"], **yaml.safe_load(args.schedule)}
    changes = yaml.safe_load(args.change)
    recipe |= {"data": recipe_for(task, args.data), "name": task, "schedule": schedule, **changes}
    recipe |= {"seed": args.seed, "device": "cpu", "threads": 1, "register": False}
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / f"{task}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    clock, processor = time.monotonic(), time.process_time()
    finetune(path, args.output / task)
    return {"seconds": time.monotonic() - clock, "cpu_seconds": time.process_time() - processor}


def means(rows: list[dict[str, Any]]) -> npt.NDArray[np.float64]:
    """Return mean Dice after each click, with equal weight per case."""
    by_case: dict[str, list[list[float]]] = {}
    for row in rows:
        by_case.setdefault(row["case"], []).append(row["clicks"])
    return np.mean([np.mean(clicks, axis=0) for clicks in by_case.values()], axis=0)


def show(title: str, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    cases = len({row["case"] for row in before})
    first, then = means(before), means(after)
    counts = [n for n in SHOWN if n <= min(len(first), len(then))]
    for name, rows, dice in (("before", before, first), ("after", after, then)):
        shown = "  ".join(f"{dice[n - 1]:6.3f}" for n in counts)
        print(f"  {title:<14}{cases:>4} cases {len(rows):>4} targets  {name:<8}{shown}")
    change = "  ".join(f"{then[n - 1] - first[n - 1]:+6.3f}" for n in counts)
    print(f"  {'':<39}{'change':<8}{change}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the scans")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--only", choices=("hippocampus", "acdc"))
    parser.add_argument("--other-clicks", type=int, default=max(SHOWN), help="on other anatomy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--change", default="{}", help="keys of the recipe, as YAML")
    parser.add_argument("--schedule", default="{}", help="keys of its schedule, as YAML")
    args = parser.parse_args()
    args.data = args.data.resolve()
    for task in (args.only,) if args.only else ("hippocampus", "acdc"):
        used = kept(args.output / f"{task}_time.json", partial(train, task, args))
        default = load_segmenter("default", device="cpu")
        tuned = load_segmenter(args.output / task / f"{task}.safetensors", device="cpu")
        share = tuned.recipe.get("tuned_share")
        print(
            f"{task}: {used['seconds']:.0f} s on the clock, {used['cpu_seconds']:.0f} s of the "
            f"processor; step {tuned.recipe['step']}, tuned share {share}; Dice after "
            f"{', '.join(map(str, SHOWN))} clicks"
        )
        for group in (task, "others"):
            clicks = args.other_clicks if group == "others" else max(SHOWN)
            before = kept(
                args.output / f"before_{group}.json",
                partial(clicks_on, default, tested(group, args.data), clicks),
            )
            after = kept(
                args.output / f"{task}_{group}.json",
                partial(clicks_on, tuned, tested(group, args.data), clicks),
            )
            show(group, before, after)
            if group == "others":
                for part in OTHERS:
                    rows = [[r for r in x if group_of(r["case"]) == part] for x in (before, after)]
                    show(part, *rows)


if __name__ == "__main__":
    main()
