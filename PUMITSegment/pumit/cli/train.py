"""`pumit train`: train on labelled scans; progress is text on a terminal, else JSON lines."""

import argparse
import time
from pathlib import Path
from typing import Any

from pumit.cli.shared.training_options import (
    add_training_options,
    add_unreviewed_option,
    changes_of,
    choose_json,
    data_of,
    find_recipe,
    until_stopped,
)
from pumit.errors import PumitError
from pumit.runs import remember_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit train`."""
    add_training_options(parser, "train")
    parser.add_argument("--data", metavar="PATH", help="the data set, if not the recipe's")
    parser.add_argument("--initial", metavar="MODEL", help="model to fine-tune: name or file")
    add_unreviewed_option(parser)
    parser.add_argument("--fold", help="validation fold, such as 1/5")
    parser.add_argument("--folds", type=int, help="cross-validation: train this many folds in turn")


def _require_segmentation(path: Path, **given: bool) -> None:
    from pumit.training.recipes.reader import read_yaml
    from pumit.training.recipes.tasks import task_of

    options = [f"--{name.replace('_', '-')}" for name, is_given in given.items() if is_given]
    if options and task_of(read_yaml(path)) == "classification":
        raise PumitError(f"{options[0]} is not for classification; remove it.")


def run(args: argparse.Namespace) -> int:
    """Run `pumit train`, or resume it."""
    since = time.time()  # torch takes seconds to load
    choose_json(args)
    path, is_shipped = find_recipe(args.config, "train")
    remember_run(args.output)

    from pumit.models.consent import require_consent
    from pumit.training.train import finetune

    data = data_of(args)
    _require_segmentation(path, fold=args.fold is not None, use_unreviewed=args.use_unreviewed)
    if args.fold is not None:
        data["fold"] = args.fold
    initial: dict[str, Any] = {}
    if args.initial is not None:
        require_consent(args.initial)
        path_given = Path(args.initial)
        initial["initial"] = str(path_given.absolute()) if path_given.exists() else args.initial
    folds = {} if args.folds is None else {"folds": args.folds}
    return until_stopped(
        "train",
        lambda: finetune(
            path,
            args.output,
            folder=Path.cwd() if is_shipped else None,
            changes={**changes_of(args), **initial, **folds, "data": data},
            since=since,
            finish=args.finish,
        ),
    )
