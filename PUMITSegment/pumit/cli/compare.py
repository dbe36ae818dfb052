"""`pumit compare`: train networks alike on one data set, and show what comes out on one page."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from pumit.cli.shared.training_options import find_recipe
from pumit.training.recipes.shipped import recipe_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit compare`."""
    names = ", ".join(name for name in recipe_names() if name.startswith("compare"))
    parser.add_argument("config", help=f"a YAML recipe, or the name of one that ships: {names}")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("runs/compare"),
        help="folder of the trainings and the page (%(default)s)",
    )
    parser.add_argument("--data", metavar="PATH", help="data set to use in place of the recipe's")
    parser.add_argument(
        "--only", metavar="NAME,...", help="train only these networks now; the page shows all"
    )
    parser.add_argument(
        "--page-only", action="store_true", help="do not train; only write the page again"
    )


def run(args: argparse.Namespace) -> int:
    """Run `pumit compare`; started again, it goes on. A training that fails makes the status 2."""
    since = time.time()  # torch takes seconds to load
    path, is_shipped = find_recipe(args.config)

    from pumit.training.comparison.run import compare, compare_again
    from pumit.training.run.control import RunStopped

    data: dict[str, Any] = {}
    if args.data is not None:
        data["folder"] = str(Path(args.data).absolute())
    only = [name.strip() for name in args.only.split(",")] if args.only else []
    if args.page_only:
        compare_again(path, args.output, data=data)
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
        return 0
    for title, message in compared.failures.items():
        print(f"pumit compare: {title} failed: {message}", file=sys.stderr)
    return 2 if compared.failures else 0
