"""DICOM-SEG in which each segment says what made it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pumit.segmentation import Segmentation
from pumit.system.atomic import atomic_path

from PUMITSegmentLib.segments.provenance import Provenance

# DICOM's long string.
_LONGEST = 64


def writeDicomSeg(
    segmentation: Segmentation,
    provenances: Sequence[Provenance],
    path: Path,
    seriesDescription: str,
) -> None:
    """Write a DICOM-SEG; from any thread.

    Args:
        segmentation: Segments on a volume with its DICOM source.
        provenances: Provenance of each segment.
        path: File to write.
        seriesDescription: Description of the new series; cut where it is too long.

    Raises:
        ExportError: If the source cannot be referenced, or the file cannot be written.
    """
    # highdicom takes a second to import.
    from pumit.export.dicom_seg import write_dicom_seg

    description = "".join(c for c in seriesDescription if c.isprintable() and c != "\\")
    # Characters are what the standard counts, but validators count bytes.
    description = description.encode("utf-8", "replace")[:_LONGEST].decode("utf-8", "ignore")
    description = description.strip() or "PUMIT segmentation"
    algorithm = segmentation.algorithm
    same = Provenance(algorithm.kind, algorithm.name, algorithm.version)
    with atomic_path(path) as temporary:
        write_dicom_seg(segmentation, temporary, series_description=description)
        if any((m.type, m.name) != (same.type, same.name) for m in provenances):
            _distinguish(temporary, provenances)


def _distinguish(path: Path, provenances: Sequence[Provenance]) -> None:
    """Give each segment its own algorithm; the file holds that of the first model for all."""
    from pydicom import dcmread

    dataset = dcmread(path)
    for item, provenance in zip(dataset.SegmentSequence, provenances, strict=True):
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
