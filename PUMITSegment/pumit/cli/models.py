"""`pumit models`: what models there are, and whether they are whole."""

from __future__ import annotations

import argparse
import json

from pumit.errors import CheckpointError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit models`."""
    parser.add_argument("action", choices=("list", "verify", "fetch"))
    parser.add_argument("name", nargs="?", help="one model; default: all")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Run `pumit models`."""
    from pumit.cli.progress import progress_bar
    from pumit.models.index import fetch_model, list_models, verify_model

    entries = [e for e in list_models() if args.name in (None, e.name)]
    if not entries:
        known = ", ".join(e.name for e in list_models()) or "none"
        raise CheckpointError(f"Unknown model {args.name!r}; known: {known}.")
    rows = []
    with progress_bar(quiet=args.json) as step:
        for i, entry in enumerate(entries):
            step(f"{args.action} {entry.name}", i / len(entries))
            state = "here" if entry.path.is_file() else "to be fetched"
            if args.action == "fetch":
                fetch_model(entry)
                state = "verified"
            elif args.action == "verify" and (args.name or state == "here"):
                verify_model(entry)
                state = "verified"
            rows.append(
                {
                    "name": entry.name,
                    "kind": entry.kind,
                    "state": state,
                    "licence": entry.licence,
                    "description": entry.description,
                }
            )
    if args.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        print("  ".join(f"{row[k]:<12}" for k in ("name", "kind", "state", "licence")), end="  ")
        print(row["description"])
    return 0
