"""Scans for a campaign from the open scene and from Slicer's DICOM database."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import slicer
from pumit.campaign import Campaign, ScanEntry
from pumit.export.volume_file import write_volume_file
from pumit.segmentation import Segment, Segmentation
from pumit.volume import Volume
from slicer.i18n import tr as _

from PUMITTrainLib.campaign.loading import DRAWN
from PUMITTrainLib.cases.scene_pairs import scenePairs
from PUMITTrainLib.cases.scene_snapshot import SceneSnapshot, hardenedVolume, snapshot

_INSTANCES = "DICOM.instanceUIDs"
_FOLDER = "scene"


@dataclass(frozen=True, eq=False)
class SceneScan:
    """A volume of the scene.

    Attributes:
        name: Name that is unique regardless of case, and valid as a file name.
        file: File or DICOM folder that it was read from and not changed since, or None.
        series: SeriesInstanceUID, if the folder may have several.
        volume: Voxels with the node's transforms applied, if there is no file.
        drawn: The scan with each of its segmentations.
    """

    name: str
    file: Path | None
    series: str
    volume: Volume | None
    drawn: tuple[SceneSnapshot, ...]

    def write(self, folder: Path) -> Path:
        """Return the scan's file, writing it into a folder if necessary; on a worker thread.

        Raises:
            ExportError: If the file cannot be written.
        """
        if self.volume is None or self.file is not None:
            assert self.file is not None
            return self.file
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.nrrd"
        write_volume_file(self.volume.array, self.volume, path)
        return path


class SceneScans:
    """Snapshot of all scans of the scene.

    Args:
        folder: Folder of the campaign, where scans without a file are written.

    Raises:
        PumitError: If a scan cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[tuple[Path, str], SceneScan] = {}
        pairs = scenePairs()
        self.scans: list[SceneScan] = []
        for node in slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode"):
            isScan = node.GetImageData() is not None and not node.GetHideFromEditors()
            if node.IsA("vtkMRMLLabelMapVolumeNode") or not isScan:
                continue
            name, (file, series) = self._newName(node), _fileOf(node)
            labels = [p.label for p in pairs if p.volumes[0] is node and _hasSegments(p.label)]
            drawn = tuple(
                snapshot(f"{name} {number}", (node,), label)
                for number, label in enumerate(labels, start=1)
            )
            volume = hardenedVolume(node) if file is None else None
            self.scans.append(SceneScan(name, file, series, volume, drawn))

    def _newName(self, node: Any) -> str:
        bare = "".join(c if c.isalnum() or c in "-_ " else "_" for c in node.GetName())
        # File systems may ignore case.
        taken = {scan.name.casefold() for scan in self.scans}
        return _unused(bare.strip() or "scan", lambda text: text.casefold() in taken)

    def paths(self) -> Sequence[Path]:
        """Return the files of the scans, written if necessary; on a worker thread."""
        # The folder may hold scans of an earlier campaign, or files of the user's own.
        new = self._folder / _unused(_FOLDER, lambda text: (self._folder / text).exists())
        self._written = {
            (Path(os.path.abspath(scan.write(new))), scan.series): scan for scan in self.scans
        }
        return list(dict.fromkeys(path for path, _series in self._written))

    def keepDrawn(self, campaign: Campaign) -> None:
        """Save the scene's segmentations as drafts, to be reviewed."""
        leaveOutOthers(campaign, lambda entry: not entry.series or self._scanOf(entry) is not None)
        for entry in campaign.scans():
            scan = self._scanOf(entry)
            if scan is None or not scan.drawn:
                continue
            with tempfile.TemporaryDirectory(prefix="pumit-", ignore_cleanup_errors=True) as folder:
                labels = [each.writeLabel(Path(folder)) for each in scan.drawn]
                if len(labels) == 1:
                    campaign.save_draft(entry, labels[0])
                    continue
                volume = campaign.volume(entry)
                masks = campaign.masks(entry, labels, volume, keeps_others=True)
                segments = tuple(Segment(name, mask) for name, mask in masks.items())
                campaign.save_draft(entry, Segmentation(volume, segments, DRAWN))

    def _scanOf(self, entry: ScanEntry) -> SceneScan | None:
        keys = ((entry.path, entry.series.partition("#")[0]), (entry.path, ""))
        return next((self._written[key] for key in keys if key in self._written), None)


def _unused(text: str, isTaken: Callable[[str], bool]) -> str:
    """Return the text, with a number appended if it is taken."""
    number, unused = 1, text
    while isTaken(unused):
        number += 1
        unused = f"{text} {number}"
    return unused


def _hasSegments(label: Any) -> bool:
    isMap = label.IsA("vtkMRMLLabelMapVolumeNode")
    return isMap or label.GetSegmentation().GetNumberOfSegments() > 0


def leaveOutOthers(campaign: Campaign, isWanted: Callable[[ScanEntry], bool]) -> None:
    """Leave out series that are only in a folder of the wanted ones; on a worker thread."""
    others = [entry for entry in campaign.scans() if not isWanted(entry)]
    for entry in others:
        campaign.leave_out(entry)
    if others:
        words = _("Left out, since only their folders were wanted: {count} series.")
        campaign.problems.append(words.format(count=len(others)))


def databaseSeries(text: str) -> tuple[dict[str, Path], int]:
    """Find series in Slicer's DICOM database.

    Args:
        text: Part of the series description or modality, ignoring case; empty for all.

    Returns:
        The folder of each, by SeriesInstanceUID, and the number of all series in the database.
    """
    database = getattr(slicer, "dicomDatabase", None)
    if database is None or not database.isOpen:
        return {}, 0
    found: dict[str, Path] = {}
    count = 0
    for patient in database.patients():
        for study in database.studiesForPatient(patient):
            for series in database.seriesForStudy(study):
                count += 1
                files = database.filesForSeries(series)
                if files and text.lower() in _described(database, series).lower():
                    found[series] = Path(files[0]).parent
    return found, count


def _described(database: Any, series: str) -> str:
    # Not by `fileValue`, which may read a file of each series: minutes, of a large database.
    modality = database.fieldForSeries("Modality", series) or ""
    return f"{database.descriptionForSeries(series)} {modality}"


def _fileOf(node: Any) -> tuple[Path | None, str]:
    """Return the file or DICOM folder of an unchanged volume, or None, and its series."""
    storage = node.GetStorageNode()
    if node.GetModifiedSinceRead() or node.GetParentTransformNode() is not None:
        return None, ""
    uids = (node.GetAttribute(_INSTANCES) or "").split()
    database = getattr(slicer, "dicomDatabase", None)
    if uids and database is not None and database.isOpen:
        file = database.fileForInstance(uids[0])
        return (Path(file).parent, database.seriesForFile(file)) if file else (None, "")
    isOneFile = storage is not None and storage.GetNumberOfFileNames() < 2  # not a file per slice
    name = storage.GetFileName() if isOneFile else ""
    return (Path(name) if name and Path(name).is_file() else None), ""
