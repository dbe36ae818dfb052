"""`pumit sample`: generated data to try the commands with; nothing is fetched."""

import argparse
from pathlib import Path

from pumit.cli.shared.output import progress_bar
from pumit.errors import ExportError
from pumit.system.files import make_folder, write_json
from pumit.system.wording import in_shell

ORGANS = ("liver", "spleen", "left kidney", "right kidney")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit sample`."""
    parser.add_argument(
        "kind",
        choices=("scan", "labelled", "follow-up"),
        help="scan: a CT of an abdomen, as DICOM; labelled: several with their organs, as a data "
        "set for `pumit train`; follow-up: an abdomen at two dates, with its lesions",
    )
    parser.add_argument("folder", type=Path, help="folder to write; must be empty or missing")
    parser.add_argument("--count", type=int, default=6, help="number of labelled scans")


def run(args: argparse.Namespace) -> int:
    """Run `pumit sample`."""
    from pumit.export.dicom_series import write_dicom_series
    from pumit.training.synthesis.phantom import torso_phantom

    folder: Path = args.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder.name} is not an empty folder; name another one.")
    if args.count < 1:
        raise ExportError(f"--count needs a number of at least 1, got {args.count}.")
    make_folder(folder)
    if args.kind == "scan":
        phantom = torso_phantom()
        write_dicom_series(phantom.volume, folder, patient_id="PUMIT-SAMPLE")
        right, anterior, superior = phantom.volume.to_lps(phantom.centre_lps("liver"), "RAS")
        place = f"{right:.0f},{anterior:.0f},{superior:.0f}"
        click = f"--point={place} --terminology liver -o liver.dcm"
        print(f"Next: pumit segment {in_shell(folder)} {click}")
        return 0
    if args.kind == "follow-up":
        _write_two_dates(folder)
        return 0
    with progress_bar(quiet=False) as step:
        for number in range(1, args.count + 1):
            step(f"Scan {number} of {args.count}", (number - 1) / args.count)
            _write_labelled(folder, number)
    labels = {"background": 0, **{name: value for value, name in enumerate(ORGANS, start=1)}}
    facts = {
        "name": "Generated abdomens",
        "channel_names": {"0": "CT"},
        "labels": labels,
        "numTraining": args.count,
        "file_ending": ".nii.gz",
    }
    write_json(folder / "dataset.json", facts)
    print(
        f"Next: pumit plan {in_shell(folder)} -o mine.yaml, then pumit train mine.yaml -o runs/mine"
    )
    return 0


def _write_two_dates(folder: Path) -> None:
    from pumit.export.seg_nrrd import write_seg_nrrd
    from pumit.export.volume_file import write_volume_file
    from pumit.segmentation import Algorithm, Segment, Segmentation
    from pumit.training.synthesis.two_dates import two_dates

    dates = two_dates()
    for name, volume, masks in (
        ("earlier", dates.earlier, dates.earlier_masks),
        ("later", dates.later, dates.later_masks),
    ):
        write_volume_file(volume.array, volume, folder / f"{name}.nii.gz")
        segments = tuple(Segment(f"Lesion {label}", mask) for label, mask in masks.items())
        segmentation = Segmentation(volume, segments, Algorithm("PUMIT sample", "1"))
        write_seg_nrrd(segmentation, folder / f"{name}.seg.nrrd", is_reviewed=True)
    names = ("earlier.nii.gz", "earlier.seg.nrrd", "later.nii.gz", "result")
    scans = [in_shell(folder / name) for name in names]
    print(f"Next: pumit follow-up {' '.join(scans[:3])} -o {scans[3]}")


def _write_labelled(folder: Path, number: int) -> None:
    """Write one case in nnU-Net's layout, at half the in-plane resolution for a fast training."""
    import numpy as np

    from pumit.export.volume_file import write_volume_file
    from pumit.training.synthesis.phantom import torso_phantom
    from pumit.volume import Volume

    phantom = torso_phantom(100 + number)
    whole = phantom.volume
    labels = np.zeros(whole.shape, np.uint8)
    for value, name in enumerate(ORGANS, start=1):
        labels[phantom.masks[name]] = value
    depth, height, width = whole.spacing_mm
    for part, array in (("imagesTr", whole.array), ("labelsTr", labels)):
        (folder / part).mkdir(exist_ok=True)
        coarse = np.ascontiguousarray(array[:, ::2, ::2])
        spacing = (depth, 2 * height, 2 * width)
        volume = Volume(coarse, spacing, whole.origin_lps, whole.direction)
        suffix = "_0000" if part == "imagesTr" else ""
        write_volume_file(coarse, volume, folder / part / f"abdomen_{number:02}{suffix}.nii.gz")
