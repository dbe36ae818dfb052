"""Writers of DICOM-SEG, with the algorithm of each segment, and RTSTRUCT."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pumit.segmentation import Segmentation
from pumit.system.files import atomic_path

from PUMITSegmentLib.segments.provenance import Provenance

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
