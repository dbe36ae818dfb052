"""`pumit campaign`: label a folder of scans step by step."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.campaign import Campaign, CampaignSettings, ScanEntry
from pumit.errors import PumitError
from pumit.system.wording import count_of

if TYPE_CHECKING:
    from pumit.campaign import NextAction

ORDERS = ("uncertain", "list", "random")
EXPORTS = ("nnunet", "msd", "dicom", "model", "page")


def _number(text: str, least: int, *, is_whole: bool = False) -> float:
    """Parse a finite number; the campaign's files cannot hold another."""
    try:
        number = float(int(text) if is_whole else text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= least):
        kind = "whole number" if is_whole else "number"
        raise argparse.ArgumentTypeError(f"needs a {kind} of at least {least}, got {text!r}")
    return number


def _seconds(text: str) -> float:
    number = _number(text, 0)
    if not number:
        raise argparse.ArgumentTypeError(f"needs a number above 0, got {text!r}")
    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit campaign`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        added.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the campaign")
        added.add_argument("--json", action="store_true", help="print the result as JSON")
        return added

    new = action("new", "create a campaign from folders of scans; existing labels are imported")
    new.add_argument("scans", type=Path, nargs="+", help="folders, DICOM, data sets or files")
    new.add_argument(
        "--class",
        dest="classes",
        action="append",
        default=[],
        metavar="NAME[=CODE]",
        help="class name, with its code or terminology if that differs; repeatable, in order; "
        "default: the classes in the labels",
    )
    new.add_argument("--name", default="", help="name of the campaign")
    new.add_argument(
        "--order", choices=ORDERS, default="uncertain", help="order in which scans are offered"
    )
    new.add_argument(
        "--train-after",
        type=lambda text: int(_number(text, 1, is_whole=True)),
        default=3,
        help="number of newly accepted scans before a training",
    )
    new.add_argument("--seconds", type=_seconds, default=180.0, help="training time in seconds")
    new.add_argument(
        "--beside", action="store_true", help="also write accepted labels next to their scans"
    )
    add = action("add", "add scans")
    add.add_argument("scans", type=Path, nargs="+", help="folders, DICOM, data sets or files")
    action("status", "show scans, rounds and the next step")
    following = action("next", "show the scan to open next and its initial label")
    following.add_argument("--order", choices=ORDERS, help="override the campaign's order")
    accept = action("accept", "accept a label for a scan")
    accept.add_argument("scan", help="name or identifier of the scan")
    accept.add_argument(
        "label", type=Path, nargs="?", help="label file; default: the draft or the prediction"
    )
    accept.add_argument(
        "--empty", action="store_true", help="the scan contains none of the structures"
    )
    accept.add_argument("--reviewer", help="reviewer name to store")
    accept.add_argument(
        "--clicks",
        type=lambda text: int(_number(text, 0, is_whole=True)),
        help="number of clicks used; default: the stored number",
    )
    accept.add_argument(
        "--seconds",
        "--took",
        type=lambda text: _number(text, 0),
        help="seconds spent; default: the stored time",
    )
    accept.add_argument(
        "--drawn",
        action="append",
        default=[],
        metavar="CLASS",
        help="only these classes were annotated; repeatable; default: all, except those that were "
        "not annotated before and have no voxel now",
    )
    accept.add_argument(
        "--known",
        choices=("all", "slices", "strokes"),
        help="annotated voxels: all, slices with labels, or only drawn voxels; default: as before",
    )
    for name, text in (
        ("undo", "undo the acceptance of a scan"),
        ("later", "move a scan to the end of the queue"),
        ("leave-out", "exclude a scan"),
        ("take-in", "include an excluded or postponed scan again"),
    ):
        action(name, text).add_argument("scan", help="name or identifier of the scan")
    renamed = action("name", "map a segment name to a class")
    renamed.add_argument("segment", help="segment name")
    renamed.add_argument(
        "class_name", nargs="?", metavar="CLASS", help="class name; omit to ignore the segments"
    )
    new_name = action("rename", "rename a class; its former name is still recognised")
    new_name.add_argument("class_name", metavar="CLASS", help="class name")
    new_name.add_argument("new", metavar="NEW", help="new name")
    train = action("train", "train on the accepted scans at low priority")
    train.add_argument(
        "--foreground", action="store_true", help="train at normal priority, such as overnight"
    )
    train.add_argument(
        "--seconds",
        type=_seconds,
        help="training time in seconds, of this and later rounds; default: the campaign's",
    )
    train.add_argument("--predict", action="store_true", help="then predict the remaining scans")
    train.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    for name, text in (
        ("predict", "predict the open scans"),
        ("look", "draw thumbnails and compute the similarity of scans"),
    ):
        action(name, text).add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    export = action("export", "export the accepted labels")
    export.add_argument("kind", choices=EXPORTS, help="export format")
    export.add_argument("-o", "--output", type=Path, required=True, help="new folder or file")


def run(args: argparse.Namespace) -> int:
    """Run `pumit campaign`; a training that is stopped exits with status 0."""
    if args.action == "train":
        from pumit.cli.shared.training_options import until_stopped

        return until_stopped("campaign", lambda: _train(args))
    ACTIONS[args.action](args)
    return 0


def _new(args: argparse.Namespace) -> None:
    from pumit.cli.shared.output import progress_bar

    rows = []
    for text in args.classes:
        name, _, code = text.partition("=")
        rows.append({"name": name, "terminology": code} if code else {"name": name})
    settings = CampaignSettings(
        train_after=args.train_after,
        order=args.order,
        training_seconds=args.seconds,
        copies_beside=args.beside,
    )
    with progress_bar(quiet=args.json) as step:
        campaign = Campaign.create(
            args.folder, args.scans, rows, name=args.name, settings=settings, progress=step
        )
    from pumit.campaign.predicting import installed_model_for

    campaign.change_settings(first_model=installed_model_for(campaign.classes))
    _say_problems(args, campaign)
    _show_status(args, campaign)


def _add(args: argparse.Namespace) -> None:
    from pumit.cli.shared.output import progress_bar

    campaign = Campaign.open(args.folder)
    with progress_bar(quiet=args.json) as step:
        campaign.add_scans(args.scans, progress=step)
    _say_problems(args, campaign)
    _show_status(args, campaign)


def _say_problems(args: argparse.Namespace, campaign: Campaign) -> None:
    for text in () if args.json else campaign.problems:
        print(f"! {text}")


def _status(args: argparse.Namespace) -> None:
    _show_status(args, Campaign.open(args.folder))


def _show_status(args: argparse.Namespace, campaign: Campaign) -> None:
    scans, chart = campaign.scans(), campaign.chart()
    training, action = campaign.training(), campaign.next_action()
    if args.json:
        content = {
            "name": campaign.name,
            "folder": str(campaign.folder),
            "classes": [c.as_row() for c in campaign.classes],
            "settings": asdict(campaign.settings),
            "scans": [s.as_row() for s in scans],
            "rounds": [dict(vars(r)) for r in campaign.rounds],
            "validation": asdict(campaign.validation),
            "chart": asdict(chart),
            "training": None if training is None else asdict(training),
            "problems": campaign.problems,
            "unknown_names": campaign.unknown_names(scans),
            "next": _action_row(action),
        }
        print(json.dumps(content))
        return
    counts = Counter(s.state for s in scans)
    shown = ", ".join(f"{n} {state.replace('_', ' ')}" for state, n in counts.items())
    print(f'Campaign "{campaign.name}": {len(scans)} scans: {shown}')
    print(f"classes: {', '.join(c.name for c in campaign.classes) or 'none yet'}")
    width = min(max((len(s.name) for s in scans), default=4), 40)
    for s in scans:
        print(f"  {s.name:<{width}}  {s.state.replace('_', ' '):<9}  {_details(s)}".rstrip())
    for r in campaign.rounds:
        print(r.sentence or f"Round {r.number}: {r.state}.")
    if training is not None:
        print(training.sentence or training.state)
    if chart.sentence:
        print(chart.sentence)
    print(f"next: {_sentence(action)}")


def _details(scan: ScanEntry) -> str:
    parts = [f"by {scan.checked_by}" if scan.checked_by else "", scan.word]
    parts += ["validation"] if scan.is_validation else []
    parts += [count_of(scan.clicks, "click")] if scan.stored_state == "accepted" else []
    parts += [f"agreement {scan.agreement:.2f}"] if scan.agreement is not None else []
    parts += [f"by {scan.reviewer}"] if scan.reviewer else []
    return ", ".join(filter(None, parts))


def _sentence(action: NextAction) -> str:
    command = ": pumit campaign name FOLDER NAME CLASS" if action.kind == "name" else ""
    return action.sentence + command


def _action_row(action: NextAction) -> dict[str, Any]:
    scan = None if action.scan is None else action.scan.as_row()
    return {"kind": action.kind, "count": action.count, "sentence": action.sentence, "scan": scan}


def _next(args: argparse.Namespace) -> None:
    campaign = Campaign.open(args.folder)
    action = campaign.next_action()
    scan = campaign.next_scan(args.order)
    row = _action_row(action) | {"scan": None}
    if scan is not None:
        files = campaign.files(scan)
        shown = None if files.shown is None else str(files.shown)
        row["scan"] = scan.as_row() | {"images": list(map(str, files.images)), "shown": shown}
    if args.json:
        print(json.dumps(row))
        return
    print(_sentence(action))
    if row["scan"] is not None:
        print(f"scan: {row['scan']['name']}")
        print(f"file: {row['scan']['images'][0]}")
        print(f"begin with: {row['scan']['shown'] or 'nothing'}")


def _accept(args: argparse.Namespace) -> None:
    campaign = Campaign.open(args.folder)
    scan = campaign.scan(args.scan)
    if args.empty and args.label is not None:
        raise PumitError("Give a label or --empty, not both.")
    label = args.label
    if label is None and not args.empty:
        label = campaign.files(scan).drawn
        if not label:
            raise PumitError(f"{scan.name} has no draft and no prediction; give a label file.")
    elif args.label is not None and not (args.label.name and args.label.exists()):
        raise PumitError(f"There is no file {args.label.name!r}; check the path.")
    made = campaign.accept(
        scan,
        label,
        args.reviewer,
        clicks=scan.clicks if args.clicks is None else args.clicks,
        seconds=scan.seconds if args.seconds is None else args.seconds,
        drawn=args.drawn,
        known=args.known,
    )
    _say_problems(args, campaign)
    _tell(args, made)


def _decide(args: argparse.Namespace) -> None:
    name = {"undo": "undo_accept"}.get(args.action, args.action.replace("-", "_"))
    _tell(args, getattr(Campaign.open(args.folder), name)(args.scan))


def _tell(args: argparse.Namespace, scan: ScanEntry) -> None:
    if args.json:
        print(json.dumps(scan.as_row()))
    else:
        print(f"{scan.name}: {scan.state.replace('_', ' ')} {_details(scan)}".rstrip())


def _name(args: argparse.Namespace) -> None:
    campaign = Campaign.open(args.folder)
    campaign.remember_name(args.segment, args.class_name)
    _show_status(args, campaign)


def _rename(args: argparse.Namespace) -> None:
    campaign = Campaign.open(args.folder)
    campaign.rename_class(args.class_name, args.new)
    _show_status(args, campaign)


def _train(args: argparse.Namespace) -> None:
    from pumit.campaign.training import train_round, work_in_background

    campaign = Campaign.open(args.folder)
    if args.seconds:
        campaign.change_settings(training_seconds=args.seconds)
    if not args.foreground:
        work_in_background()
    # The training reports progress as JSON lines, like `pumit train`.
    one = train_round(campaign, device=args.device)
    if args.json:
        print(json.dumps({"round": dict(vars(one))}), flush=True)
    else:
        print(one.sentence, flush=True)
    if args.predict:
        _predict(args)
        _look(args)


def _predict(args: argparse.Namespace) -> None:
    from pumit.campaign.predicting import predict_open
    from pumit.cli.shared.output import progress_bar

    campaign = Campaign.open(args.folder)
    with progress_bar(quiet=args.json) as step:
        done, problems = predict_open(campaign, device=args.device, progress=step)
    if args.json:
        print(json.dumps({"predicted": done, "problems": problems}))
        return
    for text in problems:
        print(f"! {text}")
    print("1 scan is predicted." if done == 1 else f"{done} scans are predicted.")


def _look(args: argparse.Namespace) -> None:
    from pumit.campaign.predicting import look_at_scans
    from pumit.cli.shared.output import progress_bar

    with progress_bar(quiet=args.json) as step:
        done = look_at_scans(Campaign.open(args.folder), device=args.device, progress=step)
    print(json.dumps({"looked_at": done}) if args.json else f"{done} new scans have a thumbnail.")


def _export(args: argparse.Namespace) -> None:
    from pumit.campaign.exporting import export

    sentence = export(Campaign.open(args.folder), args.kind, args.output)
    print(json.dumps({"output": str(args.output), "sentence": sentence}) if args.json else sentence)


ACTIONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "new": _new,
    "add": _add,
    "status": _status,
    "next": _next,
    "accept": _accept,
    **dict.fromkeys(("undo", "later", "leave-out", "take-in"), _decide),
    "name": _name,
    "rename": _rename,
    "predict": _predict,
    "look": _look,
    "export": _export,
}
