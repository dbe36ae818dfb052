"""Options shared by the training commands."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.runs import JSON_VARIABLE
from pumit.system.wording import in_shell
from pumit.training.recipes.reader import recipe_names, shipped_recipe


def add_training_options(
    parser: argparse.ArgumentParser, command: str, *, needs_recipe: bool = True
) -> None:
    """Declare the recipe, the output folder and the options that override the recipe."""
    output = f"runs/{command}"
    parser.add_argument(
        "config",
        nargs=None if needs_recipe else "?",
        help="a YAML recipe, or the name of one that ships: " + ", ".join(recipe_names(command)),
    )
    parser.add_argument("-o", "--output", type=Path, default=Path(output), help="folder of the run")
    parser.add_argument(
        "--seconds",
        type=float,
        help="time limit of the whole run in seconds, including time before an interruption; "
        "default: the recipe's",
    )
    parser.add_argument(
        "--steps", type=int, help="total number of optimiser steps; default: the recipe's"
    )
    parser.add_argument("--device", help="auto, cpu, cuda, cuda:1; default: the recipe's")
    parser.add_argument(
        "--workers",
        type=int,
        help="number of data loading processes; default: the recipe's, or the machine's",
    )
    add_json_option(parser)
    parser.add_argument(
        "--finish",
        action="store_true",
        help="end the run in the output folder now, with its best model so far",
    )


def add_unreviewed_option(parser: argparse.ArgumentParser) -> None:
    """Declare `--use-unreviewed`."""
    parser.add_argument(
        "--use-unreviewed",
        action="store_true",
        help="also use model-made labels that were not reviewed",
    )


def data_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the `data` keys of the recipe that `--data` and `--use-unreviewed` override."""
    data: dict[str, Any] = {}
    if args.data is not None:
        data["folder"] = str(Path(args.data).absolute())
    if args.use_unreviewed:
        data["use_unreviewed"] = True
    return data


def until_stopped(command: str, train: Callable[[], object]) -> int:
    """Train and return the exit status: 0, also after a requested stop; 130 after Ctrl+C."""
    from pumit.training.run.reporter import RunStopped

    try:
        made = train()
        if isinstance(made, Path) and sys.stdout.isatty() and not os.environ.get(JSON_VARIABLE):
            print(next_step(made))
    except RunStopped as stop:
        if str(stop):  # only the first of several processes has a message
            print(f"pumit {command}: {stop}", file=sys.stderr)
        return stop.exit_status
    return 0


def next_step(model: Path) -> str:
    """Return a line with the command that uses a newly trained model."""
    from pumit.models.card import kind_of
    from pumit.models.checkpoint import ModelHeader, read_recipe
    from pumit.networks.build import RECIPES
    from pumit.training.preceding import VIT_SIZES
    from pumit.training.recipes.segmentation import DEFAULT_NETWORK

    recipe, _ = read_recipe(model)
    place = os.path.relpath(model)
    network = ModelHeader.of(recipe).network
    own = {**RECIPES[network].sizes, **ModelHeader.of(recipe).sizes} if network in RECIPES else {}
    # Other sizes need a recipe that gives them.
    fits = network.startswith("pumit_vit") and all(
        own[key] == RECIPES[DEFAULT_NETWORK].sizes[key] for key in VIT_SIZES
    )
    command = {
        "promptable": "segment SCAN --point=R,A,S -o OUT.seg.nrrd --model {}",
        "tokenizer": "reconstruct SCAN -o OUT.nii.gz --model {}",
        "encoder": f"train {'segmentation' if fits else 'RECIPE'} --data LABELLED "
        "--initial {} -o OUT",
    }.get(kind_of(recipe), "predict SCANS -o OUT --model {}")
    return f"Next: pumit {command.format(in_shell(place))}"


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Declare `--json` for a training command."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON lines also on a terminal",
    )


def choose_json(args: argparse.Namespace) -> None:
    """Apply `--json` to this process and its child processes."""
    if args.json:
        os.environ[JSON_VARIABLE] = "1"


def find_recipe(config: str, command: str) -> tuple[Path, bool]:
    """Return the path of a recipe, and whether it ships with PUMIT."""
    is_shipped = not Path(config).suffix
    path = shipped_recipe(config) if is_shipped else Path(config)
    if not path.is_file():
        if Path(config).is_dir():
            raise PumitError(
                f"{config!r} is a folder, not a recipe; `pumit plan` makes a recipe for labelled "
                "scans in a folder, and `--data` gives a recipe its folder."
            )
        names = ", ".join(recipe_names(command))
        raise PumitError(f"There is no recipe {config!r}; give a YAML file or one of {names}.")
    return path, is_shipped


def changes_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the recipe keys that the options of `add_training_options` override."""
    given = {k: v for k, v in vars(args).items() if v is not None}
    if given.get("steps") == 0:
        raise PumitError("--steps needs at least 1; to end a run, use --finish.")
    changes: dict[str, Any] = {k: given[k] for k in ("device", "workers") if k in given}
    changes["schedule"] = {k: given[k] for k in ("seconds", "steps") if k in given}
    return changes
