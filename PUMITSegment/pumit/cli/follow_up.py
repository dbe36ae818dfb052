"""`pumit follow-up`: find the lesions of one scan in a later scan of the same patient."""

from __future__ import annotations

import argparse
import json
import logging
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pumit.cli.segment import parse_numbers, ras_to_lps
from pumit.cli.shared.output import Steps, print_table, progress_bar
from pumit.errors import ExportError, OtherPatientError, PumitError, VolumeError
from pumit.system.files import refuse_replacing, write_json

if TYPE_CHECKING:
    from pumit.followup.follow_up import FollowUp
    from pumit.followup.registration import Registration
    from pumit.io.labels.label_file import LabelFile
    from pumit.volume import Volume

logger = logging.getLogger(__name__)

POOR = (
    "The registration is poor: {facts} Check {picture}; give a manual transform with "
    "--registration, such as one from Slicer's Transforms module, or use --anyway."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit follow-up`."""
    parser.add_argument("earlier", type=Path, help="scan of the first date: a file or DICOM folder")
    parser.add_argument(
        "mask",
        type=Path,
        help="lesions of the earlier scan: label map, .seg.nrrd, DICOM-SEG or RTSTRUCT",
    )
    parser.add_argument("later", type=Path, help="scan of the second date")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the results")
    parser.add_argument(
        "--later-mask",
        type=Path,
        help="existing lesion masks of the later scan: they are matched and measured without a "
        "model",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        help="Slicer markups (.mrk.json) of the first date; clicks that still apply are reused",
    )
    parser.add_argument(
        "--new",
        action="append",
        default=[],
        metavar="R,A,S",
        help="click in a lesion that is only in the later scan, RAS mm of that scan",
    )
    parser.add_argument(
        "--register-only",
        action="store_true",
        help="only register the scans and write the picture of both",
    )
    parser.add_argument(
        "--registration",
        type=Path,
        metavar="FILE",
        help="use this transform (.tfm) from the earlier to the later scan, in LPS mm, instead "
        "of registering",
    )
    parser.add_argument("--anyway", action="store_true", help="also use a poor registration")
    parser.add_argument(
        "--other-patient",
        action="store_true",
        help="allow different patient identifiers of the scans in DICOM, such as after a change of "
        "identifier; masks may have either",
    )
    parser.add_argument("--model", default="default", help="promptable model, or a checkpoint file")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Run `pumit follow-up`."""
    from pumit.followup.files import PICTURE, SEGMENTATION, facts_of, registration_facts

    if args.output.exists() and not args.output.is_dir():
        raise ExportError(f"The output {args.output.name!r} is a file; name a folder.")
    if args.later_mask and (args.new or args.prompts):
        raise PumitError("--later-mask compares what is drawn; leave out --new and --prompts.")
    refuse_replacing(args.output / SEGMENTATION, [args.mask])
    with progress_bar(quiet=args.json) as step:
        scans, registration = _registered(args, step)
        result, model = None, None
        if not args.register_only:
            if registration.fit == "poor" and not args.anyway:
                picture = args.output / PICTURE
                raise PumitError(POOR.format(facts=registration.sentence, picture=picture))
            result, model = _followed(args, scans, registration, step)
            _write(args, scans, result, model)
    if args.json:
        facts = (
            {"registration": registration_facts(registration)}
            if result is None
            else facts_of(result, model=model)
        )
        print(json.dumps(facts))
        return 0
    print(f"{registration.sentence} -> {args.output / PICTURE}")
    if result is not None:
        _print_table(result, args.output)
    return 0


class _Scans:
    def __init__(self, args: argparse.Namespace) -> None:
        from pumit.volume import Volume

        self.earlier: Volume = Volume.read(args.earlier)
        self.later: Volume = Volume.read(args.later)
        patients = _patients(self.earlier, self.later)
        if len(patients) > 1 and not args.other_patient:
            raise VolumeError(
                "DICOM states two different patients for the scans; check them, and use "
                "--other-patient if they are the same person."
            )
        if _are_reversed(self.earlier, self.later):
            logger.warning("DICOM dates the earlier scan after the later one; check their order.")
        self._patients = patients if args.other_patient else set()
        self.labels: LabelFile = self.read_labels(args.mask, self.earlier, "earlier")
        self.segments = _named(self.labels)
        self.lesions = np.zeros(self.earlier.shape, bool)
        for _, mask in self.segments:
            self.lesions |= mask
        if not self.lesions.any():
            raise VolumeError("The earlier mask is empty; segment its lesions first.")

    def read_labels(self, path: Path, scan: Volume, date: str) -> LabelFile:
        """Read the lesions of a scan, and warn of what is odd about them."""
        from pumit.io.labels.label_file import IN_PROGRESS
        from pumit.io.labels.label_source import read_labels, refuse_other_transforms

        refuse_other_transforms([*filter(None, [scan.path]), path])
        try:
            labels = read_labels(path, scan, patients=self._patients)
        except OtherPatientError:
            raise VolumeError(
                f"DICOM states another patient for the {date} lesions than for their scan; check "
                "them. If they are the same person, save the lesions as .seg.nrrd in Slicer."
            ) from None
        for doubt in labels.doubts:
            if doubt not in (labels.unreviewed, IN_PROGRESS):
                logger.warning("Remark on the %s lesions: %s.", date, doubt)
        return labels


def _named(labels: LabelFile) -> list[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for segment in labels.segments:
        name = segment.name or f"Lesion {segment.value}"
        names = (name, *(f"{name[:58]} ({number})" for number in range(2, len(found) + 3)))
        found[next(free for free in names if free not in found)] = labels.mask(segment)
    return list(found.items())


def _patients(*scans: Volume) -> set[str]:
    from pumit.io.dicom.files import read_header

    patients = {read_header(scan.source.files[0]).patient for scan in scans if scan.source}
    return patients - {""}


def _are_reversed(earlier: Volume, later: Volume) -> bool:
    """Return whether DICOM states that the earlier scan was made on a later day."""
    if earlier.source is None or later.source is None:
        return False
    from pumit.io.dicom.files import read_header

    headers = [read_header(v.source.files[0]).header for v in (earlier, later) if v.source]
    for tag in ("AcquisitionDate", "StudyDate"):
        first, second = (str(header.get(tag) or "").replace(".", "") for header in headers)
        if first and second:
            return first > second
    return False


def _registered(args: argparse.Namespace, step: Steps) -> tuple[_Scans, Registration]:
    from pumit.followup.files import read_transform, write_registration
    from pumit.followup.registration import measured, register
    from pumit.system.files import make_folder

    points = [parse_numbers(text, 3, "--new") for text in args.new]
    matrix = read_transform(args.registration) if args.registration else None
    step("Reading the scans", 0.02)
    scans = _Scans(args)
    for point in points:
        scans.later.require_inside(ras_to_lps(point), "RAS")
    if matrix is not None:
        registration = measured(scans.earlier, scans.later, matrix)
    else:
        registration = register(
            scans.earlier,
            scans.later,
            progress=lambda what, share: step(what, 0.1 + 0.4 * share),
        )
    make_folder(args.output)
    write_registration(registration, scans.earlier, scans.later, scans.lesions, args.output)
    return scans, registration


def _followed(
    args: argparse.Namespace, scans: _Scans, registration: Registration, step: Steps
) -> tuple[FollowUp, dict[str, Any] | None]:
    from pumit.followup.follow_up import compare_dates, follow_up
    from pumit.io.markups import read_markups
    from pumit.prompts import PointPrompt

    if args.later_mask:
        given = _named(scans.read_labels(args.later_mask, scans.later, "later"))
        step("Comparing", 0.8)
        return (
            compare_dates(scans.earlier, scans.segments, scans.later, given, registration),
            None,
        )
    prompts = read_markups(args.prompts) if args.prompts else []
    step("Loading the model", 0.55)
    from pumit.inference.interactive.segmenter import load_segmenter
    from pumit.inference.interactive.session import InteractiveSession
    from pumit.models.consent import require_consent

    require_consent(args.model)
    segmenter = load_segmenter(args.model, device=args.device)
    session = InteractiveSession(segmenter)
    session.set_volume(scans.later)
    new = [PointPrompt(ras_to_lps(parse_numbers(text, 3, "--new"))) for text in args.new]
    result = follow_up(
        scans.earlier,
        scans.segments,
        scans.later,
        registration,
        session,
        prompts=prompts,
        new_points=new,
        progress=lambda what, share: step(what, 0.6 + 0.3 * share),
    )
    facts = {"name": segmenter.name, "version": segmenter.version, "sha256": segmenter.sha256}
    return result, facts


def _write(
    args: argparse.Namespace, scans: _Scans, result: FollowUp, model: dict[str, Any] | None
) -> None:
    from pumit.export.classes import class_terminology
    from pumit.export.write import write_segmentation
    from pumit.followup.files import FACTS, SEGMENTATION, TABLE, facts_of, write_table
    from pumit.segmentation import Algorithm, ClassLabel, Segmentation

    write_table(result, args.output / TABLE)
    write_json(args.output / FACTS, facts_of(result, model=model))
    target = args.output / SEGMENTATION
    if args.later_mask and target.exists() and target.samefile(args.later_mask):
        return  # corrected by the user, and compared
    if target.exists():  # of an earlier run, and perhaps corrected since
        names = (args.output / f"later-{number}.seg.nrrd" for number in count(1))
        target.replace(kept := next(name for name in names if not name.exists()))
        logger.warning("The lesions of the earlier run are kept as %s.", kept.name)
    if model is None or not result.segments:
        return
    known = {s.name: s for s in scans.labels.segments if s.name}
    labels = [
        ClassLabel(name, known[name].terminology, known[name].color_rgb)
        if name in known
        else ClassLabel(name)
        for name, _ in result.segments
    ]
    segments = tuple(
        meaning.segment(name, mask)
        for meaning, (name, mask) in zip(class_terminology(labels), result.segments, strict=True)
    )
    algorithm = Algorithm(f"PUMIT {model['name']}", model["version"], "SEMIAUTOMATIC")
    write_segmentation(Segmentation(scans.later, segments, algorithm), target)


def _short(size: float) -> str:
    """Format a size; a nodule of 3 mm has 0.014 mL, which is not 0.0."""
    return f"{size:.1f}" if size >= 1 else f"{size:.2g}"


def _print_table(result: FollowUp, folder: Path) -> None:
    from pumit.followup.files import SEGMENTATION, TABLE, table_of

    rows = [("lesion", "change", "volume mL", "", "long axis mm", "", "longest mm", "")]
    for row in table_of(result):
        sizes = []
        for name in ("volume_ml", "long_axis_mm", "longest_mm"):
            before, after = row["earlier"][name], row["later"][name]
            sizes += ["" if before is None else _short(before)]
            sizes += ["" if after is None else f"-> {_short(after)}"]
        rows.append((row["lesion"], row["change"], *sizes))
    print_table(rows)
    for change in result.changes:
        if change.remark:
            print(f"{change.name}: {change.remark}")
    if (folder / SEGMENTATION).exists():
        print(f"Next: look at {folder / SEGMENTATION}, and correct it by clicks where it is wrong.")
    else:
        print(f"Next: look at {folder / TABLE}")
