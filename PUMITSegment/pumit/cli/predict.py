"""`pumit predict`: segment or classify scans without prompts."""

import argparse
import csv
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pumit.batch.run import REPORT, Runner, check_targets, in_this_process, predict_many
from pumit.batch.task import BatchSettings, Corners, Outcome, ScanTask, predict_scan, predictor_for
from pumit.cli.segment import (
    add_companion_arguments,
    check_target,
    companions_of,
    parse_numbers,
    ras_to_lps,
)
from pumit.cli.shared.output import Steps, progress_bar
from pumit.errors import ExportError, PumitError, VolumeError
from pumit.io.file_part import with_part
from pumit.io.scans import LIST_SUFFIX, Scan, find_scans, suffix_of
from pumit.prompts import BoxPrompt
from pumit.system.files import make_folder
from pumit.system.watch import Watch
from pumit.system.wording import listed

MOST_NAMES = 20  # shown per scan
TABLE_SUFFIXES = (".csv", ".json")  # of a classifier
NOT_OF_CLASSIFIER = ("box", "channel", "channel_files", "flips", "statistics", "manifest")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit predict`."""
    parser.add_argument(
        "images",
        nargs="+",
        type=Path,
        metavar="IMAGE",
        help="NIfTI, NRRD, MHA, DICOM folder or zip, PNG, JPEG; a folder of such files, a tree "
        "of DICOM series, or a .txt list with one path per line, optionally followed by a tab "
        "and a name",
    )
    parser.add_argument(
        "--model",
        help="automatic model, promptable model or classifier: name of an installed model, or a "
        "checkpoint file; with --find an automatic model",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help="OUT.(nii.gz|nrrd|seg.nrrd|mha|dcm|labelmap.dcm|rtstruct.dcm); for several images a "
        "folder, which also gets report.csv; for a classifier OUT.(csv|json), or nothing",
    )
    parser.add_argument(
        "--find",
        metavar="NAME",
        help="segment structures by their names, such as left kidney, or liver, spleen",
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="with --find: also use a model trained on another modality, or on a scan unlike its "
        "training data",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="number of scans processed in parallel (%(default)s)",
    )
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="compute on the workers of this Dask scheduler, such as tcp://host:8786",
    )
    parser.add_argument(
        "--resources",
        action="append",
        default=[],
        metavar="NAME=N",
        help="Dask worker resources per scan; default with --device cuda: GPU=1",
    )
    parser.add_argument(
        "--again", action="store_true", help="also process scans that already have results"
    )
    parser.add_argument(
        "--format", default=".nii.gz", help="file format of results in a folder (%(default)s)"
    )
    add_companion_arguments(parser)
    parser.add_argument(
        "--box", metavar="R,A,S,R,A,S", help="segment only between these two corners, RAS mm"
    )
    parser.add_argument("--series", help="SeriesInstanceUID, if the folder holds several series")
    parser.add_argument(
        "--channel", type=int, default=0, help="channel of a multi-channel image (%(default)s)"
    )
    parser.add_argument(
        "--channel-files",
        action="store_true",
        help="read NAME_0000, NAME_0001... as the channels of one scan",
    )
    parser.add_argument(
        "--overlap", type=float, default=0.75, help="overlap of windows (%(default)s)"
    )
    parser.add_argument(
        "--flips", action="store_true", help="average over eight reflections; slower"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _tasks_of(args: argparse.Namespace, settings: BatchSettings) -> list[ScanTask]:
    from pumit.export.write import SUFFIXES, check_suffix

    scans = find_scans(args.images, series=args.series)
    if args.channel_files:
        scans = _first_channels(scans)
    is_one_file = len(scans) == 1 and scans[0].path in args.images and not args.output.is_dir()
    if is_one_file and suffix_of(args.output, SUFFIXES):
        check_target(args.output, scans[0].path)
        return [ScanTask(scans[0], args.output, settings, True, companions_of(args))]
    if suffix_of(args.output, SUFFIXES) and not args.output.is_dir():
        raise ExportError(
            f"There are {len(scans)} images, but the output {args.output.name!r} is one file; "
            "give a folder."
        )
    is_list = args.images[0].suffix.lower() == LIST_SUFFIX
    if is_one_file and not is_list and not args.images[0].is_dir():
        check_suffix(args.output)
    if not args.output.is_dir():
        check_target(args.output)
    suffix = args.format if args.format.startswith(".") else f".{args.format}"
    check_suffix(f"name{suffix}")
    tasks = []
    for scan in scans:
        if Path(scan.name).is_absolute() or ".." in Path(scan.name).parts:
            raise ExportError(
                f"The name {scan.name!r} points outside the output folder; change it."
            )
        target = args.output / f"{scan.name}{suffix}"
        tasks.append(ScanTask(scan, target, settings, args.again, companions_of(args)))
    check_targets(tasks)
    return tasks


def _first_channels(scans: list[Scan]) -> list[Scan]:
    from pumit.io.scans import scan_name

    named = [(scan, scan_name(scan.path)) for scan in scans]
    first = [Scan(scan.path, name, scan.series) for scan, name in named if name]
    if not first:
        raise VolumeError("No file is called NAME_0000; give the first channel of each scan.")
    return first


def _kind_of_model(model: str) -> str:
    """Return the model's kind, read from its recipe; the weights are not loaded."""
    from pumit.models.card import kind_of
    from pumit.models.checkpoint import read_recipe
    from pumit.models.index import find_model

    return kind_of(read_recipe(find_model(model))[0])


def _settings_of(args: argparse.Namespace) -> BatchSettings:
    """Return the settings for all scans; ask for consent to the model's licence if needed."""
    from pumit.models.card import installed_models
    from pumit.models.consent import require_consent
    from pumit.models.index import find_model

    corners: Corners | None = None
    if args.box:
        values = parse_numbers(args.box, 6, "--box")
        lower, upper = ras_to_lps(values[:3]), ras_to_lps(values[3:])
        corners = BoxPrompt.from_bounds(lower, upper).corners_lps
    require_consent(args.model)
    settings = BatchSettings(
        structure=args.find or "",
        structure_model=args.model if args.find else None,
        corners_lps=corners,
        channel=args.channel,
        has_channel_files=args.channel_files,
        overlap=args.overlap,
        flips=args.flips,
        device=args.device,
        anyway=args.anyway,
    )
    if args.find:
        from pumit.structures.search import accepted, known_candidates

        accepted(*known_candidates(args.find, installed_models(), model=args.model))
        return settings
    if args.model is None:
        raise PumitError("Name a model with --model, or a structure with --find.")
    path = str(find_model(args.model).resolve())
    return replace(settings, model=path, kind=_kind_of_model(args.model))


def _runner_of(args: argparse.Namespace, step: Steps) -> Runner:
    if args.processes < 1:
        raise PumitError(f"--processes must be 1 or more, got {args.processes}.")
    if args.dask:
        if args.processes > 1:
            raise PumitError(
                "Give --processes or --dask, not both: a cluster runs its own workers."
            )
        from pumit.batch.dask_cluster import run_on_dask

        resources = _resources(args.resources) or (
            {"GPU": 1.0} if args.device.startswith("cuda") else None
        )

        def wait(what: str) -> None:
            step(what, 0.0)

        return partial(run_on_dask, address=args.dask, resources=resources, on_wait=wait)
    if args.processes > 1:
        from pumit.batch.run import run_in_processes

        return partial(run_in_processes, processes=args.processes)
    return in_this_process


def _resources(given: list[str]) -> dict[str, float]:
    try:
        pairs = (text.split("=") for text in given)
        return {name: float(amount) for name, amount in pairs}
    except ValueError:
        raise PumitError("--resources is written NAME=N, such as GPU=1.") from None


def run(args: argparse.Namespace) -> int:
    """Run `pumit predict`."""
    if args.model and not args.find and _kind_of_model(args.model) == "classifier":
        return _classify(args, find_scans(args.images, series=args.series))
    settings = _settings_of(args)
    if args.output is None:
        raise ExportError("Give an output file or folder with -o for the segments.")
    tasks = _tasks_of(args, settings)
    labels = _labels(tasks)
    rows: list[dict[str, Any]] = []
    with progress_bar(quiet=args.json) as step:
        runner = _runner_of(args, step)
        if runner is in_this_process:
            step("Loading the model", 0.0)
            predictor_for(settings)
        if tasks[0].target == args.output:
            step(f"Segmenting {tasks[0].scan.path.name}", 0.0)
            outcome = predict_scan(
                tasks[0], Watch(progress=lambda share: step("Segmenting", share))
            )
            rows.append(_row(outcome, tasks[0], labels[tasks[0].scan.name], args.output))
            if "error" in rows[0]:
                raise VolumeError(rows[0]["error"])
            if outcome.state == "nothing found":
                from pumit.export.classes import NOTHING

                raise ExportError(NOTHING)
        else:
            make_folder(args.output)
            tasks = [_absolute(task) for task in tasks]
            known = {task.scan.name: task for task in tasks}

            def report(outcome: Outcome) -> None:
                task = known[outcome.name]
                rows.append(_row(outcome, task, labels[outcome.name], args.output.resolve()))
                step(f"{len(rows)} of {len(tasks)} scans", len(rows) / len(tasks))

            predict_many(tasks, args.output.resolve(), runner, on_outcome=report)
    order = {label: i for i, label in enumerate(labels.values())}
    rows.sort(key=lambda row: order[row["image"]])
    if args.json:
        sys.stdout.write(json.dumps(rows) + "\n")
    else:
        for row in rows:
            names = listed((found["name"] for found in row.get("classes", ())), MOST_NAMES)
            there = "done before" if row.get("state") == "was there" else "nothing found"
            file = f" -> {args.output / row['file']}" if "file" in row else ""
            print(f"{row['image']}: {row.get('error') or names or there}{file}")
            if "remark" in row:
                sys.stderr.write(f"{row['image']}: {row['remark']}\n")
    _raise_failures(rows, f" {REPORT} in the folder lists all.")
    return 0


def _raise_failures(rows: Sequence[dict[str, Any]], more: str = "") -> None:
    if failed := [row for row in rows if "error" in row]:
        what = f"{len(failed)} of {len(rows)} images failed, first: "
        raise VolumeError(f"{what}{failed[0]['image']}: {failed[0]['error']}{more}")


def _row(outcome: Outcome, task: ScanTask, label: str, folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"image": label}
    if outcome.state in ("failed", "stopped"):
        row["error"] = outcome.error
    else:
        target = task.target
        file = target.relative_to(folder) if target.is_relative_to(folder) else target
        if outcome.state != "nothing found":
            row |= {"output": target.name, "file": str(file)}
        row |= {"state": outcome.state, "model": outcome.model, "classes": list(outcome.classes)}
        row |= {"remark": outcome.remark} if outcome.remark else {}
    return row


def _labels(tasks: Sequence[ScanTask]) -> dict[str, str]:
    """Return the label to print for each scan: its file name, or its name in a tree or list."""
    files = Counter(task.scan.path.name for task in tasks)

    def label(scan: Scan) -> str:
        is_plain = "/" not in scan.name and files[scan.path.name] == 1
        is_plain = is_plain and bool(suffix_of(scan.path, (".gz", *scan.path.suffixes[-1:])))
        return scan.path.name if is_plain else scan.name

    return {task.scan.name: label(task.scan) for task in tasks}


def _absolute(task: ScanTask) -> ScanTask:
    """Return the task with absolute paths, which hold in every process."""
    scan = replace(task.scan, path=task.scan.path.absolute())
    return replace(task, scan=scan, target=task.target.resolve())


def _classify(args: argparse.Namespace, scans: list[Scan]) -> int:
    from pumit.inference.automatic.classifier import load_classifier
    from pumit.volume import Volume

    if unused := next((key for key in NOT_OF_CLASSIFIER if getattr(args, key)), None):
        raise PumitError(f"--{unused.replace('_', '-')} is not for a classifier; leave it out.")
    if args.output is not None:
        if args.output.suffix.lower() not in TABLE_SUFFIXES:
            raise ExportError(
                f"A classifier writes a table; let {args.output.name!r} end with "
                f"{' or '.join(TABLE_SUFFIXES)}, or leave -o out."
            )
        check_target(args.output, *(scan.path for scan in scans))
    rows: list[dict[str, Any]] = []
    with progress_bar(quiet=args.json) as step:
        step("Loading the model", 0.0)
        model = load_classifier(args.model, device=args.device)
        for i, (scan, name) in enumerate(zip(scans, _distinct_names(scans), strict=True)):
            step(f"Classifying {name}", i / len(scans))
            row: dict[str, Any] = {"image": name, "model": f"PUMIT {model.name}"}
            try:
                found = model.classify(Volume.read(scan.path, series=scan.series))
                row |= {"class": found.most_probable, "probabilities": found.probabilities}
                if found.is_multi_label:
                    row["class"] = [c for c, p in found.probabilities.items() if p > 0.5]
            except VolumeError as error:
                if len(scans) == 1:
                    raise
                # One bad scan must not lose the results of the others.
                row["error"] = str(error)
            rows.append(row)
    if args.output is not None:
        _write_table(rows, model.classes, args.output)
    for row in [] if args.json else rows:
        print(f"{row['image']}: {row.get('error') or _in_words(row['probabilities'])}")
    if args.json:
        print(json.dumps(rows))
    _raise_failures(rows)
    return 0


def _distinct_names(scans: list[Scan]) -> list[str]:
    files = Counter(scan.path.name for scan in scans)
    paths = Counter(scan.path for scan in scans)
    names = []
    for scan in scans:
        series = (scan.series or "") if paths[scan.path] > 1 else ""
        path = with_part(scan.path, series).as_posix()
        names.append(scan.path.name if files[scan.path.name] == 1 else path)
    return names


def _in_words(probabilities: dict[str, float]) -> str:
    ranked = sorted(probabilities.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} ({p:.1%})" for name, p in ranked)


def _write_table(rows: list[dict[str, Any]], classes: tuple[str, ...], target: Path) -> None:
    from pumit.system.files import atomic_path

    with atomic_path(target) as temporary:
        if target.suffix.lower() == ".json":
            temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
            return
        with temporary.open("w", encoding="utf-8", newline="") as handle:
            table = csv.writer(handle)
            table.writerow(["image", "class", *classes, "error"])
            for row in rows:
                shown = row.get("class", "")
                chosen = shown if isinstance(shown, str) else ";".join(shown)
                found = row.get("probabilities", {})
                numbers = [f"{found[name]:.6f}" if found else "" for name in classes]
                table.writerow([row["image"], chosen, *numbers, row.get("error", "")])
