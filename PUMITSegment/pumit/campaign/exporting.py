"""Exports of a campaign: data sets, DICOM-SEG, its model, and how the data set was made."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import SimpleITK

import pumit
from pumit.campaign.accepting import DICOM_LABEL, write_dicom
from pumit.campaign.campaign import LABEL, Campaign
from pumit.campaign.entry import ScanEntry
from pumit.campaign.labels import UNKNOWN, masks_of_files
from pumit.campaign.progress import chart_of, used_round
from pumit.errors import ExportError, PumitError
from pumit.export.labelmap import write_labels
from pumit.export.volume_file import write_volume_file
from pumit.report.document import write_template
from pumit.system.atomic import atomic_path, write_json
from pumit.volume import Volume

ExportKind = Literal["nnunet", "msd", "dicom", "model", "page"]
_ENDING = ".nii.gz"


def export(campaign: Campaign, kind: ExportKind, target: Path) -> str:
    """Export a campaign.

    Args:
        campaign: The campaign.
        kind: nnunet or msd for a data set, dicom for DICOM-SEG files, model for a file for a
            colleague, page for "How the data set was made".
        target: New folder or file.

    Returns:
        A sentence about what was written.
    """
    if target.exists():
        raise ExportError(f"There is {target.name!r} already; give a new name.")
    kinds: dict[str, Callable[[Campaign, Path], str]] = {
        "nnunet": lambda c, t: _data_set(c, t, is_msd=False),
        "msd": lambda c, t: _data_set(c, t, is_msd=True),
        "dicom": _dicom,
        "model": _model,
        "page": write_origin_page,
    }
    return kinds[kind](campaign, target)


def _labelled(campaign: Campaign) -> list[ScanEntry]:
    scans = [s for s in campaign.scans() if s.is_truth]
    if not scans:
        raise PumitError("No scan is accepted yet; there is nothing to export.")
    return scans


def _data_set(campaign: Campaign, target: Path, *, is_msd: bool) -> str:
    """Return a folder as nnU-Net or the Decathlon lay it out, with names that tell no patient."""
    scans, classes = _labelled(campaign), campaign.classes
    if not classes:
        raise PumitError("The campaign has no classes; there is nothing to export.")
    ignored = max(c.value for c in classes) + 1
    stem = re.sub(r"\W+", "", campaign.name) or "case"
    rows: list[dict[str, str]] = []
    channels: set[int] = set()
    has_unknown = False
    with atomic_path(target) as temporary:
        for part in ("imagesTr", "labelsTr"):
            (temporary / part).mkdir(parents=True)
        for number, scan in enumerate(scans, start=1):
            case = f"{stem}_{number:03d}"
            volume = campaign.volume(scan)
            labels, is_partial = _values(campaign, scan, volume, ignored)
            has_unknown |= is_partial
            channels.add(volume.channels)
            _write_images(campaign, scan, volume, temporary / "imagesTr" / case, is_msd=is_msd)
            write_labels(labels, volume, temporary / "labelsTr" / f"{case}{_ENDING}")
            rows.append(
                {"image": f"./imagesTr/{case}{_ENDING}", "label": f"./labelsTr/{case}{_ENDING}"}
            )
        if len(channels) > 1:
            raise PumitError("Scans have different numbers of channels; leave some of them out.")
        names: dict[str, Any] = {str(c): f"channel {c}" for c in range(channels.pop())}
        labels_row: dict[str, Any] = {"background": 0, **{c.name: c.value for c in classes}}
        labels_row |= {"ignore": ignored} if has_unknown else {}
        content: dict[str, Any] = {"name": campaign.name}
        if is_msd:
            content |= {"modality": names, "labels": {str(v): k for k, v in labels_row.items()}}
            content |= {"tensorImageSize": "4D" if len(names) > 1 else "3D", "training": rows}
            content |= {"numTraining": len(rows), "numTest": 0, "test": []}
        else:
            content |= {"channel_names": names, "labels": labels_row, "numTraining": len(rows)}
            content |= {"file_ending": _ENDING}
            held = [f"{stem}_{i:03d}" for i, s in enumerate(scans, start=1) if s.is_validation]
            trained = [f"{stem}_{i:03d}" for i, s in enumerate(scans, 1) if not s.is_validation]
            if held:
                write_json(temporary / "splits_final.json", [{"train": trained, "val": held}])
        write_json(temporary / "dataset.json", content)
    return f"{len(rows)} scans with labels are written."


def _values(
    campaign: Campaign, scan: ScanEntry, volume: Volume, ignored: int
) -> tuple[npt.NDArray[np.uint8], bool]:
    """Values of the classes; where not all is known, what is not drawn is to be ignored."""
    classes = campaign.classes
    paths = campaign.label_paths(scan)
    masks = masks_of_files(paths, volume, classes, ignored=campaign.ignored_names)
    is_partial = bool(scan.drawn) and {c.name for c in classes} > set(scan.drawn)
    is_partial |= scan.known != "all"
    labels = np.full(volume.shape, ignored if is_partial else 0, dtype=np.uint8)
    if UNKNOWN in masks:
        labels[masks[UNKNOWN]], is_partial = ignored, True
    for c in classes:
        if c.name in masks:
            labels[masks[c.name]] = c.value
    return labels, is_partial


def _write_images(
    campaign: Campaign, scan: ScanEntry, volume: Volume, stem: Path, *, is_msd: bool
) -> None:
    paths = campaign.locate(scan)
    many = volume.channels > 1
    if many and is_msd:
        write_volume_file_4d(volume, stem.with_name(f"{stem.name}{_ENDING}"))
        return
    for number in range(volume.channels):
        name = f"{stem.name}{_ENDING}" if is_msd else f"{stem.name}_{number:04d}{_ENDING}"
        target = stem.with_name(name)
        if len(paths) == volume.channels and paths[number].name.lower().endswith(_ENDING):
            shutil.copyfile(paths[number], target)
        else:
            array = volume.array[number] if many else volume.array.reshape(volume.shape)
            write_volume_file(array, volume, target)


def write_volume_file_4d(volume: Volume, path: Path) -> None:
    """Write all channels of a volume as one file of four dimensions, as the Decathlon has them."""
    images = [SimpleITK.GetImageFromArray(np.ascontiguousarray(c)) for c in volume.array]
    for image in images:
        image.SetSpacing(volume.spacing_mm[::-1])
        image.SetOrigin(volume.origin_lps)
        image.SetDirection(volume.direction.ravel().tolist())
    try:
        SimpleITK.WriteImage(SimpleITK.JoinSeries(images), str(path), useCompression=True)
    except RuntimeError as error:
        raise ExportError(
            "The image cannot be written; check the free space of the disk."
        ) from error


def _dicom(campaign: Campaign, target: Path) -> str:
    """Return a DICOM-SEG for each accepted scan that is DICOM, named by the scan's identifier."""
    scans = [s for s in _labelled(campaign) if s.series and s.stored_state == "accepted"]
    if not scans:
        raise PumitError("No accepted scan is DICOM; export a data set.")
    with atomic_path(target) as temporary:
        temporary.mkdir()
        for scan in scans:
            made = campaign.home(scan) / DICOM_LABEL
            place = temporary / f"{scan.id}.dcm"
            if made.is_file():
                shutil.copyfile(made, place)
            else:
                label = campaign.home(scan) / LABEL
                volume = campaign.volume(scan)
                write_dicom(label, place, volume, campaign.classes, scan.reviewer)
        count = len(list(temporary.iterdir()))
    return f"{count} DICOM-SEG files are written."


def _model(campaign: Campaign, target: Path) -> str:
    from pumit.models.model_file import export_model

    used = used_round(campaign.rounds)
    if used is None:
        raise PumitError("There is no model yet; train first.")
    export_model(campaign.folder / used.model, target)
    return f"The model of round {used.number} is written; `pumit models import` reads it."


def write_origin_page(campaign: Campaign, target: Path) -> str:
    """Write "How the data set was made": numbers, people, rounds, agreement; no scan by name."""
    scans = [s for s in campaign.scans() if s.stored_state != "left_out"]
    labelled = [s for s in scans if s.is_truth]
    accepted = [s for s in scans if s.stored_state == "accepted"]
    classes = [
        (c.name, c.value, c.terminology or "-", _with_class(labelled, c.name))
        for c in campaign.classes
    ]
    known = {r.number: r for r in campaign.rounds}
    chart = chart_of(campaign.scans(), campaign.rounds)
    rows = zip(chart.rounds, chart.dice, chart.clicks, chart.agreement, strict=True)
    content = {
        "title": f"How {campaign.name} was made",
        "campaign": campaign,
        "scans": scans,
        "labelled": labelled,
        "accepted": accepted,
        "left_out": len(campaign.scans()) - len(scans),
        "version": pumit.__version__,
        "classes": classes,
        "people": _people(accepted),
        "rounds": [(number, known.get(number), *values) for number, *values in rows],
    }
    write_template(target, "campaign.html.j2", content)
    return "The page is written."


def _with_class(scans: Sequence[ScanEntry], name: str) -> int:
    return sum(not s.drawn or name in s.drawn for s in scans)


def _people(accepted: Sequence[ScanEntry]) -> list[tuple[str, str, str, str]]:
    rows = []
    for name, count in Counter(s.reviewer or "no name given" for s in accepted).most_common():
        own = [s for s in accepted if (s.reviewer or "no name given") == name]
        clicks = sum(s.clicks for s in own) / count
        minutes = sum(s.seconds for s in own) / count / 60
        rows.append((name, str(count), f"{clicks:.1f}", f"{minutes:.1f}"))
    return rows
