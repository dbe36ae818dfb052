"""Gain of pre-training: three methods with their networks, on 20 % and 100 % of the labels.

Every method is pre-trained for the same CPU time of one thread on the same unlabelled images: the
sixteen hippocampus training scans and eighteen scans of other anatomy and modality. It is then
fine-tuned on three of the sixteen scans (20 %) and on all, both from the pre-training and from
scratch. Patches, augmentation, losses, rates and seeds are the same. Evaluation uses the final
weights, on eight scans that neither stage sees and that select nothing.

    python Testing/lab/accuracy/bench_pretraining.py --data FOLDER --out runs/pretraining
    python Testing/lab/accuracy/bench_pretraining.py --data FOLDER --out runs/pretraining \
        --table

FOLDER holds `cases/`, `hippocampus/` and `unlabelled/`. Run again, it makes only what is missing.
The trainings from scratch with all labels are those of `pumit compare compare_hippocampus`, whose
`runs` and `recipes` may be copied into `runs/all`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pumit.training.recipes.reader import recipe_folder

OTHERS = (
    *("ct_sts001", "ct_sts003", "ct_totalseg_ex", "mr_breast_br06_dce", "mr_pyrad_brain1"),
    *("mr_pyrad_breast1", "mr_sct_mt1_cord", "mr_sct_t1", "mr_sct_t2", "mr_sct_t2s_gm"),
    *("mr_sts001_t1", "mr_sts001_t2raw", "mr_sts003_t1", "mr_totalseg_ex", "mr_tptbox_c6"),
    *("pet_sts001", "pet_sts003"),
)
COMPARISON = recipe_folder() / "compare_hippocampus.yaml"
# Share of the labels and CPU seconds of a fine-tuning; None for the comparison's own.
SHARES: dict[str, tuple[float | None, float | None]] = {"20%": (0.2, 120), "all": (None, None)}
# Common to all pre-trainings; 32 x 64 x 64 voxels are 32 cells of 16^3 voxels.
COMMON: dict[str, Any] = {
    "version": "0",
    "seed": 1,
    "threads": 1,
    "device": "cpu",
    "batch_size": 4,
    "crop": {"depth": 32, "in_plane": 64},
    "degrees": {0: 1.0},
    "real_share": 1.0,
}
# By the network's name in the comparison, whose learning rate fine-tuning uses.
METHODS: dict[str, dict[str, Any]] = {
    "PUMIT": {
        "network": "pumit_vit_small_mim",
        "tokenizer": "tokenizer",
        "mask_ratio": 0.55,
        "schedule": {"learning_rate": 3e-3},
    },
    "Swin UNETR": {
        "network": "swin_ssl_small",
        "schedule": {"optimizer": "adamw", "learning_rate": 1e-3, "weight_decay": 0.05},
    },
    "HyMamba": {
        "network": "mamba_mim_small",
        "mask_ratio": 0.75,
        "schedule": {"optimizer": "adamw", "learning_rate": 1e-3, "weight_decay": 0.05},
    },
}


def pretrain(name: str, *, data: Path, folder: Path, seconds: float) -> Path:
    """Pre-train a method if not done yet; return its checkpoint."""
    method = METHODS[name]
    seen = yaml.safe_load(COMPARISON.read_text())["data"]["training"]
    recipe = {
        **COMMON,
        **method,
        "name": "encoder",
        "real_folder": str((data / "cases").absolute()),
        "real_images": [
            *(f"{n}/image.nii.gz" for n in OTHERS),
            "../unlabelled/totalseg_example_ct.nii.gz",
            *(f"../hippocampus/images/{n}.nii.gz" for n in seen),
        ],
        "schedule": {
            "clock": "processor",
            "seconds": seconds,
            "decay_seconds": seconds / 2,
            "steps": 1_000_000,  # the time budget ends the training
            "decay": 1,
            "warm_up": 50,
            "log_every": 50,
            **method["schedule"],
        },
    }
    run = folder / name.replace(" ", "_")
    model = run / "encoder.safetensors"
    if (run / "finished").exists():
        return model
    run.mkdir(parents=True, exist_ok=True)
    path = run / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    command = [sys.executable, "-m", "pumit", "pretrain", str(path), "-o", str(run)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (run / "finished").touch()
    return model


def fine_tune(
    starts: dict[str, Path], *, data: Path, folder: Path, seeds: Sequence[int], processes: int
) -> None:
    """Fine-tune each network from scratch and from its pre-training, with each share."""
    base = yaml.safe_load(COMPARISON.read_text())
    given = {row["name"]: row for row in base["networks"]}
    for label, (share, seconds) in SHARES.items():
        networks = []
        for name, start in starts.items():
            row = {**given[name], **({} if share is None else {"share": share})}
            pretrained = {"name": f"{name} pre-trained", "initial": str(start.absolute())}
            networks += [row, {**row, **pretrained}]
        recipe = {**base, "seeds": list(seeds), "processes": processes, "networks": networks}
        recipe["title"] = f"Pre-training, {label} of the labels"
        recipe["seconds"] = seconds or base["seconds"]
        path = folder / f"compare_{label.strip('%')}.yaml"
        path.write_text(yaml.safe_dump(recipe, sort_keys=False))
        out = folder / label.strip("%")
        scans = str((data / "hippocampus").absolute())
        command = [sys.executable, "-m", "pumit", "compare", str(path), "--data", scans]
        subprocess.run([*command, "-o", str(out)], check=True)


def table(folder: Path) -> str:
    """Return Markdown: mean Dice over seeds, and the gain of each seed."""
    lines = [
        "| labels | network | seeds | from scratch | pre-trained | gain of each seed |",
        "|---|---|---|---|---|---|",
    ]
    for label in SHARES:
        path = folder / label.strip("%") / "rows.jsonl"
        if not path.exists():
            continue
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        by = {(r["name"], r["seed"]): mean_dice(r) for r in rows}
        for name in METHODS:
            tuned_name = f"{name} pre-trained"
            seeds = sorted({s for n, s in by if n == name} & {s for n, s in by if n == tuned_name})
            if not seeds:
                continue
            scratch = np.array([by[name, s] for s in seeds])
            tuned = np.array([by[tuned_name, s] for s in seeds])
            gains = ", ".join(f"{g:+.3f}" for g in tuned - scratch)
            lines.append(
                f"| {label} | {name} | {len(seeds)} | {scratch.mean():.3f} | {tuned.mean():.3f} "
                f"| {gains} |"
            )
    return "\n".join(lines)


def mean_dice(row: dict[str, Any]) -> float:
    """Return the mean over classes of the mean over cases."""
    classes: dict[str, list[float]] = {}
    for case in row["cases"]:
        classes.setdefault(case["label"], []).append(case["dice"])
    return float(np.mean([np.mean(v) for v in classes.values()]))


def main() -> int:
    """Run missing pre-trainings and fine-tunings, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/pretraining"))
    parser.add_argument(
        "--seconds", type=float, default=900, help="processor time of a pre-training"
    )
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--processes", type=int, default=2, help="fine-tunings at a time")
    parser.add_argument("--pretrain-only", action="store_true")
    parser.add_argument(
        "--table", action="store_true", help="only print the table of what is there"
    )
    args = parser.parse_args()
    if not args.table:
        starts = {
            name: pretrain(name, data=args.data, folder=args.out, seconds=args.seconds)
            for name in args.methods.split(",")
        }
        if args.pretrain_only:
            return 0
        seeds = [int(s) for s in args.seeds.split(",")]
        fine_tune(starts, data=args.data, folder=args.out, seeds=seeds, processes=args.processes)
    print(table(args.out))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
