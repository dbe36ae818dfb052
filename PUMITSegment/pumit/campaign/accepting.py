"""Accepting a label: an atomic write that never replaces another person's label."""

from __future__ import annotations

import filecmp
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pumit.campaign.labels import (
    CampaignClass,
    class_dice,
    join_by_class,
    keep_copy,
    masks_of_files,
    named_masks,
    segmentation_of,
    write_label,
)
from pumit.errors import VolumeError
from pumit.io.labels.grid_match import same_grid
from pumit.io.labels.label_file import IN_PROGRESS
from pumit.io.labels.label_source import OTHER_SERIES, OUTSIDE, read_all_labels
from pumit.segmentation import Algorithm, Mask, Segmentation
from pumit.system.files import atomic_path

if TYPE_CHECKING:
    from pumit.campaign.entry import ScanEntry
    from pumit.campaign.folder import CampaignFolder
    from pumit.volume import Volume

DICOM_LABEL = "label.dcm"
# Accepted segments, whether drawn by a person or corrected from a prediction.
PERSON = Algorithm("PUMIT campaign", "1", "SEMIAUTOMATIC")


def write_accepted(
    campaign: CampaignFolder,
    scan: ScanEntry,
    label: str | Path | Sequence[Path] | Segmentation | None,
    *,
    reviewer: str,
) -> tuple[Path, tuple[str, ...], set[str]]:
    """Write the label to accept into a new temporary file in the scan's folder.

    Returns:
        The file, warnings about the label, and the classes in it.

    Raises:
        PumitError: If the label is not on the scan's grid, extends beyond it, was drawn on another
            series, has the file name of another scan or other classes, or cannot be written.
    """
    if isinstance(label, (str, Path)):
        _refuse_other_name(campaign, scan, Path(label))
    volume = campaign.volume(scan)
    doubts: tuple[str, ...] = ()
    segments: Iterable[tuple[str, Mask]] = ()
    try:
        if isinstance(label, Segmentation):
            same_grid(label.volume, volume, "it")
            volume, segments = label.volume, ((s.name, s.mask) for s in label.segments)
        elif label is not None:
            paths = [Path(label)] if isinstance(label, (str, Path)) else label
            file = read_all_labels(paths, volume)
            doubts = tuple(d for d in file.doubts if d not in (file.unreviewed, IN_PROGRESS))
            for doubt in doubts:
                if OUTSIDE in doubt or OTHER_SERIES in doubt:
                    raise VolumeError(f"{doubt}; make it on this scan.")
            segments = named_masks(file, campaign.values_of(scan, paths))
        masks = join_by_class(segments, campaign.classes, ignored=campaign.ignored_names)
    except VolumeError as error:
        text = " ".join(str(error).split())
        raise VolumeError(f"This label cannot be accepted: {text}") from None
    written = campaign.home(scan) / f".accepted-{secrets.token_hex(6)}.seg.nrrd"
    found = segmentation_of(masks, volume, campaign.classes, PERSON)
    write_label(found, volume, written, reviewer)
    return written, doubts, {*masks}


def _refuse_other_name(campaign: CampaignFolder, scan: ScanEntry, label: Path) -> None:
    """Refuse a label named after another scan: scans of one grid fit each other's labels."""
    from pumit.campaign.sources import is_named_after

    if campaign.home(scan) in label.absolute().parents or is_named_after(label, scan.name):
        return
    others = (s.name for s in campaign.scans() if is_named_after(label, s.name))
    if other := next(others, None):
        raise VolumeError(
            f"This label cannot be accepted: {label.name} has the name of another scan, {other}; "
            f"give the label of {scan.name}, or rename the file if it is that."
        )


def set_aside(path: Path, revision: int) -> None:
    """Move an outdated file, if it exists, to `previous/`."""
    keep_copy(path, revision)
    path.unlink(missing_ok=True)


def agreement_of(
    label: Path, prediction: Path, classes: Sequence[CampaignClass]
) -> dict[str, float] | None:
    """Return the Dice of prediction and accepted label by class.

    None if either file is missing or their shapes differ. Both files are on the scan's grid, so
    the scan is not read.
    """
    from pumit.io.labels.label_file import read_label_file

    if not (label.is_file() and prediction.is_file()):
        return None
    found = []
    for path in (label, prediction):
        file = read_label_file(path)
        masks = join_by_class(named_masks(file), classes, keeps_others=True)
        found.append((file.volume.shape, masks))
    (shape, accepted), (other, predicted) = found
    return class_dice(accepted, predicted) if shape == other else None


def write_dicom(
    label: Path,
    target: Path,
    volume: Volume,
    classes: Sequence[CampaignClass],
    scan: ScanEntry,
    *,
    identifies_patient: bool,
) -> None:
    """Write an accepted label as DICOM-SEG with its reviewer and date; none if it is empty."""
    from pumit.export.dicom_seg import write_dicom_seg

    segmentation = segmentation_of(
        masks_of_files([label], volume, classes), volume, classes, PERSON
    )
    set_aside(target, 0)
    if segmentation is not None:
        write_dicom_seg(
            segmentation,
            target,
            series_description="PUMIT campaign",
            reviewer=scan.reviewer,
            reviewed_at=datetime.fromisoformat(scan.accepted_at) if scan.accepted_at else None,
            identifies_patient=identifies_patient,
        )


def copy_beside(label: Path, scan: Path, stem: str) -> None:
    """Copy an accepted label beside its scan, without replacing files of another origin."""
    for target in _beside(scan, stem):
        if not target.exists() or _is_ours(target, label):
            with atomic_path(target) as temporary:
                shutil.copyfile(label, temporary)
            return


def remove_beside(label: Path, scan: Path, stem: str) -> None:
    """Remove the copy of an outdated label, unless a person changed it."""
    for target in _beside(scan, stem):
        if not target.exists():
            return
        if _is_ours(target, label):
            with suppress(OSError):
                target.unlink()
            return


def _beside(scan: Path, stem: str) -> Iterator[Path]:
    numbers = (f"-{number}" if number > 1 else "" for number in count(1))
    return (scan.parent / f"{stem}{number}.seg.nrrd" for number in numbers)


def _is_ours(target: Path, label: Path) -> bool:
    ours = [label, *sorted((label.parent / "previous").glob("label.*"))]
    return any(own.is_file() and filecmp.cmp(target, own, shallow=False) for own in ours)
