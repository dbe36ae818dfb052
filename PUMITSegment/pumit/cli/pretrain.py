"""`pumit pretrain`: pre-train without labels; progress is text on a terminal, else JSON lines."""

import argparse
import time
from pathlib import Path

from pumit.cli.shared.training_options import (
    add_training_options,
    changes_of,
    choose_json,
    find_recipe,
    until_stopped,
)
from pumit.errors import PumitError
from pumit.runs import remember_run

# The recipes used if none is named: `ENCODER` trains a tokenizer, then an encoder.
ENCODER, FINE_TUNING = "vit", "segmentation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit pretrain`."""
    add_training_options(parser, "pretrain", needs_recipe=False)
    parser.add_argument(
        "--on",
        "--real-folder",
        dest="real_folder",
        type=Path,
        metavar="FOLDER",
        help="scans to learn from, without labels: NIfTI and other files, DICOM series, in any "
        "folder structure. Without a recipe, a tokenizer and then an encoder are trained",
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        help="labelled cases, to then fine-tune a segmentation model from the encoder; only "
        "without a recipe",
    )


def run(args: argparse.Namespace) -> int:
    """Run `pumit pretrain`, or resume it."""
    since = time.time()  # torch takes seconds to load
    choose_json(args)
    if args.real_folder is not None and not args.real_folder.is_dir():
        raise PumitError(
            f"--on {args.real_folder.name} is not a folder; give the folder of the scans."
        )
    if args.config is None and args.real_folder is None:
        raise PumitError(
            "Give the scans to learn from with --on FOLDER, or a recipe (`--help` shows the usage)."
        )
    if args.data is not None and args.config is not None:
        raise PumitError("--data needs --on FOLDER and no recipe; a recipe names its own data.")
    remember_run(args.output)
    if args.data is not None:
        return _run_with_labels(args, since)
    path, _ = find_recipe(args.config or ENCODER, "pretrain")

    from pumit.training.pretrain import pretrain

    return until_stopped(
        "pretrain",
        lambda: pretrain(
            path,
            args.output,
            changes=changes_of(args),
            real_folder=args.real_folder,
            is_whole=args.config is None,
            since=since,
            finish=args.finish,
        ),
    )


def _run_with_labels(args: argparse.Namespace, since: float) -> int:
    from pumit.training.train import finetune

    return until_stopped(
        "pretrain",
        lambda: finetune(
            find_recipe(FINE_TUNING, "train")[0],
            args.output,
            folder=Path.cwd(),
            changes={
                **changes_of(args),
                "data": {"folder": str(Path(args.data).absolute())},
                "unlabelled": str(args.real_folder.absolute()),
            },
            since=since,
            finish=args.finish,
        ),
    )
