"""`pumit pretrain`: train from a recipe; sentences at a terminal, JSON lines where it is piped."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from pumit.cli.shared.training_options import (
    add_training_options,
    choose_json,
    find_recipe,
    overrides_of,
    until_stopped,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit pretrain`."""
    add_training_options(parser, "runs/pretrain")
    parser.add_argument("--real-folder", type=Path, help="folder of the recipe's real scans")


def run(args: argparse.Namespace) -> int:
    """Run `pumit pretrain`; started again, it resumes."""
    since = time.time()  # torch takes seconds to load
    choose_json(args)
    path, _ = find_recipe(args.config)

    from pumit.training.pretrain import pretrain

    return until_stopped(
        "pretrain",
        lambda: pretrain(
            path,
            args.output,
            overrides=overrides_of(args),
            real_folder=args.real_folder,
            device=args.device,
            workers=args.workers,
            since=since,
            finish=args.finish,
        ),
    )
