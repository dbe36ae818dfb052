"""`pumit pretrain`: train from a recipe; progress as JSON lines on standard output."""

from __future__ import annotations

import argparse
from importlib import resources
from pathlib import Path

from pumit.errors import PumitError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit pretrain`."""
    parser.add_argument(
        "config", help="a YAML recipe, or the name of one that ships (default, tokenizer, vit, ...)"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/pretrain"))
    parser.add_argument(
        "--seconds",
        type=float,
        help="of the whole run, its parts before a stop included; then it ends",
    )
    parser.add_argument("--steps", type=int, help="optimiser steps in all")
    parser.add_argument("--device", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--workers", type=int, help="processes that draw batches ahead")
    parser.add_argument("--real-folder", type=Path, help="folder of the recipe's real scans")


def run(args: argparse.Namespace) -> int:
    """Run `pumit pretrain`; started again, it resumes."""
    from pumit.training.pretrain import pretrain

    path = Path(args.config)
    if not path.suffix:
        path = Path(str(resources.files("pumit.training"))) / "recipes" / f"{args.config}.yaml"
    if not path.is_file():
        folder = Path(str(resources.files("pumit.training"))) / "recipes"
        names = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise PumitError(f"There is no recipe {args.config!r}; give a YAML file or one of {names}.")
    overrides = {k: getattr(args, k) for k in ("seconds", "steps") if getattr(args, k) is not None}
    pretrain(
        path,
        args.output,
        overrides=overrides,
        real_folder=args.real_folder,
        device=args.device,
        workers=args.workers,
    )
    return 0
