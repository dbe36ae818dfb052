"""`pumit data`: check labelled scans before training, and list their problems."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.errors import PumitError
from pumit.system.files import make_folder
from pumit.system.wording import count_of, listed, times

if TYPE_CHECKING:
    from pumit.training.data.survey import CaseReport, SetReport

MOST_CLASSES_SHOWN = 6
MOST_COPIES_SHOWN = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit data`."""
    parser.add_argument(
        "source",
        help="a YAML recipe with data, or a folder of image and label files, a dataset.json, "
        "DICOM with DICOM-SEG or RTSTRUCT, or Slicer scenes (.mrb); for a classification a folder "
        "of scans for each class, or an .npz file of MedMNIST",
    )
    parser.add_argument(
        "--goal",
        choices=("segmentation", "classification"),
        default="segmentation",
        help="what the scans are for",
    )
    parser.add_argument(
        "--images", metavar="PATTERN", help="image files, such as 'images/{case}_{channel}.*'"
    )
    parser.add_argument(
        "--labels", metavar="PATTERN", help="label files, such as 'labels/{case}.*'"
    )
    parser.add_argument(
        "--thumbnails",
        type=Path,
        metavar="DIR",
        help="write a picture of each case into this folder",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON per case")


def run(args: argparse.Namespace) -> int:
    """Run `pumit data`; it fails if no case can be used."""
    if args.goal == "classification" or Path(args.source).suffix == ".npz":
        return _run_classes(args)
    from pumit.cli.shared.output import progress_bar
    from pumit.training.data.labelled_set import find_cases
    from pumit.training.data.survey import DataSurvey
    from pumit.training.recipes.labelled import LabelledData
    from pumit.training.recipes.model import read_model

    data, folder = _data(Path(args.source))
    data |= {key: getattr(args, key) for key in ("images", "labels") if getattr(args, key)}
    found = find_cases(
        read_model(LabelledData, data, "data"), lambda text: folder / Path(text).expanduser()
    )
    if not found.data.cases and not found.problems:
        raise PumitError("The data set holds no case; check the folder and its patterns.")
    if args.thumbnails is not None:
        make_folder(args.thumbnails)
    survey = DataSurvey(found, thumbnails=args.thumbnails)
    reports = []
    with progress_bar(quiet=args.json) as step:
        step("Reading cases", 0.0)
        for number, report in enumerate(survey.reports(), start=1):
            step(report.case, number / len(survey))
            if args.json:
                print(json.dumps(asdict(report)), flush=True)
            reports.append(report)
    summary = survey.summary()
    if args.json:
        print(json.dumps({"summary": asdict(summary)}), flush=True)
    else:
        _print(reports, summary)
    if not summary.usable:
        raise PumitError(_why_unusable(summary))
    return 0


def _why_unusable(summary: SetReport) -> str:
    if not summary.cases and summary.unlabelled:
        return "No scan has labels; add a label file for each scan, or give --labels."
    none = f"None of {count_of(summary.cases, 'case')} can be used"
    if summary.problems:
        return f"{none}: {summary.problems[0].rstrip('.')}."
    return f"{none}; review the labels that a model made."


def _run_classes(args: argparse.Namespace) -> int:
    from pumit.cli.shared.output import progress_bar
    from pumit.training.classification.reader import read_classification_data

    data = read_classification_data(Path(args.source))
    counts, problems, copies = data.counts(), [], []
    count = sum(len(cases) for cases in data.splits.values())
    with progress_bar(quiet=args.json) as step:
        for number, (name, problem, doubt) in enumerate(data.check_scans(), start=1):
            step(name, number / count)
            if args.json:
                print(json.dumps({"case": name, "share": number / count}), flush=True)
            if problem:
                problems.append(f"{name}: {problem}")
            copies += [doubt] if doubt else []
    notes = [*data.notes, *([f"{listed(copies, MOST_COPIES_SHOWN, ';')}."] if copies else ())]
    classes = {
        name: {split: numbers[k] for split, numbers in counts.items()}
        for k, name in enumerate(data.classes)
    }
    if args.json:
        summary = {"classes": classes, "problems": problems, "doubts": notes}
        print(json.dumps({"summary": summary}), flush=True)
    else:
        _print_classes(classes, problems, notes)
    if len(problems) == count:
        first = f": {problems[0].rstrip('.')}" if problems else ""
        raise PumitError(f"None of {count_of(count, 'scan')} can be used{first}.")
    return 0


def _print_classes(
    classes: Mapping[str, Mapping[str, int]], problems: Iterable[str], notes: Iterable[str]
) -> None:
    for name, numbers in classes.items():
        print(f"{name}: {', '.join(f'{n} {split}' for split, n in numbers.items())}")
    for problem in problems:
        print(f"  ! {problem}")
    for note in notes:
        print(f"  ? {note}")


def _data(source: Path) -> tuple[dict[str, Any], Path]:
    from pumit.io.slicer_bundle import is_bundle

    is_zip = source.suffix.lower() == ".zip"
    if source.is_dir() or (source.is_file() and (is_bundle(source) or is_zip)):
        return {"folder": str(source)}, Path.cwd()
    if not source.is_file():
        raise PumitError(f"There is no folder or recipe {source.name!r}; check the path.")
    from pumit.training.recipes.reader import read_yaml

    data = read_yaml(source).get("data")
    if not isinstance(data, dict):
        raise PumitError(f"{source.name} needs data: a folder or a list of cases.")
    return dict(data), source.parent


def _print(reports: list[CaseReport], summary: SetReport) -> None:
    width = min(max((len(r.case) for r in reports), default=4), 40)
    print(f"{'case':<{width}}  {'voxels':<15}  {'spacing mm':<20}  ch  classes")
    for report in reports:
        shape = times(report.shape or ()) or "-"
        spacing = times(report.spacing_mm or (), ".4g") or "-"
        classes = _classes(report.classes)
        print(
            f"{report.case:<{width}}  {shape:<15}  {spacing:<20}  {report.channels:<2}  {classes}"
        )
        if report.is_unlabelled:
            print(f"{'':<{width}}  no labels, not used")
        if report.part:
            print(f"{'':<{width}}  labelled in part: {report.part}")
        if report.unreviewed and not report.is_confirmed:
            print(f"{'':<{width}}  not used without --use-unreviewed")
        for text in report.problems:
            print(f"{'':<{width}}  ! {text}")
        for text in report.doubts:
            print(f"{'':<{width}}  ? {text}")
    print(
        f"\nfound as {summary.layout}; {summary.usable} of {summary.cases} cases can be used"
        + (f"; {summary.unlabelled} scans have no labels" if summary.unlabelled else "")
    )
    for name in summary.voxels:
        count = summary.in_cases[name]
        cases = "1 case" if count == 1 else f"{count} cases"
        print(f"  {name}: {summary.voxels[name]:,} voxels in {cases}")
    earlier = {f"{r.case}: {text}" for r in reports for text in (*r.problems, *r.doubts)}
    for mark, texts in (("!", summary.problems), ("?", summary.doubts)):
        for text in texts:
            if text not in earlier:
                print(f"  {mark} {text}")


def _classes(counts: dict[str, int]) -> str:
    return listed((f"{name} {count:,}" for name, count in counts.items()), MOST_CLASSES_SHOWN)
