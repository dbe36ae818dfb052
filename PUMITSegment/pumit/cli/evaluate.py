"""`pumit evaluate`: simulate a user's clicks on labelled cases, or score predictions."""

from __future__ import annotations

import argparse
import csv
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.errors import PumitError, VolumeError
from pumit.system.wording import listed

if TYPE_CHECKING:
    from pumit.evaluation.click_scores import Row
    from pumit.evaluation.folder_comparison import CasePair, ComparedClass, LargeDifference
    from pumit.evaluation.segmentation_metrics import ComparedRow, Mean
    from pumit.inference.interactive.segmenter import Segmenter

logger = logging.getLogger(__name__)

# For millimetres and Dice; further digits are rounding noise.
DECIMALS = 5
NAMED = 8  # classes in a line


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"needs a whole number of at least 1, got {text!r}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit evaluate`."""
    parser.add_argument(
        "cases",
        type=Path,
        nargs="?",
        help="folder of <case>/{image,label}.nii.gz for simulated clicks",
    )
    parser.add_argument(
        "--predictions",
        type=Path,
        metavar="PATH",
        help="labels (label map, .seg.nrrd, DICOM-SEG or RTSTRUCT), or a folder of them, to score "
        "instead of simulating clicks ...",
    )
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="PATH",
        help="... against the ground truth, a file or a folder with the same file names: Dice, "
        "NSD, ASSD, HD, HD95 in mm, volumes in mL, and MAE and AP of the masks",
    )
    parser.add_argument(
        "--scan",
        type=Path,
        metavar="PATH",
        help="with --predictions: the scan, or a folder of the scans, that DICOM-SEG and RTSTRUCT "
        "refer to; needed if both sides are DICOM",
    )
    parser.add_argument(
        "--places",
        type=_count,
        metavar="N",
        help="with --predictions: also list the N largest differences of each class in each case, "
        "RAS mm",
    )
    parser.add_argument(
        "--classes",
        metavar="FILE|MODEL",
        help="classes and regions to compare: a recipe or dataset.json with the values that both "
        "folders hold, or the model that made the predictions",
    )
    parser.add_argument(
        "--model", default="default", help="name of an installed model, or a checkpoint file"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument(
        "--clicks",
        type=_count,
        default=10,
        help="number of clicks per target to score (%(default)s)",
    )
    parser.add_argument(
        "--until",
        type=_count,
        default=20,
        metavar="N",
        help="continue up to N clicks (20) to count the clicks needed for Dice 0.85 and 0.90",
    )
    parser.add_argument(
        "--gestures",
        action="store_true",
        help="also score loose boxes, boxes on one slice, a scribble and a lasso, each separately",
    )
    parser.add_argument(
        "--human",
        action="store_true",
        help="also score human-like prompts: boxes 10 %% too large, clicks at random places in "
        "the error",
    )
    parser.add_argument(
        "--nsd",
        type=float,
        default=2.0,
        metavar="MM",
        help="tolerance of the normalised surface distance in mm",
    )
    parser.add_argument(
        "--nominal",
        default="",
        metavar="TEXT",
        help="cases whose name contains TEXT have no true spacing; their tolerance is one voxel",
    )
    parser.add_argument(
        "--targets", type=_count, default=3, help="maximum number of targets per case (%(default)s)"
    )
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument(
        "--worst", type=_count, default=10, help="number of worst targets to list (%(default)s)"
    )
    parser.add_argument(
        "--pictures",
        type=Path,
        metavar="DIR",
        help="also draw the worst targets into this folder; observe the scans' licence",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help="write rows and means as JSON; also .md tables for clicks, .csv rows for a comparison",
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines, not tables")


def run(args: argparse.Namespace) -> int:
    """Run `pumit evaluate`."""
    if not args.nsd >= 0:
        raise PumitError(f"--nsd must be 0 mm or more, got {args.nsd:g}.")
    if args.predictions is None and args.labels is None:
        for option in ("classes", "places", "scan"):
            if getattr(args, option) is not None:
                raise PumitError(f"--{option} is for a comparison of --predictions with --labels.")
        if args.cases is None:
            raise PumitError(
                "Give a folder of cases, or --predictions and --labels (`--help` shows the usage)."
            )
        return _click(args)
    if args.predictions is None or args.labels is None or args.cases is not None:
        raise PumitError("A comparison needs --predictions and --labels, and no folder of cases.")
    for option in ("gestures", "human", "pictures"):
        if getattr(args, option):
            raise PumitError(f"--{option} is for simulated clicks in a folder of cases.")
    return _compare(args)


def _check_output(output: Path | None, *inputs: Path) -> None:
    from pumit.cli.segment import check_target

    if output is None:
        return
    if output.suffix.lower() in (".gz", ".nii", ".nrrd", ".mha", ".dcm"):
        raise PumitError(f"The output {output.name!r} is called like a scan; give another name.")
    check_target(output, *inputs)


def _click(args: argparse.Namespace) -> int:
    if not args.cases.is_dir():
        raise VolumeError(f"There is no folder {args.cases.name!r} of cases; check the path.")
    from pumit.cli.shared.output import progress_bar
    from pumit.evaluation.click_scores import means, means_of_groups, size_class, worst
    from pumit.evaluation.simulated_user import GESTURES, evaluate_case
    from pumit.inference.interactive.segmenter import load_segmenter
    from pumit.models.consent import require_consent
    from pumit.report.click_tables import click_tables
    from pumit.system.files import write_json, write_text

    _check_output(args.output)
    if args.output and args.output.suffix.lower() == ".csv":
        raise PumitError("Clicks are written as .json or .md; .csv is for a comparison.")
    if args.pictures is not None and args.pictures.is_file():
        raise PumitError("--pictures needs a folder, got a file.")
    try:
        found = sorted(args.cases.iterdir())
    except OSError as error:
        raise VolumeError(f"The folder of cases cannot be read: {error.strerror}.") from None
    folders = [f for f in found if args.only in f.name and (f / "label.nii.gz").is_file()]
    if not folders:
        raise VolumeError("No case found: a case is a folder with image.nii.gz and label.nii.gz.")
    require_consent(args.model)
    segmenter = load_segmenter(args.model, device=args.device)
    gestures = [name for name in GESTURES if name != "box"] if args.gestures else []
    rows: list[Row] = []
    failed: dict[str, str] = {}
    with progress_bar(quiet=args.json) as step:
        for i, folder in enumerate(folders):
            step(folder.name, i / len(folders))
            is_nominal = args.nominal and args.nominal in folder.name
            try:
                for row in evaluate_case(
                    segmenter,
                    folder,
                    clicks=args.clicks,
                    until=args.until,
                    targets=args.targets,
                    gestures=gestures,
                    tolerance_mm=0.0 if is_nominal else args.nsd,
                    human=args.human,
                ):
                    rows.append(row)
                    if args.json:
                        print(json.dumps(row), flush=True)
            except VolumeError as error:
                # One unreadable case must not lose the results of the others.
                failed[folder.name] = str(error)
    first = next((f"{case}: {why}" for case, why in failed.items()), "")
    if not rows and failed:
        raise VolumeError(f"No case could be measured, first: {first}")
    if not rows:
        raise VolumeError("No case has a target of at least 200 voxels.")
    summary = means(rows)
    tables = click_tables(rows, worst_count=args.worst)
    if args.output and args.output.suffix.lower() == ".md":
        write_text(args.output, tables)
    elif args.output:
        result = {
            "mean": summary,
            "groups": means_of_groups(rows),
            "sizes": means_of_groups(rows, lambda row: size_class(row["voxels"])),
            "failed": failed,
            "rows": rows,
        }
        write_json(args.output, result)
    print(json.dumps({"mean": summary}) if args.json else tables, end="\n" if args.json else "")
    if args.pictures is not None:
        _draw_worst(segmenter, args.cases, worst(rows, args.worst), args)
    if failed:
        raise VolumeError(f"{len(failed)} of {len(folders)} cases failed, first: {first}")
    return 0


def _draw_worst(
    segmenter: Segmenter, cases: Path, rows: list[Row], args: argparse.Namespace
) -> None:
    from pumit.cli.shared.output import progress_bar
    from pumit.inference.interactive.session import InteractiveSession
    from pumit.report.click_tables import draw_worst_targets
    from pumit.volume import Volume

    def open_session(volume: Volume) -> InteractiveSession:
        session = InteractiveSession(segmenter)
        session.set_volume(volume)
        return session

    with progress_bar(quiet=args.json) as step:
        drawn = draw_worst_targets(rows, cases, args.pictures, open_session)
        for i, path in enumerate(drawn, start=1):
            step(path.name, i / len(rows))


def _compare(args: argparse.Namespace) -> int:
    from pumit.cli.shared.output import progress_bar
    from pumit.evaluation.folder_comparison import compared_masks, differences
    from pumit.evaluation.segmentation_metrics import METRICS, compared_metrics, summarize

    _check_output(args.output, args.predictions, args.labels)
    if args.output and args.output.suffix.lower() == ".md":
        raise PumitError("A comparison is written as .json or .csv; .md is for clicks.")
    classes = _compared_classes(args.classes) if args.classes else ()
    ignored = _ignored_of(Path(args.classes)) if args.classes else _ignored_beside(args.labels)
    pairs = [p for p in _compared_pairs(args.predictions, args.labels) if args.only in p.case]
    if not pairs:
        raise VolumeError(f"No case name contains {args.only!r}.")
    rows: list[ComparedRow] = []
    places: list[LargeDifference] = []
    by_value: dict[str, bool] = {}
    failed: dict[str, str] = {}
    with progress_bar(quiet=args.json) as step:
        for i, pair in enumerate(pairs):
            step(pair.case, i / len(pairs))
            try:
                for each in compared_masks(pair, classes, ignored=ignored, scan=args.scan):
                    masks, grid = (each.prediction, each.truth), each.grid
                    by_value.setdefault(pair.case, each.is_by_value)
                    score = partial(
                        compared_metrics, *masks, grid.spacing_mm, tolerance_mm=args.nsd
                    )
                    rows.append(score(case=pair.case, label=each.label))
                    if args.places:
                        search = partial(differences, *masks, grid, count=args.places)
                        places += search(case=pair.case, label=each.label)
            except VolumeError as error:
                # One bad case must not lose the results of the others.
                failed[pair.case] = str(error)
    first = next((f"{case}: {why}" for case, why in failed.items()), "none has a class.")
    if not rows and len(pairs) == 1 and failed:
        raise VolumeError(failed[pairs[0].case])
    if not rows:
        raise VolumeError(f"None of {len(pairs)} cases could be compared, first: {first}")
    _warn_without_common_class(rows)
    if any(by_value.values()):
        logger.warning(
            "In %d of %d cases only one file names its classes, so that equal values are compared; "
            "--classes compares by name.",
            *(sum(by_value.values()), len(by_value)),
        )
    summary = summarize(rows, (*METRICS, "nsd"))
    facts = _facts_of(rows, summary, failed, places if args.places else None)
    if args.output:
        _write_comparison(args.output, rows, facts)
    if args.json:
        for row in rows:
            print(json.dumps(_rounded(asdict(row))))
        print(json.dumps(facts))
    else:
        _print_comparison(rows, summary)
        for place in sorted(places, key=lambda each: -each.depth_mm):
            print(_place_text(place))
        for case, why in failed.items():
            print(f"{case}: {why}")
    if failed:
        raise VolumeError(
            f"{len(failed)} of {len(pairs)} cases could not be compared, first: {first}"
        )
    return 0


def _compared_pairs(predictions: Path, labels: Path) -> list[CasePair]:
    """Return the files to compare, of two files, two folders or two nodes of scenes."""
    from pumit.evaluation.folder_comparison import find_pairs, pair_of_files
    from pumit.io.file_part import split_part

    # A scene's node is named as scene.mrb#Name.
    kinds = {
        what: split_part(p)[0] for what, p in (("predictions", predictions), ("labels", labels))
    }
    for what, path in kinds.items():
        if not path.exists():
            raise VolumeError(
                f"There is no file or folder {path.name!r} of {what}; check the path."
            )
    if len({path.is_file() for path in kinds.values()}) > 1:
        file, folder = sorted(kinds, key=lambda what: kinds[what].is_dir())
        raise VolumeError(
            f"{kinds[file].name} is a file and {folder} a folder; give two files or two folders."
        )
    if kinds["labels"].is_file():
        return [pair_of_files(predictions, labels)]
    return find_pairs(predictions, labels)


def _warn_without_common_class(rows: list[ComparedRow]) -> None:
    if any(row.predicted_voxels and row.true_voxels for row in rows):
        return
    have = [
        listed(list(dict.fromkeys(r.label for r in rows if getattr(r, key))), NAMED) or "none"
        for key in ("predicted_voxels", "true_voxels")
    ]
    logger.warning(
        "No class has voxels in both. Classes of the predictions: %s; of the labels: %s. Give "
        "those that belong together the same value or name.",
        *have,
    )


def _facts_of(
    rows: list[ComparedRow],
    summary: dict[str, dict[str, Mean]],
    failed: dict[str, str],
    places: list[LargeDifference] | None,
) -> dict[str, Any]:
    """Return all figures but those of single cases, as JSON values."""
    from pumit.evaluation.segmentation_metrics import mask_errors, means_json

    result: dict[str, Any] = {
        "mean": _rounded(means_json(summary)),
        "failed": failed,
        "masks": _rounded(mask_errors(rows)),
    }
    if places is not None:
        result["places"] = [_rounded(asdict(place)) for place in places]
    return result


def _compared_classes(text: str) -> tuple[ComparedClass, ...]:
    """Return the classes of a recipe, a `dataset.json`, a checkpoint or an installed model.

    A model writes the class number, from 1, into its label map; a region consists of all classes
    within it. With a recipe or dataset.json, predictions use the label values of the data set.
    """
    from pumit.evaluation.folder_comparison import ComparedClass
    from pumit.training.data.classes import classes_from
    from pumit.training.data.dataset_json import classes_of_labels
    from pumit.training.recipes.reader import read_yaml

    path = Path(text)
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        return _classes_of_model(text)
    content = read_yaml(path)  # JSON is YAML
    data, labels = content.get("data"), content.get("labels")
    if isinstance(data, Mapping) and data.get("classes"):
        classes = classes_from(data["classes"])
    elif isinstance(labels, Mapping) and labels:
        classes = classes_of_labels(labels)
    else:
        raise PumitError(f"{path.name} names no classes; it needs data.classes, or labels.")
    return tuple(ComparedClass(c.label.name, c.values, c.values) for c in classes)


def _ignored_of(path: Path) -> int | None:
    from pumit.training.data.dataset_json import ignored_value
    from pumit.training.recipes.reader import read_yaml

    labels = read_yaml(path).get("labels") if path.suffix.lower() == ".json" else None
    return ignored_value(labels) if isinstance(labels, Mapping) else None


def _classes_of_model(text: str) -> tuple[ComparedClass, ...]:
    from pumit.evaluation.folder_comparison import ComparedClass
    from pumit.models.card import classes_of
    from pumit.models.checkpoint import read_recipe
    from pumit.models.index import find_model

    recipe, _ = read_recipe(find_model(text))
    labels = classes_of(recipe)
    values = [
        tuple(row.get("values", (row.get("value", number),)))
        for number, row in enumerate(recipe["classes"], start=1)
    ]
    return tuple(
        ComparedClass(
            label.name,
            own,
            tuple(n for n, other in enumerate(values, start=1) if set(other) <= set(own)),
        )
        for label, own in zip(labels, values, strict=True)
    )


def _ignored_beside(labels: Path) -> int | None:
    """Return the ignore label of a data set, whose labels are next to its dataset.json."""
    beside = labels.parent / "dataset.json"
    if not (labels.is_dir() and beside.is_file()):
        return None
    try:
        return _ignored_of(beside)
    except PumitError as error:
        logger.warning("If the labels have a value to ignore, it is scored as a class: %s", error)
        return None


def _rounded(value: Any) -> Any:
    """Round all numbers of a JSON value."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return round(value, DECIMALS) if isinstance(value, float) else value


def _write_comparison(path: Path, rows: list[ComparedRow], facts: dict[str, Any]) -> None:
    from pumit.system.files import atomic_path, write_text

    plain = [_rounded(asdict(row)) for row in rows]
    if path.suffix.lower() != ".csv":
        write_text(path, json.dumps({**facts, "rows": plain}, indent=1, allow_nan=False))
        return
    with (
        atomic_path(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, fieldnames=list(plain[0]))
        writer.writeheader()
        writer.writerows(plain)


def _print_comparison(rows: list[ComparedRow], summary: dict[str, dict[str, Mean]]) -> None:
    from pumit.evaluation.segmentation_metrics import METRICS, mask_errors

    shown = {k: "-" if v is None else f"{v:.4f}" for k, v in mask_errors(rows).items()}
    print(f"MAE {shown['mae']}, AP at IoU 0.50 to 0.95 {shown['ap']}")
    metrics = (*METRICS, "nsd")
    width = max(len("class"), *map(len, summary))
    print(f"{'class':{width}}  cases  " + "  ".join(f"{metric:>23}" for metric in metrics))
    for label, means in summary.items():
        cells = [_cell(means[metric]) for metric in metrics]
        print(f"{label:{width}}  {means['dice'].cases:5}  " + "  ".join(f"{c:>23}" for c in cells))


def _place_text(place: LargeDifference) -> str:
    ras = ", ".join(f"{part:.1f}" for part in place.position_ras)
    what = "too little" if place.is_missing else "too much"
    return f"{place.case}: {what} {place.label} at {ras} (RAS mm), {place.depth_mm:.1f} mm deep"


def _cell(mean: Mean) -> str:
    """Format a mean and its interval; a trailing `-3` means that three cases have no value."""
    if mean.mean is None:
        return "-"
    interval = "" if mean.low is None else f" [{mean.low:.3f}, {mean.high:.3f}]"
    return f"{mean.mean:.3f}{interval}" + (f" -{mean.missing}" if mean.missing else "")
