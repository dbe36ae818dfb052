"""`pumit compare`: train networks under equal conditions and show the results on one page."""

import argparse
import os
import sys
import time
from pathlib import Path

from pumit.cli.shared.training_options import (
    add_json_option,
    add_unreviewed_option,
    choose_json,
    data_of,
    find_recipe,
)
from pumit.runs import JSON_VARIABLE, remember_run
from pumit.training.recipes.reader import recipe_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit compare`."""
    names = ", ".join(recipe_names("compare"))
    parser.add_argument("config", help=f"a YAML recipe, or the name of one that ships: {names}")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("runs/compare"),
        help="folder for the trainings and the page (%(default)s)",
    )
    parser.add_argument("--data", metavar="PATH", help="data set to use instead of the recipe's")
    add_unreviewed_option(parser)
    parser.add_argument(
        "--only", metavar="NAME,...", help="train only these networks now; the page shows all"
    )
    parser.add_argument(
        "--page-only", action="store_true", help="do not train; only write the page again"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run `pumit compare`, or resume it; the exit status is 2 if a training failed."""
    since = time.time()  # torch takes seconds to load
    choose_json(args)
    path, is_shipped = find_recipe(args.config, "compare")
    remember_run(args.output)

    from pumit.training.comparison.run import compare, compare_again
    from pumit.training.run.reporter import RunStopped

    data = data_of(args)
    only = [name.strip() for name in args.only.split(",")] if args.only else []
    if args.page_only:
        compare_again(path, args.output, data=data)
        _tell_page(args.output)
        return 0
    try:
        compared = compare(
            path,
            args.output,
            folder=Path.cwd() if is_shipped else None,
            data=data,
            only=only,
            since=since,
        )
    except RunStopped as stop:
        print(f"pumit compare: {stop}", file=sys.stderr)
        return stop.exit_status
    for title, message in compared.failures.items():
        print(f"pumit compare: {title} failed: {message}", file=sys.stderr)
    _tell_page(args.output)
    return 2 if compared.failures else 0


def _tell_page(folder: Path) -> None:
    if sys.stdout.isatty() and not os.environ.get(JSON_VARIABLE):
        print(f"Next: open {folder / 'index.html'}")
