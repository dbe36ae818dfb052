"""`pumit evaluate`: click as a user would on labelled cases, and report Dice."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pumit.errors import VolumeError


def _count(text: str) -> int:
    """Parse a number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"needs a number from 1 on, got {text!r}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit evaluate`."""
    parser.add_argument("cases", type=Path, help="folder of <case>/{image,label}.nii.gz")
    parser.add_argument("--model", default="default", help="name of the index, or a checkpoint")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument("--clicks", type=_count, default=5)
    parser.add_argument("--targets", type=_count, default=3, help="most targets per case")
    parser.add_argument("--only", default="", help="only cases whose name holds this")
    parser.add_argument(
        "-o", "--output", type=Path, help="write rows, means and means of groups as JSON"
    )
    parser.add_argument("--json", action="store_true", help="print rows as JSON lines")


def run(args: argparse.Namespace) -> int:
    """Run `pumit evaluate`."""
    from pumit.cli.progress import progress_bar
    from pumit.cli.segment import check_target
    from pumit.evaluation.simulated_user import evaluate_case, means, means_of_groups
    from pumit.inference.segmenter import load_segmenter
    from pumit.io.atomic import atomic_path

    if args.output:
        check_target(args.output)
    folders = []
    if args.cases.is_dir():
        found = sorted(args.cases.iterdir())
        folders = [f for f in found if args.only in f.name and (f / "label.nii.gz").is_file()]
    if not folders:
        raise VolumeError("No case found: a case is a folder with image.nii.gz and label.nii.gz.")
    segmenter = load_segmenter(args.model, device=args.device)
    rows = []
    with progress_bar(quiet=args.json) as step:
        for i, folder in enumerate(folders):
            step(folder.name, i / len(folders))
            for row in evaluate_case(segmenter, folder, clicks=args.clicks, targets=args.targets):
                rows.append(row)
                if args.json:
                    print(json.dumps(row), flush=True)
    if not rows:
        raise VolumeError("No case has a target of at least 200 voxels.")
    summary = means(rows)
    if args.output:
        with atomic_path(args.output) as temporary:
            result = {"mean": summary, "groups": means_of_groups(rows), "rows": rows}
            temporary.write_text(json.dumps(result, indent=1))
    print(json.dumps({"mean": summary}) if args.json else json.dumps(summary, indent=1))
    return 0
