"""Scans for a campaign from the open scene and from Slicer's DICOM database."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import slicer
from pumit.campaign import Campaign
from pumit.export.volume_file import write_volume_file
from pumit.volume import Volume
from PUMITSlicerLib.terms import uniqueText

from PUMITTrainLib.cases.scene_pairs import scenePairs
from PUMITTrainLib.cases.scene_snapshot import SceneSnapshot, hardenedVolume, snapshot

_INSTANCES = "DICOM.instanceUIDs"
_FOLDER = "scene"


@dataclass(frozen=True, eq=False)
class SceneScan:
    """A volume of the scene.

    Attributes:
        name: Unique name, valid as a file name.
        file: File or DICOM folder that it was read from and not changed since, or None.
        series: SeriesInstanceUID, if the folder may have several.
        volume: Voxels with the node's transforms applied, if there is no file.
        drawn: The scan with its segmentation; None without one.
    """

    name: str
    file: Path | None
    series: str
    volume: Volume | None
    drawn: SceneSnapshot | None

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
        self._folder = folder / _FOLDER
        self._written: dict[tuple[Path, str], SceneScan] = {}
        labels = {pair.volumes[0].GetID(): pair for pair in scenePairs()}
        self.scans: list[SceneScan] = []
        for node in slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode"):
            isScan = node.GetImageData() is not None and not node.GetHideFromEditors()
            if node.IsA("vtkMRMLLabelMapVolumeNode") or not isScan:
                continue
            bare = "".join(c if c.isalnum() or c in "-_ " else "_" for c in node.GetName())
            name = uniqueText(bare.strip() or "scan", {scan.name for scan in self.scans})
            (file, series), pair = _fileOf(node), labels.get(node.GetID())
            drawn = snapshot(name, (node,), pair.label) if pair is not None else None
            volume = hardenedVolume(node) if file is None else None
            self.scans.append(SceneScan(name, file, series, volume, drawn))

    def paths(self) -> Sequence[Path]:
        """Return the files of the scans, written if necessary; on a worker thread."""
        self._written = {(scan.write(self._folder), scan.series): scan for scan in self.scans}
        return list(dict.fromkeys(path for path, _series in self._written))

    def keepDrawn(self, campaign: Campaign) -> None:
        """Save the scene's segmentations as drafts, to be reviewed."""
        for entry in campaign.scans():
            keys = ((entry.path, entry.series.partition("#")[0]), (entry.path, ""))
            scan = next((self._written[key] for key in keys if key in self._written), None)
            if scan is None or scan.drawn is None:
                continue
            folder = Path(tempfile.mkdtemp(prefix="pumit-"))
            try:
                _images, label = scan.drawn.write(folder)
                campaign.save_draft(entry, label)
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def databaseSeries(text: str) -> tuple[list[Path], int]:
    """Find folders of series in Slicer's DICOM database.

    Args:
        text: Part of the series description or modality, ignoring case; empty for all.

    Returns:
        The folders, and the number of all series in the database.
    """
    database = getattr(slicer, "dicomDatabase", None)
    if database is None or not database.isOpen:
        return [], 0
    folders: dict[Path, None] = {}
    count = 0
    for patient in database.patients():
        for study in database.studiesForPatient(patient):
            for series in database.seriesForStudy(study):
                count += 1
                files = database.filesForSeries(series)
                if files and text.lower() in _described(database, series).lower():
                    folders[Path(files[0]).parent] = None
    return list(folders), count


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
    name = storage.GetFileName() if storage is not None else ""
    return (Path(name) if name and Path(name).is_file() else None), ""
