"""Options that `pumit train` and `pumit pretrain` share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from pumit.errors import PumitError
from pumit.training.recipes.shipped import recipe_names, shipped_recipe


def add_training_options(
    parser: argparse.ArgumentParser, output: str, *, needs_recipe: bool = True
) -> None:
    """Declare the recipe, the output folder and what overrides the recipe.

    Args:
        parser: Parser of the command.
        output: Default output folder.
        needs_recipe: Whether the recipe has to be given.
    """
    parser.add_argument(
        "config",
        nargs=None if needs_recipe else "?",
        help="a YAML recipe, or the name of one that ships: " + ", ".join(recipe_names()),
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(output), help=f"folder of the run ({output})"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="time limit of the whole run in seconds, the time before a stop included",
    )
    parser.add_argument("--steps", type=int, help="total number of optimiser steps")
    parser.add_argument("--device", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--workers", type=int, help="number of processes that prepare batches")
    parser.add_argument(
        "--finish",
        action="store_true",
        help="do not train on; end the run in the output folder with its best model so far",
    )


def until_stopped(command: str, train: Callable[[], object]) -> int:
    """Train; returns the exit status, which is 0 for a run that was stopped, too.

    Args:
        command: Name of the command, for the message.
        train: The whole training.
    """
    from pumit.training.run.control import RunStopped

    try:
        train()
    except RunStopped as stop:
        if str(stop):  # of several processes the first one says it
            print(f"pumit {command}: {stop}", file=sys.stderr)
    return 0


def find_recipe(config: str) -> tuple[Path, bool]:
    """The recipe's file, and whether it is one that ships.

    Raises:
        PumitError: If there is none.
    """
    is_shipped = not Path(config).suffix
    path = shipped_recipe(config) if is_shipped else Path(config)
    if not path.is_file():
        names = ", ".join(recipe_names())
        raise PumitError(f"There is no recipe {config!r}; give a YAML file or one of {names}.")
    return path, is_shipped


def overrides_of(args: argparse.Namespace) -> dict[str, float | int]:
    """Values of the recipe's `schedule` that the command line replaces."""
    return {k: getattr(args, k) for k in ("seconds", "steps") if getattr(args, k) is not None}
