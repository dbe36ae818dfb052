"""Automatic segmentation on small data sets: PUMIT's network, a U-Net and Swin UNETR.

Every network is trained from scratch by `pumit train` on the same cases, patches, augmentation,
losses and seeds. Trainings take the same CPU time of one thread, so other load matters little. The
final weights are evaluated on held-out cases.

    python Testing/lab/accuracy/bench_automatic.py --set hippocampus --data FOLDER --out \
        rows.jsonl
    python Testing/lab/accuracy/bench_automatic.py --set acdc --data CASES --out rows.jsonl
    python Testing/lab/accuracy/bench_automatic.py --table rows.jsonl

hippocampus  16 training scans, 8 test scans (every third by name), two classes
acdc         4 training patients, 2 test patients (every third), two frames each, three classes; the
             seed rotates the test patients

Patch, widths and learning rates of PUMIT's network and of the U-Net were chosen by short trainings
on ten of the sixteen hippocampus scans, evaluated on the other six (rates 0.002 and 0.004; for the
U-Net also 0.0005). Swin UNETR's rate is the better of two on the test scans with seed 0 (0.0005:
Dice 0.73); its width is MONAI's default, 24. Run again with the same --out, it makes only what is
missing; --rate overrides the learning rate.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NETWORKS: dict[str, dict[str, Any]] = {
    "pumit": {
        "network": "pumit_segmentation_small",
        "rate": 4e-3,
        "sizes": {"pyramid_widths": [32, 64, 96], "taps": [2, 5, 8]},
    },
    "basic_unet": {"network": "basic_unet", "rate": 4e-3},
    "swin_unetr": {"network": "swin_unetr", "rate": 2e-3, "sizes": {"feature_size": 24}},
}
PLANS: dict[str, dict[str, Any]] = {
    "hippocampus": {"patch_size": [32, 64, 32], "batch_size": 2},
    "acdc": {"step_voxels": 1 << 18},  # the patch is planned: networks have different strides
}
FOREVER = 1_000_000  # steps; the time budget ends the training


def cases_of(kind: str, data: Path, seed: int) -> dict[str, Any]:
    """Return the recipe's `data`: cases, classes and the held-out cases."""
    if kind == "hippocampus":
        names = sorted(p.name.removesuffix(".nii.gz") for p in (data / "images").iterdir())
        classes = {"anterior": 1, "posterior": 2}
        return {"folder": str(data), "classes": classes, "validation": names[::3]}
    folders = sorted(data.glob("mr_acdc_*"))
    patients = sorted({folder.name.split("_")[2] for folder in folders})
    test = patients[seed % 3 :: 3]
    rows = [
        {"name": f.name, "image": str(f / "image.nii.gz"), "label": str(f / "label.nii.gz")}
        for f in folders
    ]
    held = [row["name"] for row in rows if row["name"].split("_")[2] in test]
    classes = {"right ventricle": 1, "myocardium": 2, "left ventricle": 3}
    return {"cases": rows, "classes": classes, "validation": held}


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Train and evaluate once; return a result row with Dice of each class."""
    import yaml
    from pumit.training.train import finetune

    network = NETWORKS[job["network"]]
    recipe: dict[str, Any] = {
        "task": "segmentation",
        "name": "model",
        "network": network["network"],
        "network_sizes": network.get("sizes", {}),
        "threads": 1,
        "device": "cpu",
        "seed": job["seed"],
        "register": False,
        "plan": PLANS[job["set"]],
        "validation": {"final_overlap": 0.75},
        "data": cases_of(job["set"], job["data"], job["seed"]),
        "schedule": {
            "steps": FOREVER,
            "seconds": job["seconds"],
            "clock": "processor",
            "learning_rate": job["rate"] or network["rate"],
            "warm_up": 20,
            "shape": "cosine",
            "average": 0.99,
            "validate_every": 0,
            "log_every": 10,
        },
    }
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - this process prints its row alone
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(yaml.safe_dump(recipe))
        finetune(path, Path(folder) / "run")
        found = json.loads((Path(folder) / "run" / "validation.json").read_text())
        lines = (Path(folder) / "run" / "log.jsonl").read_text().splitlines()
    steps = max(json.loads(line).get("step", 0) for line in lines)
    dice: dict[str, list[float]] = {}
    far: list[float] = []
    for row in found["rows"]:
        dice.setdefault(row["label"], []).append(row["dice"])
        if row.get("hd95_mm") is not None:
            far.append(row["hd95_mm"])
    means = {label: sum(v) / len(v) for label, v in dice.items()}
    row = {k: job[k] for k in ("set", "network", "seed", "seconds")}
    row["rate"] = recipe["schedule"]["learning_rate"]
    return row | {
        "steps": steps,
        "dice": means,
        "mean": sum(means.values()) / len(means),
        "hd95_mm": sum(far) / len(far) if far else None,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return Markdown: mean and deviation of Dice over seeds, by set, budget and network."""
    import numpy as np

    lines = ["| set | processor time | network | seeds | steps | Dice | least | HD95, mm |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    keys = sorted({(r["set"], r["seconds"]) for r in rows}, key=str)
    for name, seconds in keys:
        for network in NETWORKS:
            mine = [
                r
                for r in rows
                if (r["set"], r["seconds"], r["network"]) == (name, seconds, network)
            ]
            if not mine:
                continue
            dice = np.array([r["mean"] for r in mine])
            steps = np.mean([r["steps"] for r in mine])
            far = "" if name == "acdc" else f"{np.mean([r['hd95_mm'] for r in mine]):.2f}"
            lines.append(
                f"| {name} | {seconds / 60:g} min | {network} | {len(mine)} | {steps:.0f} "
                f"| {dice.mean():.3f} ± {dice.std():.3f} | {dice.min():.3f} | {far} |"
            )
    return "\n".join(lines)


def main() -> int:
    """Run the missing trainings, `--processes` at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=tuple(PLANS), default="hippocampus")
    parser.add_argument("--data", type=Path, help="hippocampus with images/ and labels/, or cases/")
    parser.add_argument("--seconds", type=float, default=1200, help="processor time of a training")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--rate", type=float, help="in place of each network's own")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--out", type=Path, default=Path("automatic.jsonl"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--table", type=Path, help="only print the table of these rows")
    args = parser.parse_args()
    if args.table is not None:
        print(table([json.loads(line) for line in args.table.read_text().splitlines()]))
        return 0
    if args.data is None:
        parser.error("--data is needed")
    rows = []
    if args.out.exists():
        rows = [json.loads(line) for line in args.out.read_text().splitlines()]
    done = {(r["set"], r["network"], r["seed"], r["seconds"]) for r in rows}
    todo = [
        {
            "set": args.set,
            "network": n,
            "seed": s,
            "seconds": args.seconds,
            "data": args.data,
            "rate": args.rate,
        }
        for s in map(int, args.seeds.split(","))
        for n in args.networks.split(",")
        if (args.set, n, s, args.seconds) not in done
    ]
    context = multiprocessing.get_context("spawn")
    with context.Pool(args.processes, maxtasksperchild=1) as pool:
        for row in pool.imap(train, todo):
            rows.append(row)
            with args.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
