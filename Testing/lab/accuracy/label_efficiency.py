"""Gain of masked pre-training with few labels: fine-tuning compared with training from scratch.

Trains the small segmentation network on 20 %, 60 % and 100 % of sixteen hippocampus scans, with
five seeds each. It starts from a pre-trained ViT and from scratch, on the same crops. Dice is
measured on eight held-out scans, with the final weights of trainings of equal length. Learning rate
and length were chosen from scratch on another split of the same 24 scans; two of its test scans are
among these eight.

    python Testing/lab/accuracy/label_efficiency.py --data HIPPOCAMPUS --initial VIT --out \
        rows.jsonl

`--network pumit_encoder_small --initial default` is for the click network's encoder. Run again
with the same --out, it makes only what is missing. `--table ROWS.jsonl ...` only prints the tables
of these files, and draws them with `--figure FILE.svg`.

Source:
    PUMIT, table 4: on BTCV, Dice 70.98 to 77.84 with 20 % of the labels, 84.86 to 87.31 with all.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SHARES = (0.2, 0.6, 1.0)
SEEDS = 5
TEST_EVERY = 3  # every third of the sorted names is held out: 8 of 24
STEPS = 400
RECIPE: dict[str, Any] = {
    "task": "segmentation",
    "name": "hippocampus",
    "network": "pumit_segmentation_small",
    "threads": 1,
    "device": "cpu",
    "network_sizes": {"detail_widths": [8, 16], "pyramid_widths": [32, 64, 96, 96]},
    "plan": {"patch_size": [24, 32, 32], "batch_size": 2},
    "validation": {"final_overlap": 0.5},
    "schedule": {
        "steps": STEPS,
        "learning_rate": 4e-3,
        "warm_up": 20,
        "validate_every": 0,
        "log_every": 100,
    },
}


def jobs(shares: tuple[float, ...], seeds: int, starts: list[str]) -> list[dict[str, Any]]:
    """Return all trainings, seed by seed, so that an early stop leaves complete seeds."""
    return [
        {"seed": seed, "share": share, "start": start}
        for seed in range(seeds)
        for share in shares
        for start in starts
    ]


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Train and evaluate once; return a row with Dice per class and CPU seconds."""
    import yaml
    from pumit.training.train import finetune

    names = sorted(p.name.removesuffix(".nii.gz") for p in (job["data"] / "images").iterdir())
    recipe = {
        **RECIPE,
        "seed": job["seed"],
        "register": False,
        "data": {
            "folder": str(job["data"]),
            "classes": job["classes"],
            "validation": names[::TEST_EVERY],
            "share": job["share"],
        },
    }
    if job["network"] != RECIPE["network"]:
        recipe |= {"network": job["network"], "network_sizes": {}}
    if job["patch"]:
        recipe["plan"] = {**RECIPE["plan"], "patch_size": job["patch"]}
    if job["steps"]:
        recipe["schedule"] = {**RECIPE["schedule"], "steps": job["steps"]}
    if job["seconds"]:
        recipe["threads"] = job["threads"]
        recipe["schedule"] = {
            **RECIPE["schedule"],
            "steps": 100_000,
            "seconds": job["seconds"],
            "clock": "processor",  # so that other programs do not change the result
        }
    if job["start"] == "pretrained":
        recipe["initial"] = job["initial"]
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - this process prints its row alone
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(yaml.safe_dump(recipe))
        finetune(path, Path(folder) / "run")
        found = json.loads((Path(folder) / "run" / "validation.json").read_text())
    dice: dict[str, list[float]] = {}
    for row in found["rows"]:
        dice.setdefault(row["label"], []).append(row["dice"])
    means = {label: sum(v) / len(v) for label, v in dice.items()}
    row = {k: job[k] for k in ("seed", "share", "start")}
    row |= {"steps": job["steps"] or STEPS, "dice": means, "mean": sum(means.values()) / len(means)}
    row["cpu_seconds"] = round(time.process_time() - started)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Return Markdown: mean and deviation of Dice over seeds, and the paired gain."""
    import numpy as np

    by = {(r["share"], r["start"], r["seed"]): r["mean"] for r in rows}
    lines = [
        "| labels | seeds | from scratch | from the pre-trained ViT | gain, seed by seed |",
        "|---|---|---|---|---|",
    ]
    for share in sorted({key[0] for key in by}):
        seeds = sorted(
            {s for sh, _, s in by if sh == share}
            & {s for sh, st, s in by if sh == share and st == "pretrained"}
            & {s for sh, st, s in by if sh == share and st == "scratch"}
        )
        if not seeds:
            continue
        scratch = np.array([by[share, "scratch", s] for s in seeds])
        tuned = np.array([by[share, "pretrained", s] for s in seeds])
        gain = tuned - scratch
        error = gain.std(ddof=1) / len(seeds) ** 0.5 if len(seeds) > 1 else float("nan")
        lines.append(
            f"| {share:.0%} | {len(seeds)} | {scratch.mean():.3f} ± {scratch.std():.3f} "
            f"| {tuned.mean():.3f} ± {tuned.std():.3f} "
            f"| {gain.mean():+.3f} (standard error {error:.3f}) |"
        )
    return "\n".join(lines)


def draw(files: list[Path], figure: Path) -> None:
    """Draw Dice of each seed from scratch and pre-trained, a panel for each file."""
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "pumit"  # the same file from the same rows
    drawn, panels = plt.subplots(1, len(files), squeeze=False, figsize=(3.2 * len(files), 3.2))
    for panel, file in zip(panels[0], files, strict=True):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        shares = sorted({row["share"] for row in rows})
        by = {(row["share"], row["seed"], row["start"]): row["mean"] for row in rows}
        for share, seed in sorted({key[:2] for key in by}):
            pair = [by.get((share, seed, start)) for start in ("scratch", "pretrained")]
            if None not in pair:
                left = 3 * shares.index(share)
                panel.plot([left, left + 1], pair, "o-", color="#2a6f97", alpha=0.7)
        places = [3 * n + end for n in range(len(shares)) for end in (0, 1)]
        panel.set_xticks(places, ["scratch", "pre-\ntrained"] * len(shares))
        panel.set_xlim(-0.5, places[-1] + 0.5)
        labels = ", ".join(f"{share:.0%}" for share in shares)
        panel.set_title(f"{file.stem}: {labels} of the labels", fontsize=9)
    panels[0][0].set_ylabel("Dice of scans that are not trained on")
    drawn.savefig(figure, bbox_inches="tight", metadata={"Date": None})


def main() -> int:
    """Run the missing trainings, `--processes` at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with images/ and labels/")
    parser.add_argument("--initial", default="default", help="pre-trained model: name or file")
    parser.add_argument("--out", type=Path, default=Path("label_efficiency.jsonl"))
    parser.add_argument("--network", default=RECIPE["network"], help="network that is trained")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="processor time of each, not 400 steps"
    )
    parser.add_argument("--steps", type=int, default=0, help="steps of each, if not 400")
    parser.add_argument("--classes", default="anterior,posterior", help="names of labels 1, 2, ...")
    parser.add_argument("--patch", default="", help="patch in voxels, as 8,64,64")
    parser.add_argument("--threads", type=int, default=2, help="threads of each, with --seconds")
    parser.add_argument("--shares", default=",".join(map(str, SHARES)))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--starts", default="scratch,pretrained")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--table", type=Path, nargs="+", help="only print tables of these rows")
    parser.add_argument("--figure", type=Path, help="with --table: also draw them")
    args = parser.parse_args()
    if args.table is not None:
        for file in args.table:
            print(table([json.loads(line) for line in file.read_text().splitlines()]))
        if args.figure is not None:
            draw(args.table, args.figure)
        return 0
    if args.data is None:
        parser.error("--data is needed")
    rows = []
    if args.out.exists():
        rows = [json.loads(line) for line in args.out.read_text().splitlines()]
    done = {(r["seed"], r["share"], r["start"]) for r in rows}
    shares = tuple(map(float, args.shares.split(",")))
    todo = [
        {
            **job,
            "data": args.data,
            "initial": args.initial,
            "network": args.network,
            "seconds": args.seconds,
            "steps": args.steps,
            "classes": {name: i + 1 for i, name in enumerate(args.classes.split(","))},
            "patch": [int(n) for n in args.patch.split(",") if n],
            "threads": args.threads,
        }
        for job in jobs(shares, args.seeds, args.starts.split(","))
        if (job["seed"], job["share"], job["start"]) not in done
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
