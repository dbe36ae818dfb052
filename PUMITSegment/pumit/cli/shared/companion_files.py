"""Options for the files that `pumit segment` and `pumit predict` write next to a result."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pumit.export.companions import Companions


def add_companion_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--statistics` and `--manifest`."""
    parser.add_argument(
        "--statistics",
        choices=("csv", "json"),
        help="also write volume, intensities, position and diameters of each segment next to the "
        "result, as NAME.statistics.csv or .json",
    )
    parser.add_argument(
        "--manifest",
        action="store_true",
        help="also write NAME.manifest.json next to the result: versions, model, device, "
        "options, and hashes and UIDs of scan and result, without names",
    )


def companions_of(args: argparse.Namespace) -> Companions:
    """Return the companion files that the user requested."""
    from pumit.export.companions import Companions

    return Companions(args.statistics, args.manifest)
