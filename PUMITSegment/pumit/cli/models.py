"""`pumit models`: list, verify, add, export and remove models."""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.cli.shared.output import print_table
from pumit.errors import CheckpointError, ExportError, PumitError

if TYPE_CHECKING:
    from pumit.models.index import ModelEntry

ACTIONS = (
    *("list", "structures", "verify", "fetch", "add", "export", "import", "remove"),
    *("accept", "join"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit models`."""
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument(
        "name",
        nargs="?",
        help="model name (default: all); for add: a run folder, checkpoint or original weights; "
        "for export: a model or checkpoint; for import: a file; for accept: a model whose "
        "licence you accept",
    )
    parser.add_argument(
        "others",
        nargs="*",
        default=[],  # otherwise argparse calls it missing
        metavar="OTHER",
        help="for join: further automatic models of the same classes to average into one ensemble",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.pumit.zip", help="file to export to"
    )
    parser.add_argument(
        "--name", dest="new_name", metavar="N", help="name of the added or imported model"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Run `pumit models`."""
    work = {"add": _add, "export": _export, "import": _import, "remove": _remove, "accept": _accept}
    work["join"] = _join
    if args.others and args.action != "join":
        raise PumitError(f"`pumit models {args.action}` takes one name; remove {args.others[0]!r}.")
    if args.action == "structures":
        return _structures(args)
    if args.action in work:
        if args.name is None:
            raise PumitError(f"Name the model or file: `pumit models {args.action} NAME`.")
        result = work[args.action](args)
        print(json.dumps(result) if args.json else result["sentence"])
        return 0
    rows = _list_rows(args)
    if args.json:
        print(json.dumps(rows))
        return 0
    lines = []
    for row in rows:
        origin = f" ({row['origin']}, {row['added'][:10]})" if row["origin"] else ""
        cells = [row[key] for key in ("name", "kind", "state", "licence")]
        lines.append([*cells, f"{row['description']}{origin}"])
    print_table(lines)
    return 0


def _structures(args: argparse.Namespace) -> int:
    from pumit.models.card import installed_models
    from pumit.structures.search import known_structures

    _entries(args.name)
    cards = {card.name: card for card in installed_models() if args.name in (None, card.name)}
    rows = []
    for known in known_structures(cards.values()):
        card = cards[known.model]
        rows.append({**asdict(known), "licence": card.licence, "accepted": card.is_accepted})
    if args.json:
        print(json.dumps(rows))
        return 0
    if not rows:
        who = f"The model {args.name!r}" if args.name else "No installed model"
        raise CheckpointError(
            f"{who} finds no structure by its name; train or import one that does."
        )
    for row in rows:
        shut = (
            "" if row["accepted"] else f"  ({row['licence']}: pumit models accept {row['model']})"
        )
        print(f"{row['name']:<32}{row['code']:<16}{row['model']}{shut}")
    return 0


def _entries(name: str | None) -> list[ModelEntry]:
    """Return the model of a name, or all; raise CheckpointError if there is none."""
    from pumit.models.index import list_models

    entries = list_models()
    found = [entry for entry in entries if name in (None, entry.name)]
    if not found:
        known = ", ".join(entry.name for entry in entries) or "none"
        raise CheckpointError(f"Unknown model {name!r}; known: {known}.")
    return found


def _list_rows(args: argparse.Namespace) -> list[dict[str, Any]]:
    from pumit.cli.shared.output import progress_bar
    from pumit.models.index import fetch_model, verify_model

    entries = _entries(args.name)
    rows = []
    with progress_bar(quiet=args.json) as step:
        for i, entry in enumerate(entries):
            step(f"{args.action} {entry.name}", i / len(entries))
            state = _state(entry)
            if args.action == "fetch":
                fetch_model(entry)
                state = "verified"
            elif args.action == "verify" and (args.name or state == "here"):
                verify_model(entry)
                state = "verified"
            shown = ("name", "kind", "licence", "description", "added", "origin")
            rows.append({"state": state, **{key: getattr(entry, key) for key in shown}})
    return rows


def _state(entry: ModelEntry) -> str:
    if entry.path.is_file():
        return "here"
    return "lost" if entry.source == "own" else "to be fetched"


def _add(args: argparse.Namespace) -> dict[str, Any]:
    from pumit.models.checkpoint import save_checkpoint
    from pumit.models.index import list_models
    from pumit.models.model_file import SUFFIX
    from pumit.models.sam_file import foreign_model
    from pumit.models.user_index import CARD, register
    from pumit.runs import LOG
    from pumit.training.model_card.write import best_of, write_card

    given = Path(args.name)
    if given.name.endswith(SUFFIX):
        raise PumitError(f"{given.name} is an exported model; use `pumit models import` for it.")
    if (made := foreign_model(given)) is not None:
        recipe, state = made
        with tempfile.TemporaryDirectory() as folder:
            converted = Path(folder) / f"{given.stem}.safetensors"
            save_checkpoint(converted, state, recipe)
            name = register(converted, name=args.new_name, origin="imported")
        return {"name": name, "sentence": f"Added as {name}."}
    best = best_of(given) if given.is_dir() else given
    card, remark = best.with_name(CARD), ""
    if (best.parent / LOG).is_file():
        try:
            # Other weights of the run have no card: that of the best would not be theirs.
            is_best = best_of(best.parent) == best
            card = write_card(best.parent, best) if is_best else best.with_suffix(".md")
        except CheckpointError:
            card = best.with_suffix(".md")
        except ExportError as error:  # such as in the folder of a colleague's run
            remark = f" Its model card was not written again: {error}"
    before = [entry.name for entry in list_models()]
    name = register(best, name=args.new_name, card=card if card.is_file() else None)
    replaced = sorted(set(before) - {entry.name for entry in list_models()})
    told = f", instead of {', '.join(replaced)}: the same training" if replaced else ""
    return {"name": name, "replaced": replaced, "sentence": f"Added as {name}{told}.{remark}"}


def _join(args: argparse.Namespace) -> dict[str, Any]:
    from pumit.models.ensemble import join_models
    from pumit.models.index import find_model
    from pumit.models.user_index import register
    from pumit.training.model_card.write import best_of

    given = [Path(text) for text in (args.name, *args.others)]
    paths = [best_of(path) if path.is_dir() else find_model(str(path)) for path in given]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "joined.safetensors"
        join_models(paths, made, name=args.new_name or "ensemble")
        name = register(made, name=args.new_name)
    return {"name": name, "sentence": f"Joined {len(paths)} models as {name}."}


def _export(args: argparse.Namespace) -> dict[str, Any]:
    from pumit.models.model_file import SUFFIX, export_model
    from pumit.system.files import file_sha256

    if args.output is None:
        raise PumitError(f"Name the file to export to: -o {Path(args.name).stem}{SUFFIX}.")
    export_model(args.name, args.output)
    sha256 = file_sha256(args.output)
    sentence = f"Exported to {args.output.name}; SHA-256 {sha256}"
    return {"file": str(args.output), "sha256": sha256, "sentence": sentence}


def _import(args: argparse.Namespace) -> dict[str, Any]:
    from pumit.models.model_file import import_model

    entry = import_model(Path(args.name), name=args.new_name)
    sentence = f"Imported as {entry.name}: {entry.description}"
    return {"name": entry.name, "kind": entry.kind, "sentence": sentence}


def _remove(args: argparse.Namespace) -> dict[str, Any]:
    from pumit.models.user_index import remove

    remove(args.name)
    return {"name": args.name, "sentence": f"Removed {args.name}."}


def _accept(args: argparse.Namespace) -> dict[str, Any]:
    from pumit.models.consent import accept

    licence = accept(args.name)
    return {"name": args.name, "sentence": f"You may use {args.name} under {licence}."}
