"""`pumit pretrain`: train from a recipe; progress as JSON lines on standard output."""

from __future__ import annotations

import argparse
from pathlib import Path

from pumit.cli.shared.training_options import add_training_options, find_recipe, overrides_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit pretrain`."""
    add_training_options(parser, "runs/pretrain")
    parser.add_argument("--real-folder", type=Path, help="folder of the recipe's real scans")


def run(args: argparse.Namespace) -> int:
    """Run `pumit pretrain`; started again, it resumes."""
    path, _ = find_recipe(args.config)

    from pumit.training.pretrain import pretrain

    pretrain(
        path,
        args.output,
        overrides=overrides_of(args),
        real_folder=args.real_folder,
        device=args.device,
        workers=args.workers,
    )
    return 0
