"""`pumit plan`: plan a training for this machine, with an estimate of time and memory."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pumit.cli.shared.output import progress_bar
from pumit.cli.shared.training_options import add_unreviewed_option
from pumit.errors import PumitError
from pumit.system.files import write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit plan`."""
    parser.add_argument(
        "config",
        type=Path,
        help="folder of labelled scans, an .npz file of MedMNIST, or a YAML recipe whose values "
        "are kept",
    )
    parser.add_argument(
        "--preset",
        choices=("quick", "balanced", "thorough"),
        default="quick",
        help="quick: about ten minutes; balanced: one hour; thorough: overnight",
    )
    parser.add_argument(
        "--goal",
        choices=("automatic", "clicks", "classification"),
        help="automatic: segmentation without clicks; clicks: better answers to clicks; "
        "classification: a class for a whole scan, from a folder of scans for each class",
    )
    parser.add_argument(
        "--network", help="network for automatic segmentation, such as nnformer_small or basic_unet"
    )
    parser.add_argument("--folds", type=int, help="number of cross-validation folds")
    add_unreviewed_option(parser)
    parser.add_argument("--device", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("-o", "--output", type=Path, help="write the recipe to this file")
    parser.add_argument(
        "--json", action="store_true", help="print estimate and recipe as one JSON object"
    )
    parser.add_argument("--check", action="store_true", help="only check the keys of a recipe")


def run(args: argparse.Namespace) -> int:
    """Run `pumit plan`."""
    from pumit.training.recipes.reader import read_yaml

    if str(args.config) != "-" and not args.config.exists():
        raise PumitError(f"There is no folder or recipe {args.config.name!r}; check the path.")
    if args.check:
        from pumit.training.validate import answer, read_recipe

        if str(args.config) == "-":
            answer(sys.stdin, sys.stdout)
        elif args.config.is_dir():
            name = args.config.name
            raise PumitError(f"{name!r} is a folder; --check reads a recipe, a YAML file.")
        else:
            read_recipe(read_yaml(args.config), args.config.name)
        return 0
    out = args.output
    if out is not None and out.exists() and (out.is_dir() or out.suffix not in (".yaml", ".yml")):
        raise PumitError(f"{out.name!r} is there and no recipe; name a .yaml file.")
    from pumit.training.planning.planner import plan_training
    from pumit.training.recipes.writer import recipe_text

    path = str(args.config.absolute())
    given: dict[str, Any]
    if args.config.suffix == ".npz":
        given = {"task": "classification", "data": {"file": path}}
    else:
        given = {"data": {"folder": path}} if args.config.is_dir() else read_yaml(args.config)
    if args.use_unreviewed:
        given["data"] = {**(given.get("data") or {}), "use_unreviewed": True}
    if args.folds is not None:
        given["folds"] = args.folds
    if args.network is not None:
        given["network"] = args.network
    home = args.config.absolute().parent
    with progress_bar(quiet=args.json) as step:
        planned = plan_training(
            given,
            lambda text: home / Path(text).expanduser(),
            source=args.config.name,
            preset=args.preset,
            goal=args.goal,
            device=args.device,
            progress=lambda number: step(f"Reading case {number}", 0.0),
        )
    estimate = asdict(planned.estimate)
    text = recipe_text(
        planned.recipe,
        [f"pumit plan --preset {args.preset}: {planned.estimate.sentence}"],
    )
    if args.output is not None:
        write_text(args.output, text)
    if args.json:
        record = {"estimate": estimate, "recipe": planned.recipe, "warnings": planned.warnings}
        print(json.dumps(record))
        return 0
    notes = [f"Note: {warning}" for warning in planned.warnings]
    if args.output is None:
        print("\n".join(f"# {note}" for note in notes) + ("\n" if notes else "") + text, end="")
    else:
        print("\n".join([*notes, planned.estimate.sentence]))
    return 0
