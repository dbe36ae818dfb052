"""`pumit predict` with a classifier: class probabilities of whole scans, as a table."""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

from pumit.cli.segment import check_target
from pumit.cli.shared.progress import progress_bar
from pumit.errors import ExportError, VolumeError
from pumit.io.file_part import with_part
from pumit.io.scans import Scan

TABLE_SUFFIXES = (".csv", ".json")


def classify_images(args: argparse.Namespace, scans: list[Scan]) -> int:
    """Classify scans, print one line per scan and write a table if an output file is given.

    Raises:
        ExportError: If the output is not a .csv or .json file, or cannot be written.
        VolumeError: If a scan cannot be used; the other scans are still reported.
    """
    from pumit.inference.automatic.classifier import load_classifier
    from pumit.volume import Volume

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
        _write(rows, model.classes, args.output)
    for row in [] if args.json else rows:
        print(f"{row['image']}: {row.get('error') or _in_words(row['probabilities'])}")
    if args.json:
        print(json.dumps(rows))
    failed = [row for row in rows if "error" in row]
    if failed:
        what = f"{len(failed)} of {len(rows)} images failed, first: "
        raise VolumeError(f"{what}{failed[0]['image']}: {failed[0]['error']}")
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


def _write(rows: list[dict[str, Any]], classes: tuple[str, ...], target: Path) -> None:
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
