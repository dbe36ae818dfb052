"""Export of segments: DICOM, Slicer's segmentation file, label maps, or statistics.

`collect` copies what is needed out of the scene, quickly and on the main thread. `write` does the
long work on any thread, without the scene.
"""

from __future__ import annotations

import csv
import enum
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pumit
import slicer
from pumit.errors import Cancelled, ExportError
from pumit.export.labelmap import write_labelmap
from pumit.export.terminology import SegmentTerminology, concept_for
from pumit.segmentation import Algorithm, CodedConcept, Segment, Segmentation
from pumit.system.files import atomic_path
from pumit.volume import Volume
from PUMITSlicerLib.label_layers import (
    CopiedSegment,
    copySegments,
    isEmptySegment,
    maskOnVolume,
)
from PUMITSlicerLib.mrml import finite, readVolume
from PUMITSlicerLib.segment_file import FileSegment, writeSegmentationFile
from PUMITSlicerLib.terms import uniqueText
from slicer.i18n import tr as _

from PUMITSegmentLib.exporting.dicom_source import findDicomFiles, withSource
from PUMITSegmentLib.segments.provenance import Provenance, provenanceOf, tagOf
from PUMITSegmentLib.segments.segment_list import segmentIDs

# Lengths of DICOM's value representations LO and ST.
_LONGEST, _LONGEST_TEXT = 64, 1024


def writeDicomSeg(
    segmentation: Segmentation,
    provenances: Sequence[Provenance],
    path: Path,
    seriesDescription: str,
    *,
    descriptions: Sequence[str] = (),
    kind: Literal["BINARY", "LABELMAP"] = "BINARY",
) -> None:
    """Write a DICOM-SEG; from any thread.

    Args:
        segmentation: Segments on a volume with its DICOM source.
        seriesDescription: Description of the new series; truncated if too long.
        descriptions: Description of each segment; empty for none.
        kind: Segmentation type, BINARY or LABELMAP.

    Raises:
        ExportError: If segments of a LABELMAP overlap, the source cannot be referenced, or the
            file cannot be written.
    """
    # highdicom takes a second to import.
    from pumit.export.dicom_seg import write_dicom_seg

    description = _description(seriesDescription)
    algorithm = segmentation.algorithm
    same = Provenance(algorithm.kind, algorithm.name, algorithm.version)
    with atomic_path(path) as temporary:
        write_dicom_seg(segmentation, temporary, kind=kind, series_description=description)
        isDistinct = any((m.type, m.name) != (same.type, same.name) for m in provenances)
        if isDistinct or any(descriptions):
            _distinguish(temporary, provenances, descriptions or [""] * len(provenances))


def writeRtStruct(segmentation: Segmentation, path: Path, seriesDescription: str) -> None:
    """Write an RTSTRUCT; from any thread. See `writeDicomSeg` for arguments and errors."""
    from pumit.export.rt_struct import write_rt_struct

    write_rt_struct(segmentation, path, series_description=_description(seriesDescription))


def _description(text: str) -> str:
    """Return the text truncated and cleaned for DICOM."""
    description = "".join(c for c in text if c.isprintable() and c != "\\")
    # The standard counts characters, but validators count bytes.
    description = description.encode("utf-8", "replace")[:_LONGEST].decode("utf-8", "ignore")
    return description.strip() or "PUMIT segmentation"


def _distinguish(
    path: Path, provenances: Sequence[Provenance], descriptions: Sequence[str]
) -> None:
    """Set each segment's description and algorithm; the file has the first model's for all."""
    from pydicom import dcmread

    dataset = dcmread(path)
    # A LABELMAP also has an item for the background.
    items = [item for item in dataset.SegmentSequence if item.SegmentNumber]
    for item, provenance, text in zip(items, provenances, descriptions, strict=True):
        if description := "".join(c for c in text if c.isprintable() and c != "\\").strip():
            item.SegmentDescription = description[:_LONGEST_TEXT]
        item.SegmentAlgorithmType = provenance.type
        if provenance.type == "MANUAL":
            for keyword in ("SegmentAlgorithmName", "SegmentationAlgorithmIdentificationSequence"):
                if keyword in item:
                    delattr(item, keyword)
            continue
        item.SegmentAlgorithmName = provenance.name
        identification = item.SegmentationAlgorithmIdentificationSequence[0]
        identification.AlgorithmName = provenance.name
        identification.AlgorithmVersion = provenance.version or "unknown"
    dataset.save_as(path, enforce_file_format=True)


# Longest name without suffix: file systems accept 255 bytes.
_LONGEST_BYTES = 180
# Characters and device names that Windows forbids.
_FORBIDDEN = set('<>:"/\\|?*')
_DEVICES = {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10))}
_MOST_COPIES = 10_000


@dataclass(frozen=True)
class Target:
    """Path of an export.

    Attributes:
        folder: Folder, created together with the file.
        name: Name from the user; any characters.
    """

    folder: Path
    name: str
    suffix: str

    def path(self, others: tuple[str, ...] = ()) -> Path:
        """Return the first unused path: `liver.dcm`, then `liver_2.dcm`.

        Args:
            others: Suffixes of accompanying files, whose names must be unused too.

        Raises:
            ExportError: If there are thousands of files of that name.
        """
        stem = safeFileName(self.name.removesuffix(self.suffix))
        for number in range(1, _MOST_COPIES):
            numbered = stem if number == 1 else f"{stem}_{number}"
            names = [f"{numbered}{suffix}" for suffix in (self.suffix, *others)]
            if not any(_exists(self.folder / name) for name in names):
                return self.folder / names[0]
        raise ExportError(_("The folder is full of files of this name; choose another folder."))

    def reserve(self, others: tuple[str, ...] = ()) -> Path:
        """Create the folder and return the path to write.

        Raises:
            ExportError: If the folder cannot be created.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExportError(
                _(
                    "The folder cannot be created; choose an existing one that you have permission "
                    "to write to."
                )
            ) from error
        return self.path(others)


def safeFileName(name: str) -> str:
    """Convert text to a similar file name, without suffix, that is valid on every system."""
    text = "".join("_" if c in _FORBIDDEN or not c.isprintable() else c for c in name)
    text = text.encode("utf-8", "replace")[:_LONGEST_BYTES].decode("utf-8", "ignore")
    text = text.strip(" .")
    if not text.strip("_") or text.partition(".")[0].lower() in _DEVICES:
        return f"segmentation{'_' + text if text else ''}"
    return text


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


# Tag in which Slicer's reader of DICOM-SEG stores a segment's description.
_DESCRIPTION = "Description"
_CODES = ("Category", "Type", "TypeModifier", "Region", "RegionModifier")
COLUMNS = (
    *("LabelValue", "Name", "Color_R", "Color_G", "Color_B", "Color_A"),
    *(f"{code}_{part}" for code in _CODES for part in ("CodingScheme", "CodeValue", "CodeMeaning")),
)


def colorTable(segments: Sequence[tuple[str, tuple[float, float, float], str]]) -> str:
    """Return a colour table for Slicer's colour table reader: CSV with coded terms.

    Args:
        segments: Name, colour in 0..1 and terminology entry of labels 1, 2, ...
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerow([0, "Background", 0, 0, 0, 0, *[""] * (3 * len(_CODES))])
    for label, (name, color, entry) in enumerate(segments, start=1):
        rgb = [round(255 * part) for part in color]
        # Slicer's reader drops a name with a double quote, however it is escaped.
        plain = " ".join(name.replace('"', "'").split())
        rows.writerow([label, plain, *rgb, 255, *_codes(entry)])
    return text.getvalue()


def _codes(entry: str) -> list[str]:
    try:
        meaning = concept_for(entry) if "~" in entry else None
    except ExportError:
        meaning = None
    if meaning is None:
        return [""] * (3 * len(_CODES))
    concepts: list[CodedConcept | None] = [meaning.category, meaning.type, meaning.type_modifier]
    concepts += [meaning.anatomic_region, meaning.region_modifier]
    return [part for c in concepts for part in ((c.scheme, c.value, c.meaning) if c else [""] * 3)]


class Format(enum.Enum):
    """Format of an exported file; the value is its file name suffix."""

    DICOM_SEG = ".dcm"
    DICOM_LABELMAP = ".labelmap.dcm"
    RT_STRUCT = ".rtstruct.dcm"
    SEG_NRRD = ".seg.nrrd"
    NIFTI = ".nii.gz"
    NRRD = ".nrrd"
    STATISTICS_CSV = ".statistics.csv"
    STATISTICS_JSON = ".statistics.json"

    @property
    def isDicom(self) -> bool:
        """Whether the file references the images of a DICOM series."""
        return self.value.endswith(".dcm")

    @property
    def isLabelMap(self) -> bool:
        """Whether each voxel has one label, with the names in a separate table."""
        return self in (Format.NIFTI, Format.NRRD)

    @property
    def isStatistics(self) -> bool:
        """Whether the file has statistics of each segment and no voxels."""
        return self in (Format.STATISTICS_CSV, Format.STATISTICS_JSON)


@dataclass(frozen=True)
class ExportChoice:
    """The user's choices for an export.

    Attributes:
        folder: Folder to write to; created if it does not exist.
        fileName: File name without suffix; empty for the segmentation's name.
        onlyVisible: Whether to skip hidden segments.
    """

    format: Format
    folder: Path
    fileName: str = ""
    onlyVisible: bool = False


@dataclass(frozen=True, eq=False)
class Collected:
    """Input of `write`, copied out of the scene.

    Attributes:
        segments: Segments in the order of the table.
        volume: The volume's geometry, with its voxels for statistics only; None if the format
            needs none.
        dicomFiles: Files of the volume, in the order in which they were read.
        seriesDescription: Description of a DICOM series.
    """

    choice: ExportChoice
    target: Target
    segments: tuple[CopiedSegment, ...]
    volume: Volume | None
    dicomFiles: tuple[Path, ...]
    seriesDescription: str


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    format: Format
    path: Path
    colorTablePath: Path | None = None


def chosenSegmentIDs(segmentationNode, onlyVisible: bool) -> list[str]:
    """Return the IDs of the segments to export, in the order of the table."""
    IDs = segmentIDs(segmentationNode)
    display = segmentationNode.GetDisplayNode() if segmentationNode is not None else None
    if not onlyVisible or display is None:
        return IDs
    return [segmentID for segmentID in IDs if display.GetSegmentVisibility(segmentID)]


def exportedSegmentIDs(segmentationNode, onlyVisible: bool) -> list[str]:
    """Return the IDs of the chosen segments that are not empty."""
    chosen = chosenSegmentIDs(segmentationNode, onlyVisible)
    return [segmentID for segmentID in chosen if not isEmptySegment(segmentationNode, segmentID)]


def collect(segmentationNode, volumeNode, choice: ExportChoice, database=None) -> Collected:
    """Copy what an export needs out of the scene; main thread only.

    Args:
        volumeNode: Volume that was segmented; not needed for `.seg.nrrd`.

    Raises:
        ExportError: If there is nothing to export.
        VolumeError: If the volume cannot be used.
    """
    if segmentationNode is None:
        raise ExportError(_("There is no segmentation; segment something first."))
    IDs = exportedSegmentIDs(segmentationNode, choice.onlyVisible)
    if not IDs:
        raise ExportError(_("There is no segment to export; show one, or segment something."))
    isPlaced = choice.format is not Format.SEG_NRRD
    segments = copySegments(segmentationNode, IDs, volumeNode if isPlaced else None)
    files: tuple[Path, ...] = ()
    if choice.format.isDicom:
        files = findDicomFiles(volumeNode, database).paths
    if not isPlaced:
        _harden(segmentationNode, {id(each.layer): each.layer for each in segments}.values())
    name = segmentationNode.GetName() or _("Segmentation")
    volume = None
    if choice.format.isStatistics:
        volume = readVolume(volumeNode, isFinite=False)
    elif isPlaced:
        volume = _geometry(volumeNode)
    return Collected(
        choice,
        Target(choice.folder, choice.fileName or name, choice.format.value),
        segments,
        volume,
        files,
        name,
    )


def _geometry(volumeNode) -> Volume:
    volume = readVolume(volumeNode, isFinite=False)
    # Geometry without voxels: the file does not depend on them.
    nothing = np.broadcast_to(np.zeros((), np.uint8), volume.shape)
    return Volume(nothing, volume.spacing_mm, volume.origin_lps, volume.direction)


def _harden(segmentationNode, layers) -> None:
    """Apply the segmentation's parent transform to the copies."""
    if segmentationNode.GetParentTransformNode() is None:
        return
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    for layer in layers:
        logic.ApplyParentTransformToOrientedImageData(segmentationNode, layer.image, False)


def write(collected: Collected, isCancelled: Callable[[], bool] = lambda: False) -> Exported:
    """Write the file; from any thread.

    The file is written next to its target and renamed. An existing file is never replaced: the new
    one gets a number appended to its name.

    Args:
        isCancelled: Function called between steps; True stops the export.

    Raises:
        ExportError: If the format cannot represent the segments, or the file cannot be written.
        Cancelled: If the user cancelled; no file is left.
    """
    format_ = collected.choice.format
    others = (".csv",) if format_.isLabelMap else ()
    path = collected.target.reserve(others)
    _goOn(isCancelled)
    if format_ is Format.SEG_NRRD:
        writeSegmentationFile(
            [
                FileSegment(s.segmentID, s.segment, s.layer.image, s.label)
                for s in collected.segments
            ],
            path,
        )
        return Exported(format_, path)
    if format_.isDicom:
        volume = withSource(collected.volume, collected.dicomFiles)
        segmentation = _segmentation(collected, volume, isCancelled)
        if format_ is Format.RT_STRUCT:
            writeRtStruct(segmentation, path, collected.seriesDescription)
            return Exported(format_, path)
        made = [provenanceOf(each.segment) for each in collected.segments]
        writeDicomSeg(
            segmentation,
            made,
            path,
            collected.seriesDescription,
            descriptions=[tagOf(each.segment, _DESCRIPTION) for each in collected.segments],
            kind="LABELMAP" if format_ is Format.DICOM_LABELMAP else "BINARY",
        )
        return Exported(format_, path)
    segmentation = _segmentation(collected, collected.volume, isCancelled)
    if format_.isStatistics:
        from pumit.export.statistics import segment_statistics, write_statistics

        write_statistics(segment_statistics(finite(collected.volume), segmentation.segments), path)
        return Exported(format_, path)
    rows = [
        (s.segment.GetName(), s.segment.GetColor(), s.segment.GetTerminology() or "")
        for s in collected.segments
    ]
    table = path.with_name(path.name.removesuffix(format_.value) + ".csv")
    write_labelmap(segmentation, path, overlap="later_wins")
    with atomic_path(table) as temporary:
        temporary.write_text(colorTable(rows), encoding="utf-8")
    return Exported(format_, path, table)


def _goOn(isCancelled: Callable[[], bool]) -> None:
    if isCancelled():
        raise Cancelled(_("The export was cancelled; nothing was written."))


def _segmentation(
    collected: Collected, volume: Volume, isCancelled: Callable[[], bool]
) -> Segmentation:
    onVolume: dict[int, np.ndarray] = {}
    segments: list[Segment] = []
    for given in collected.segments:
        _goOn(isCancelled)
        layer = given.layer
        if id(layer) not in onVolume:
            onVolume[id(layer)] = layer.labelsOnVolume()
        mask = maskOnVolume(onVolume[id(layer)], layer.box, given.label, volume.shape)
        name = given.segment.GetName()
        if not collected.choice.format.isDicom:
            # The names go into a table, which accepts any name.
            name = uniqueText(_plain(name), {segment.name for segment in segments})
        meaning = _meaning(given.segment.GetTerminology() or "")
        red, green, blue = given.segment.GetColor()
        segments.append(
            Segment(
                name,
                mask,
                meaning.category,
                meaning.type,
                meaning.type_modifier,
                meaning.anatomic_region,
                meaning.region_modifier,
                (red, green, blue),
            )
        )
    return Segmentation(volume, tuple(segments), _algorithm(collected.segments))


def _plain(name: str) -> str:
    return "".join(c for c in name if c.isprintable() and c != "\\")[:56].strip() or "Segment"


def _meaning(entry: str) -> SegmentTerminology:
    try:
        return concept_for(entry) if "~" in entry else SegmentTerminology()
    except ExportError:
        return SegmentTerminology()


def _algorithm(segments: tuple[CopiedSegment, ...]) -> Algorithm:
    """Return the first model involved, or this program if there was none."""
    for segment in segments:
        made = provenanceOf(segment.segment)
        if made.type != "MANUAL":
            return Algorithm(made.name, made.version or "unknown", made.type)
    return Algorithm("PUMIT", pumit.__version__)
