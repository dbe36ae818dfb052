"""Exports of a campaign: data sets, DICOM-SEG, its model, and a report."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

import pumit
from pumit.campaign.accepting import write_dicom
from pumit.campaign.campaign import Campaign
from pumit.campaign.entry import ScanEntry
from pumit.campaign.folder import LABEL
from pumit.campaign.labels import UNKNOWN, CampaignClass
from pumit.campaign.progress import chart_of, used_round
from pumit.campaign.sources import DATA_SET
from pumit.errors import ExportError, PumitError
from pumit.export.labelmap import Labels, label_type, write_labels
from pumit.export.volume_file import write_volume_file
from pumit.report.document import write_template
from pumit.system.files import atomic_path, make_folder, write_json
from pumit.system.wording import count_of
from pumit.volume import Volume

ExportKind = Literal["nnunet", "msd", "dicom", "model", "page"]
_ENDING = ".nii.gz"


def export(campaign: Campaign, kind: ExportKind, target: Path) -> str:
    """Export a campaign.

    Args:
        kind: nnunet or msd for a data set, dicom for DICOM-SEG files, model for a model file, page
            for the HTML report on how the labels were made.

    Returns:
        A sentence about what was written.
    """
    if target.exists():
        raise ExportError(f"There is {target.name!r} already; give a new name.")
    kinds: dict[str, Callable[[Campaign, Path], str]] = {
        "nnunet": partial(_data_set, is_msd=False),
        "msd": partial(_data_set, is_msd=True),
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
    """Write an nnU-Net or Decathlon data set with case names that do not identify patients."""
    scans, classes = _labelled(campaign), campaign.classes
    if not is_msd:  # nnU-Net refuses values with gaps
        new = {value: number for number, value in enumerate(_all(classes), start=1)}
        classes = tuple(
            replace(c, value=new[c.value], values=tuple(new[v] for v in c.values)) for c in classes
        )
    values = _own_values(classes)
    if not classes:
        raise PumitError("The campaign has no classes; there is nothing to export.")
    if is_msd and any(len(c.values) > 1 for c in classes):
        raise PumitError("Classes that overlap are not known to the Decathlon; export nnunet.")
    ignored = _all(classes)[-1] + 1
    stem = re.sub(r"\W+", "", campaign.name) or "case"
    cases = {f"{stem}_{number:03d}": scan for number, scan in enumerate(scans, start=1)}
    channels: set[int] = set()
    has_unknown = False
    with atomic_path(target) as temporary:
        for part in ("imagesTr", "labelsTr"):
            make_folder(temporary / part)
        for case, scan in cases.items():
            volume = campaign.volume(scan)
            labels, is_partial = _values(campaign, scan, volume, classes, ignored)
            has_unknown |= is_partial
            channels.add(volume.channels)
            _write_images(volume, temporary / "imagesTr" / case, is_msd=is_msd)
            write_labels(labels, volume, temporary / "labelsTr" / f"{case}{_ENDING}")
        if len(channels) > 1:
            raise PumitError("Scans have different numbers of channels; leave some of them out.")
        count = channels.pop()
        known = campaign.channels if len(campaign.channels) == count else ()
        names = dict(enumerate(known or (f"channel {c}" for c in range(count))))
        rows: dict[str, Any] = {"background": 0}
        rows |= {c.name: list(c.values) if len(c.values) > 1 else c.value for c in classes}
        rows |= {"ignore": ignored} if has_unknown else {}
        content: dict[str, Any] = {"name": campaign.name, "numTraining": len(cases)}
        if is_msd:
            content |= {"modality": names, "labels": {str(v): k for k, v in rows.items()}}
            content |= {"tensorImageSize": "4D" if count > 1 else "3D", "numTest": 0, "test": []}
            files = [f"{case}{_ENDING}" for case in cases]
            pairs = [{"image": f"./imagesTr/{f}", "label": f"./labelsTr/{f}"} for f in files]
            content["training"] = pairs
        else:
            content |= {"channel_names": names, "labels": rows, "file_ending": _ENDING}
            if any(len(c.values) > 1 for c in classes):
                content["regions_class_order"] = list(values.values())
            held = [case for case, scan in cases.items() if scan.is_validation]
            if held:
                trained = [case for case in cases if case not in held]
                write_json(temporary / "splits_final.json", [{"train": trained, "val": held}])
        write_json(temporary / DATA_SET, content)
    return f"{count_of(len(cases), 'scan')} with labels written."


def _own_values(classes: Sequence[CampaignClass]) -> dict[str, int]:
    """Return for each class a value of no other class, else one of no class nested within it."""
    own = {}
    for c in classes:
        others = {v for o in classes if o != c for v in o.values}
        inner = {v for o in classes if set(o.values) < set(c.values) for v in o.values}
        free = [v for v in c.values if v not in others] or [v for v in c.values if v not in inner]
        own[c.name] = free[0] if free else c.value
    return own


def _values(
    campaign: Campaign,
    scan: ScanEntry,
    volume: Volume,
    classes: Sequence[CampaignClass],
    ignored: int,
) -> tuple[Labels, bool]:
    """Return label values and whether the annotation is partial; unknown voxels are ignored."""
    masks, values = campaign.truth(scan, volume), _own_values(classes)
    drawn = set(scan.drawn or values)
    is_partial = scan.known != "all" or values.keys() > drawn
    has_slices = scan.known == "slices" and values.keys() <= drawn
    start = ignored if is_partial and not has_slices else 0
    labels: Labels = np.full(volume.shape, start, dtype=label_type(ignored))
    if UNKNOWN in masks:
        labels[masks[UNKNOWN]], is_partial = ignored, True
    for name, value in values.items():
        if name in masks:
            labels[masks[name]] = value
    if has_slices:
        labels = _without_slices(labels, ignored)
    if all(len(c.values) == 1 for c in classes):
        return labels, is_partial
    # Of classes that overlap, a value says of each one whether a voxel is of it.
    of_value = {v: frozenset(c.name for c in classes if v in c.values) for v in _all(classes)}
    for known in dict.fromkeys(names & drawn for names in of_value.values()):
        if not known or not known <= masks.keys():
            continue
        inside = np.ones(volume.shape, dtype=bool)
        for name in drawn & masks.keys():
            inside &= masks[name] if name in known else ~masks[name]
        may_be = [v for v, names in of_value.items() if names & drawn == known]
        is_told = len({of_value[v] for v in may_be}) == 1
        labels[inside] = may_be[0] if is_told else ignored
    return labels, is_partial


def _without_slices(labels: Labels, ignored: int) -> Labels:
    """Ignore the slices without labels, as training does."""
    from pumit.training.data.class_matching import only_slices
    from pumit.training.data.classes import UNKNOWN as UNKNOWN_VALUE

    is_known = labels != ignored
    drawn = np.where(is_known, labels > 0, np.uint8(UNKNOWN_VALUE))
    labels = labels.copy()
    labels[only_slices(drawn) == UNKNOWN_VALUE] = ignored
    return labels


def _all(classes: Sequence[CampaignClass]) -> list[int]:
    return sorted({v for c in classes for v in c.values})


def _write_images(volume: Volume, stem: Path, *, is_msd: bool) -> None:
    """Write a scan's channels from its voxels, on the grid of its label.

    Not copies of its files, whose headers may name the patient, and whose grid may be sheared.
    """
    array = volume.array.reshape(-1, *volume.shape)
    if is_msd:
        array = array if len(array) > 1 else array[0]
        write_volume_file(array, volume, stem.with_name(f"{stem.name}{_ENDING}"))
        return
    for number, channel in enumerate(array):
        write_volume_file(channel, volume, stem.with_name(f"{stem.name}_{number:04d}{_ENDING}"))


def _dicom(campaign: Campaign, target: Path) -> str:
    scans = [s for s in _labelled(campaign) if s.series and s.stored_state == "accepted"]
    if not scans:
        raise PumitError("No accepted scan is DICOM; export a data set.")
    with atomic_path(target) as temporary:
        make_folder(temporary)
        for scan in scans:
            write_dicom(
                campaign.home(scan) / LABEL,
                temporary / f"{scan.id}.dcm",
                campaign.volume(scan),
                campaign.classes,
                scan,
                identifies_patient=True,
            )
        count = len(list(temporary.iterdir()))
    empty = (
        f"; {count_of(len(scans) - count, 'scan')} without structures" if count < len(scans) else ""
    )
    return f"{count_of(count, 'DICOM-SEG file')} written{empty}."


def _model(campaign: Campaign, target: Path) -> str:
    from pumit.models.model_file import export_model

    used = used_round(campaign.rounds)
    if used is None:
        raise PumitError("There is no model yet; train first.")
    export_model(campaign.folder / used.model, target)
    return f"The model of round {used.number} is written; `pumit models import` reads it."


def write_origin_page(campaign: Campaign, target: Path) -> str:
    """Write the report on how the labels were made, without names of scans."""
    everything, rounds = campaign.scans(), campaign.rounds
    scans = [s for s in everything if s.stored_state != "left_out"]
    labelled = [s for s in scans if s.is_truth]
    chart, known = chart_of(everything, rounds), {r.number: r for r in rounds}
    rows = zip(chart.rounds, chart.dice, chart.clicks, chart.agreement, strict=True)
    content = {
        "title": f"How {campaign.name} was made",
        "campaign": campaign,
        "scans": scans,
        "labelled": labelled,
        "accepted": [s for s in scans if s.stored_state == "accepted"],
        "left_out": len(everything) - len(scans),
        "version": pumit.__version__,
        "classes": [
            (
                c.name,
                c.value,
                c.terminology or "-",
                sum(not s.drawn or c.name in s.drawn for s in labelled),
            )
            for c in campaign.classes
        ],
        "rounds": [(number, known.get(number), *values) for number, *values in rows],
    }
    write_template(target, "campaign.html.j2", content)
    return "The page is written."
