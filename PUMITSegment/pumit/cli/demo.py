"""`pumit demo`: segment a generated scan, from clicks to export, without a download."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from pumit.cli.shared.output import progress_bar
from pumit.errors import ExportError
from pumit.system.files import make_folder

CLICKS = ("liver", "spleen", "left kidney", "right kidney")
PATIENT_ID = "PUMIT-DEMO"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit demo`."""
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("demo-output"), help="folder for the results"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument(
        "--model", default="default", help="name of an installed model, or a checkpoint file"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def remove_earlier_scan(series: Path) -> None:
    """Remove the scan of an earlier demonstration; refuse anything else."""
    import shutil

    from pydicom import dcmread
    from pydicom.errors import InvalidDicomError

    if not series.exists():
        return
    try:
        patients = {
            str(dcmread(f, specific_tags=["PatientID"]).get("PatientID")) for f in series.iterdir()
        }
    except (OSError, InvalidDicomError):
        patients = {"unreadable"}
    if not patients <= {PATIENT_ID}:
        raise ExportError(
            f"The output folder has a {series.name!r} that is not from a demonstration; choose "
            "another folder with -o."
        )
    shutil.rmtree(series)


def run(args: argparse.Namespace) -> int:
    """Run `pumit demo`: one click in each of four organs."""
    import numpy as np

    from pumit.cli.segment import algorithm_of
    from pumit.evaluation.metrics import dice
    from pumit.export.dicom_series import write_dicom_series
    from pumit.export.terminology import concept_for
    from pumit.export.write import write_segmentation
    from pumit.inference.interactive.segmenter import load_segmenter
    from pumit.inference.interactive.session import InteractiveSession
    from pumit.models.consent import require_consent
    from pumit.report.picture import write_picture
    from pumit.segmentation import Segmentation
    from pumit.training.synthesis.phantom import torso_phantom

    # Before anything is written.
    require_consent(args.model)
    session = InteractiveSession(load_segmenter(args.model, device=args.device))
    folder: Path = args.output
    make_folder(folder)
    series = folder / "scan"
    remove_earlier_scan(series)
    with progress_bar(quiet=args.json) as step:
        step("Generating a scan", 0.1)
        phantom = torso_phantom()
        volume = write_dicom_series(phantom.volume, series, patient_id=PATIENT_ID)
        step("Encoding the scan", 0.3)
        session.set_volume(volume)
        segments, scores = [], {}
        for i, name in enumerate(CLICKS):
            step(f"Clicking on the {name}", 0.4 + 0.1 * i)
            session.add_point(phantom.centre_lps(name), segment=name)
            mask = session.predict(segment=name)
            scores[name] = round(dice(mask, phantom.masks[name]), 3)
            if mask.any():
                segments.append(concept_for(name).segment(name, mask))
        # Organs do not overlap: a voxel in two masks goes to the smaller one.
        segments.sort(key=lambda segment: -int(segment.mask.sum()))
        for i, segment in enumerate(segments):
            taken = np.logical_or.reduce(
                [np.zeros_like(mask), *(s.mask for s in segments[i + 1 :])]
            )
            segments[i] = replace(segment, mask=segment.mask & ~taken)
        result = Segmentation(volume, tuple(segments), algorithm_of(session.segmenter))
        step("Writing", 0.85)
        write_segmentation(result, folder / "mask.nii.gz")
        write_segmentation(result, folder / "segmentation.dcm")
        write_segmentation(result, folder / "segmentation.seg.nrrd")
        clicks = [p for name in CLICKS for p in session.prompts(name)]
        title = "PUMIT: one click per organ on a generated scan"
        write_picture(volume, segments, folder / "picture.png", prompts=clicks, title=title)
    if args.json:
        print(json.dumps({"folder": str(folder), "dice_after_one_click": scores}))
        return 0
    for name, score in scores.items():
        print(f"{name:<14} Dice {score:.3f} after one click")
    print(f"Look at {folder / 'picture.png'}; the mask, the DICOM-SEG and the scan are next to it.")
    return 0
