"""`pumit train`: fine-tune on labelled scans; progress as JSON lines on standard output."""

from __future__ import annotations

import argparse
from importlib import resources
from pathlib import Path
from typing import Any

from pumit.errors import PumitError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit train`."""
    parser.add_argument(
        "config",
        help="a YAML recipe, or the name of one that ships (segmentation, pumit_btcv, pumit_chaos, "
        "classification, pumit_medmnist)",
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/train"))
    parser.add_argument("--data", metavar="PATH", help="the data set, if not the recipe's")
    parser.add_argument("--fold", help="which part validates, such as 1/5")
    parser.add_argument(
        "--seconds",
        type=float,
        help="of the whole run, its parts before a stop included; then it ends",
    )
    parser.add_argument("--steps", type=int, help="optimiser steps in all")
    parser.add_argument("--device", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--workers", type=int, help="processes that draw batches ahead")


def run(args: argparse.Namespace) -> int:
    """Run `pumit train`; started again, it resumes."""
    from pumit.training.finetune import finetune

    path = Path(args.config)
    is_shipped = not path.suffix
    if is_shipped:
        path = Path(str(resources.files("pumit.training"))) / "recipes" / f"{args.config}.yaml"
    if not path.is_file():
        raise PumitError(f"There is no recipe {args.config!r}; give a YAML file, or segmentation.")
    data: dict[str, Any] = {}
    if args.data is not None:
        data["folder"] = str(Path(args.data).absolute())
    if args.fold is not None:
        data["fold"] = args.fold
    overrides = {k: getattr(args, k) for k in ("seconds", "steps") if getattr(args, k) is not None}
    finetune(
        path,
        args.output,
        folder=Path.cwd() if is_shipped else None,
        data=data,
        overrides=overrides,
        device=args.device,
        workers=args.workers,
    )
    return 0
