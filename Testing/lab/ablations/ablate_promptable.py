"""Ablation of the promptable network: small networks trained from scratch, each without one part.

    export PYTHONPATH=PUMITSegment
    python Testing/lab/ablations/ablate_promptable.py train OUT --data CASES
    python Testing/lab/ablations/ablate_promptable.py measure OUT --data CASES
    python Testing/lab/ablations/ablate_promptable.py table OUT

Run by hand on one core; `CASES` is a folder of `<case>/{image,label}.nii.gz`. All rows see the same
batches in the same order, drawn once. Rows train in turns of some steps, so that all stay at equal
steps; an interrupted run resumes. The learning rate does not decay: the averaged weights of every
turn are an end point, and rows can be compared at equal steps or equal time.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from ablation_fields import ValidationField, generated_fields, measure, real_fields
from ablation_rows import (
    BASE,
    LEARNING_RATE,
    MUON,
    ROWS,
    SEED,
    WARM_UP,
    Row,
    build,
    fields_seen,
    without_muon,
)
from ablation_table import print_tables
from pumit.networks.promptable.network import PromptableNetwork
from pumit.training.loop import trainer
from pumit.training.promptable.labelled_scans import RealScans
from pumit.training.promptable.task import DEGREE_SHARES, DEGREES, FieldBatch, PromptableTask
from safetensors.torch import load_file, save_file
from torch import Tensor

MOST_ANSWERS = 3  # most prompt rounds per target in training; evaluation has more clicks
PER_KIND, PER_CASE = 32, 8
LARGER_SIZES = (40, 64)  # 5/4 and 2 times the training size, in whole tokens
LARGER_PER_KIND, LARGER_PER_CASE = 8, 3

# Split by patient: the scans of each sarcoma patient, and of the spine, stay together.
TRAINED_CASES = [
    "ct_sts001",
    "mr_sts001_t1",
    "mr_sts001_t2raw",
    "pet_sts001",
    "ct_totalseg_ex",
    "mr_sct_mt1_cord",
    "mr_sct_t1",
    "mr_sct_t2",
    "mr_sct_t2s_gm",
]
LEFT_OUT_CASES = [
    "ct_sts003",
    "mr_sts003_t1",
    "pet_sts003",
    "mr_totalseg_ex",
    "mr_tptbox_c6",
    "mr_pyrad_brain1",
    "mr_breast_br06_dce",
]


class DrawnOnce(PromptableTask):
    """A task whose batches are drawn for the first row and reused for the others.

    Attributes:
        drawing_seconds: CPU time spent on drawing.
    """

    def __init__(self, network: PromptableNetwork, kept: dict[int, FieldBatch], **settings: Any):
        super().__init__(network, **settings)
        self.kept = kept
        self.drawing_seconds = 0.0

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> FieldBatch:
        key = generator.initial_seed()
        if key not in self.kept:
            started = time.process_time()
            self.kept[key] = super().draw(da0, generator, shared)
            self.drawing_seconds += time.process_time() - started
        batch = self.kept[key]
        rounds = min(batch.rounds, MOST_ANSWERS)
        return dataclasses.replace(batch, rng=copy.deepcopy(batch.rng), rounds=rounds)

    def forward(self, batch: FieldBatch) -> dict[str, Tensor]:
        # float32, because on the CPU (torch 2.13) bfloat16 weight gradients of 3^3 convolutions are
        # garbage over two slices, the depth of plain convolution at 1/4: its steps are skipped.
        with torch.autocast("cpu", enabled=False):
            return super().forward(batch)


class Results:
    """Results of a row, in a file that is written after every turn and measurement.

    `turns` and `larger` are keyed by steps; `larger` is then keyed by field size.
    """

    def __init__(self, folder: Path, row: Row) -> None:
        self.folder = folder / row.key
        self.path = self.folder / "result.json"
        self.content: dict[str, Any] = {"title": row.title, "turns": {}, "larger": {}}
        if self.path.exists():
            self.content = json.loads(self.path.read_text())

    @property
    def turns(self) -> dict[str, dict[str, Any]]:
        return self.content["turns"]

    @property
    def steps(self) -> int:
        return max(map(int, self.turns), default=0)

    def weights(self, steps: int) -> Path:
        return self.folder / f"average_{steps}.safetensors"

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".part")
        temporary.write_text(json.dumps(self.content))
        temporary.replace(self.path)


def train_turn(row: Row, results: Results, task: DrawnOnce, steps: int) -> None:
    """Train a row up to `steps`."""
    schedule = trainer.Schedule(
        steps=steps,
        learning_rate=LEARNING_RATE,
        warm_up=WARM_UP,
        decay=0,
        checkpoint_seconds=float("inf"),
    )
    started, log = time.process_time(), []
    with mock.patch.object(trainer, "optimizer_for", without_muon if row.is_adamw else MUON):
        average = trainer.train(
            task,
            results.folder,
            schedule,
            seed=SEED,
            degrees=dict(zip(DEGREES, DEGREE_SHARES, strict=True)),
            report=log.append,
        )
    seconds = time.process_time() - started - task.drawing_seconds
    before = results.turns[str(results.steps)]["cpu_seconds"] if results.turns else 0.0
    save_file(average, str(results.weights(steps)))
    results.content["parameters"] = sum(p.numel() for p in task.network.parameters())
    results.turns[str(steps)] = {"cpu_seconds": round(before + seconds, 1), "log": log}
    results.save()


def train_all(args: argparse.Namespace) -> None:
    """Train all rows, in turns."""
    began = time.monotonic()
    scans = None
    if args.data is not None:
        extra = args.data.parent / "unlabelled" / "totalseg_example_ct.nii.gz"
        scans = RealScans(args.data, TRAINED_CASES, [extra] if extra.exists() else [])
    kept: dict[int, FieldBatch] = {}
    rows = [row for row in ROWS if not args.only or row.key in args.only]
    for steps in args.steps:
        for row in rows:
            results = Results(args.output, row)
            if results.steps >= steps:
                continue
            if time.monotonic() - began > args.seconds:
                print("out of time", flush=True)
                return
            task = DrawnOnce(
                build(row), kept, scans=scans, batch_size=args.batch, targets_per_field=2
            )
            train_turn(row, results, task, steps)
            turn = results.turns[str(steps)]
            print(
                f"{row.key:12} {results.content['parameters']:8} parameters, {steps} steps, "
                f"{fields_seen(steps, args.batch)} fields, {turn['cpu_seconds']:.0f} s CPU; "
                f"{turn['log'][-1:]}",
                flush=True,
            )


def validation_fields(
    args: argparse.Namespace, size: int, per_kind: int, per_case: int
) -> list[ValidationField]:
    fields = generated_fields(size, per_kind)
    if args.data is not None:
        base = BASE["field_size"]
        fields += real_fields(args.data, LEFT_OUT_CASES, size, per_case, base_size=base)
    return fields


def load(row: Row, results: Results, steps: int) -> PromptableNetwork:
    """Load a row's network with its averaged weights."""
    network = build(row)
    network.load_state_dict(load_file(str(results.weights(steps))))
    return network.eval()


def measure_all(args: argparse.Namespace) -> None:
    """Measure the last turn that all rows have finished, larger fields, then the size curve."""
    known = {row: Results(args.output, row) for row in ROWS}
    untrained = [row.key for row, results in known.items() if not results.turns]
    print(f"rows without a turn yet: {', '.join(untrained) or 'none'}", flush=True)
    known = {row: results for row, results in known.items() if results.turns}
    if not known:
        return
    last = min(results.steps for results in known.values())
    fields = validation_fields(args, BASE["field_size"], args.per_kind, args.per_case)
    print(f"{len(fields)} validation fields; {last} steps", flush=True)
    for row, results in known.items():
        measure_turn(row, results, last, fields)
    for size in (BASE["field_size"], *LARGER_SIZES):
        wider = validation_fields(args, size, args.larger_per_kind, args.larger_per_case)
        for row, results in known.items():
            larger = results.content["larger"].setdefault(str(last), {})
            if row.key in ("all", "no_ba") and str(size) not in larger:
                larger[str(size)] = measure(load(row, results, last), wider, batch_size=4)
                results.save()
                print(f"{row.key:12} fields of {size}", flush=True)
    for row, results in known.items():
        for steps in map(int, results.turns):
            if row.key in ("all", "half", "twice") and steps < last:
                measure_turn(row, results, steps, fields)


def measure_turn(row: Row, results: Results, steps: int, fields: list[ValidationField]) -> None:
    turn = results.turns[str(steps)]
    if "scores" in turn:
        return
    turn["scores"] = measure(load(row, results, steps), fields)
    results.save()
    mean = [sum(c) / len(c) for c in zip(*turn["scores"].values(), strict=True)]
    print(f"{row.key:12} {steps} steps", *(f"{d:.3f}" for d in mean), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("train", "measure", "table"))
    parser.add_argument("output", type=Path, help="folder of the runs and their results")
    parser.add_argument("--data", type=Path, help="folder of real cases; else generated fields")
    turns = list(range(60, 601, 60))
    parser.add_argument("--steps", type=int, nargs="+", default=turns, help="ends of turns")
    parser.add_argument("--batch", type=int, default=1, help="fields per step, more of thin ones")
    parser.add_argument("--seconds", type=float, default=3600, help="when to begin no more turns")
    parser.add_argument("--per-kind", type=int, default=PER_KIND)
    parser.add_argument("--per-case", type=int, default=PER_CASE)
    parser.add_argument("--larger-per-kind", type=int, default=LARGER_PER_KIND)
    parser.add_argument("--larger-per-case", type=int, default=LARGER_PER_CASE)
    keys = [row.key for row in ROWS]
    parser.add_argument("--only", nargs="+", choices=keys, help="rows to train, such as one core's")
    parser.add_argument("--picture", type=Path, help="where `table` draws the size curve")
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"train": train_all, "measure": measure_all, "table": print_tables}[args.action](args)


if __name__ == "__main__":
    main()
