"""Search for DICOM-SEG and RTSTRUCT objects in a file, folder or zip, and their references."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import pydicom
from pydicom.dataset import Dataset

from pumit.errors import VolumeError
from pumit.io.dicom.files import (
    check_deflated,
    find_dicom,
    first_value,
    is_dicom,
    items_of,
    read_header,
    unpack_dicom_zip,
)
from pumit.io.file_part import split_part
from pumit.io.labels.label_file import LabelledSegment
from pumit.io.parser_errors import parsing

logger = logging.getLogger(__name__)

KINDS: dict[str, Literal["DICOM-SEG", "RTSTRUCT"]] = {
    "1.2.840.10008.5.1.4.1.1.66.4": "DICOM-SEG",
    "1.2.840.10008.5.1.4.1.1.66.7": "DICOM-SEG",  # label map
    "1.2.840.10008.5.1.4.1.1.481.3": "RTSTRUCT",
}
_SERIES = (
    "ReferencedFrameOfReferenceSequence",
    "RTReferencedStudySequence",
    "RTReferencedSeriesSequence",
)
_INSTANCE = "ReferencedSOPInstanceUID"
_SOURCES = ("PerFrameFunctionalGroupsSequence", "DerivationImageSequence", "SourceImageSequence")
# Where objects name their source series, instances and frame of reference.
_REFERENCES: dict[str, tuple[list[tuple[str, ...]], ...]] = {
    "DICOM-SEG": (
        [("ReferencedSeriesSequence", "SeriesInstanceUID")],
        [
            (*_SOURCES, _INSTANCE),
            ("ReferencedSeriesSequence", "ReferencedInstanceSequence", _INSTANCE),
        ],
        [("FrameOfReferenceUID",)],
    ),
    "RTSTRUCT": (
        [(*_SERIES, "SeriesInstanceUID")],
        [(*_SERIES, "ContourImageSequence", _INSTANCE)],
        [
            (_SERIES[0], "FrameOfReferenceUID"),
            ("StructureSetROISequence", "ReferencedFrameOfReferenceUID"),
        ],
    ),
}


@dataclass(frozen=True)
class LabelObject:
    """Header of a DICOM-SEG or RTSTRUCT.

    Attributes:
        path: The file, or the zip that holds it.
        series: SeriesInstanceUID of the source scan; empty if not stated.
        patient: PatientID; never shown.
        written: Dates and times as one text, to sort the objects of one scan.
        concatenation: ConcatenationUID; empty if the object is not part of a concatenation.
        number: InConcatenationNumber, from 1; 0 if not stated.
        count: InConcatenationTotalNumber; 0 if not stated.
    """

    path: Path
    kind: Literal["DICOM-SEG", "RTSTRUCT"]
    instance: str
    series: str
    frame_of_reference: str
    patient: str
    instances: frozenset[str]
    segments: tuple[LabelledSegment, ...]
    written: str
    concatenation: str = ""
    number: int = 1
    count: int = 1
    others: tuple[LabelObject, ...] = ()


def label_object(path: Path) -> LabelObject | None:
    """Return the DICOM-SEG or RTSTRUCT of a file, folder or zip; None if there is none.

    Raises:
        VolumeError: If it is damaged, or a folder or zip holds several.
    """
    file, part = split_part(path)
    if file.is_dir():
        return _only(joined(_objects_in(file)), part)
    if not file.is_file():
        return None
    with parsing("file"), file.open("rb") as stream:
        start = stream.read(132)
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        stat = file.stat()
        found = _only(list(_objects_of_zip(file, stat.st_mtime_ns, stat.st_size)), part)
        return None if found is None else replace(found, path=file)
    found = read_label_object(file) if is_dicom(start) else None
    if found is None or not found.concatenation:
        return found
    with parsing("folder"):
        files = sorted(p for p in file.parent.iterdir() if p.is_file() and p != file)
    beside = [found, *(o for o in map(_readable, files) if o)]
    return joined(o for o in beside if o.concatenation == found.concatenation)[0]


def _readable(path: Path) -> LabelObject | None:
    """Return the label object in a file of any kind; None if it has none or cannot be read."""
    try:
        with parsing("file"), path.open("rb") as stream:
            if not is_dicom(stream.read(132)):
                return None
        is_label = str(read_header(path).header.get("SOPClassUID", "")) in KINDS
        return read_label_object(path) if is_label else None
    except (OSError, VolumeError):
        logger.debug("Skipped an unreadable file next to a part of a segmentation.")
        return None


def joined(objects: Iterable[LabelObject]) -> list[LabelObject]:
    """Merge the parts of each concatenation (PS3.3 C.7.6.16.2.2.4) into its first part."""
    found: dict[str, list[LabelObject]] = {}
    for item in objects:
        found.setdefault(item.concatenation or item.instance or str(item.path), []).append(item)
    result: list[LabelObject] = []
    for items in found.values():
        if not items[0].concatenation:
            result += items
            continue
        # Drop duplicates of a part. Parts without a number are kept here and refused later.
        parts = {item.instance or str(item.path): item for item in reversed(items)}
        first, *others = sorted(parts.values(), key=lambda item: item.number)
        instances = frozenset().union(*(item.instances for item in parts.values()))
        result.append(replace(first, instances=instances, others=tuple(others)))
    return result


def require_all_parts(found: LabelObject) -> str:
    """Check that no part of a concatenation is missing.

    Returns:
        A warning for the user if the number of parts is not stated; else empty.

    Raises:
        VolumeError: If a part is missing, or their order is unknown.
    """
    if not found.concatenation:
        return ""
    parts = (found, *found.others)
    numbers = [item.number for item in parts]
    if len(parts) > 1 and (0 in numbers or len(set(numbers)) < len(numbers)):
        raise VolumeError(
            f"The parts of the {found.kind} are not numbered from 1, so their order is unknown; "
            "export it again."
        )
    stated = max(item.count for item in parts)
    count = stated or max(numbers)
    if [number or 1 for number in numbers] != list(range(1, max(count, 1) + 1)):
        raise VolumeError(
            f"Found {len(numbers)} of {count} parts of the {found.kind}; put all of them into "
            "one folder."
        )
    if stated:
        return ""
    there = "1 is" if len(parts) == 1 else f"{len(parts)} are"
    return f"{found.kind}: does not state its number of parts; {there} here, others may be missing"


@lru_cache(maxsize=16)  # each zip is searched before and after its scan is read
def _objects_of_zip(path: Path, modified: int, size: int) -> tuple[LabelObject, ...]:
    """List the label objects in a zip, cached until the file changes."""
    with parsing("DICOM zip"), unpack_dicom_zip(path) as folder:
        return tuple(joined(_objects_in(Path(folder))))


def _objects_in(folder: Path) -> list[LabelObject]:
    labels = [f for f in find_dicom(folder) if str(f.header.get("SOPClassUID", "")) in KINDS]
    return [found for file in labels if (found := read_label_object(file.path))]


def _only(found: list[LabelObject], series: str) -> LabelObject | None:
    if series:
        found = [o for o in found if o.series == series]
    if len(found) > 1:
        names = ", ".join(sorted(o.path.name for o in found)[:6])
        raise VolumeError(f"There are {len(found)} segmentations ({names}); name one of them.")
    return found[0] if found else None


def read_label_object(path: Path) -> LabelObject | None:
    """Read the header of a DICOM-SEG or RTSTRUCT; None for another DICOM object.

    Raises:
        VolumeError: If it is damaged.
    """
    with parsing("DICOM file"), path.open("rb") as stream:
        check_deflated(stream)
        header = pydicom.dcmread(stream, stop_before_pixels=True, force=True)
        kind = KINDS.get(str(first_value(header, "SOPClassUID") or ""))
        if kind is None:
            return None
        if kind == "DICOM-SEG":
            from pumit.io.labels.seg_labels import segments_of

            segments = tuple(segments_of(header))
        else:
            from pumit.io.labels.rt_struct import regions_of

            segments = tuple(regions_of(header).values())
        series, instances, frames = (
            [text for path in paths for text in _texts(header, *path)]
            for paths in _REFERENCES[kind]
        )
        written = "".join(
            str(first_value(header, f"{what}{unit}") or "")
            for what in ("Content", "StructureSet", "Series")
            for unit in ("Date", "Time")
        )
        return LabelObject(
            path=path,
            kind=kind,
            instance=str(first_value(header, "SOPInstanceUID") or ""),
            series=series[0] if len(series) == 1 else "",
            frame_of_reference=next(filter(None, frames), ""),
            patient=str(first_value(header, "PatientID") or ""),
            instances=frozenset(instances) - {""},
            segments=segments,
            written=written,
            concatenation=str(first_value(header, "ConcatenationUID") or ""),
            number=int(first_value(header, "InConcatenationNumber") or 0),
            count=int(first_value(header, "InConcatenationTotalNumber") or 0),
        )


def _texts(header: Dataset, *keywords: str) -> list[str]:
    """Return the last attribute, as text, of all items of the sequences before it."""
    items = items_of(header, *keywords[:-1])
    return [str(first_value(item, keywords[-1]) or "") for item in items]


@contextmanager
def open_label_object(found: LabelObject) -> Iterator[list[Path]]:
    """Yield the files of an object or concatenation; those from a zip are temporary."""
    parts = (found, *found.others)
    with parsing("DICOM file"), found.path.open("rb") as stream:
        is_zip = stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    if not is_zip:
        yield [part.path for part in parts]
        return
    with unpack_dicom_zip(found.path) as folder:
        files = {str(f.header.get("SOPInstanceUID", "")): f.path for f in find_dicom(Path(folder))}
        yield [files[part.instance] for part in parts]
