"""Scans of a campaign in folders as labs have them: found, recognised, and found again."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pumit.errors import PumitError, VolumeError
from pumit.io.scans import Scan, find_scans

if TYPE_CHECKING:
    from pumit.training.data.classes import ClassValue

# Parts of a file that tell it from others, bytes: at either end only headers and borders are.
_PART, _PARTS = 1 << 16, 64
# Folders of labels beside folders of scans.
_LABEL_FOLDERS = re.compile(r"(labels?|masks?|segmentations?)(tr|ts|val)?", re.IGNORECASE)
_LABEL_NAMES = re.compile(r".*[_\-. ](seg|label|mask|gt|segmentation)", re.IGNORECASE)
_CHANNEL = re.compile(r"(?P<stem>.+)_(?P<channel>\d{4})")


@dataclass(frozen=True)
class FoundScan:
    """A scan that was found, with labels where it has some.

    Attributes:
        name: Name of its file or folder, or of its case.
        images: Files, one for each channel; a folder of DICOM.
        series: SeriesInstanceUID.
        labels: Files with its labels.
        patient: Patient as the data name it; never kept as it is.
        digest: Fingerprint.
        size: Size of the first file, bytes.
    """

    name: str
    images: tuple[Path, ...]
    series: str = ""
    labels: tuple[Path, ...] = ()
    patient: str = ""
    digest: str = ""
    size: int = 0


@dataclass
class FoundScans:
    """All that was found in some paths.

    Attributes:
        scans: Scans in order.
        classes: Classes that a data set names, such as by its dataset.json.
        problems: Files and folders that are no scans, with the reason.
    """

    scans: list[FoundScan] = field(default_factory=list)
    classes: tuple[ClassValue, ...] = ()
    problems: list[str] = field(default_factory=list)


def find_campaign_scans(paths: Sequence[Path]) -> FoundScans:
    """Find scans, with labels where they have some; those without are no fault."""
    found = FoundScans()
    for path in paths:
        if not path.exists():
            raise PumitError(f"There is no file or folder {path.name!r}; check the path.")
        labelled = _labelled(path, found) if path.is_dir() else []
        known = {image for scan in labelled for image in scan.images}
        labels = {label for scan in labelled for label in scan.labels}
        found.scans += [_recognised(scan, found) for scan in labelled]
        try:
            others = find_scans([path])
        except VolumeError as error:
            found.problems.append(str(error))
            continue
        series = {scan.series for scan in labelled if scan.series}
        for scan in _without_labels(others, path, labels):
            images = _channels(scan)
            if images and not known & {*images} and (scan.series or "") not in series - {""}:
                made = FoundScan(scan.name, images, scan.series or "")
                found.scans.append(_recognised(made, found))
    kept = _once((s for s in found.scans if s.digest), found.problems)
    last = Counter(s.name.rpartition("/")[2] for s in kept)
    short = (s.name.rpartition("/")[2] for s in kept)
    found.scans = [
        replace(s, name=name) if last[name] == 1 else s for s, name in zip(kept, short, strict=True)
    ]
    return found


def _labelled(folder: Path, found: FoundScans) -> list[FoundScan]:
    from pumit.io.file_part import split_part
    from pumit.training.data.labelled_set import cases_of_folder

    try:
        cases = cases_of_folder(folder)
    except PumitError as error:
        if (folder / "dataset.json").is_file():  # it says something, and cannot be read
            found.problems.append(str(error))
        return []
    found.classes = found.classes or cases.data.classes
    scans = []
    for case in cases.data.cases:
        parts = [split_part(path) for path in case.images]
        images = tuple(path for path, _ in parts)
        scans.append(FoundScan(case.name, images, parts[0][1], case.labels, case.patient))
    return scans


def _without_labels(scans: Sequence[Scan], folder: Path, labels: set[Path]) -> Iterator[Scan]:
    stems = {scan.path.parent / _stem(scan.path) for scan in scans}
    for scan in scans:
        path = scan.path
        inside = path.relative_to(folder).parts[:-1] if path.is_relative_to(folder) else ()
        if path in labels or any(_LABEL_FOLDERS.fullmatch(part) for part in inside):
            continue
        stem = _stem(path)
        # scan_seg.nii.gz beside scan.nii.gz
        if _LABEL_NAMES.fullmatch(stem):
            base = re.sub(r"[_\-. ][^_\-. ]+$", "", stem)
            if path.parent / base in stems:
                continue
        yield scan


def _stem(path: Path) -> str:
    from pumit.io.scans import IMAGE_SUFFIXES, suffix_of

    return path.name[: len(path.name) - len(suffix_of(path, IMAGE_SUFFIXES) or "")]


def bare_paths(scans: Sequence[tuple[Path, str]]) -> list[str]:
    """Paths of scans from the folder that holds all of them, without endings.

    A series that shares its folder with others has its identifier behind it.
    """
    parts = [p.absolute().with_name(_stem(p).removesuffix("_0000")).parts for p, _ in scans]
    steps = enumerate(zip(*parts, strict=False))
    shortest = min(map(len, parts), default=1)
    common = next((depth for depth, here in steps if len({*here}) > 1), shortest - 1)
    count = Counter(path for path, _ in scans)
    return [
        "/".join((*names[common:], series) if count[path] > 1 else names[common:])
        for names, (path, series) in zip(parts, scans, strict=True)
    ]


def _channels(scan: Scan) -> tuple[Path, ...]:
    """Files of a scan: NAME_0000 with those of its other channels; none for one of these."""
    match = _CHANNEL.fullmatch(_stem(scan.path))
    if scan.path.is_dir() or match is None:
        return (scan.path,)
    ending = scan.path.name[len(_stem(scan.path)) :]
    first = scan.path.with_name(f"{match['stem']}_0000{ending}")
    if match["channel"] != "0000":
        return () if first.is_file() else (scan.path,)
    from pumit.io.labels.channel_files import channel_files

    return tuple(channel_files(first))


def _recognised(scan: FoundScan, found: FoundScans) -> FoundScan:
    """Return the same with its fingerprint and patient; without one where it is no scan."""
    try:
        digest, size, series, patient = fingerprint(scan.images, scan.series)
    except (VolumeError, OSError) as error:
        found.problems.append(f"{scan.name}: {' '.join(str(error).split())}")
        return scan
    return FoundScan(
        _named(scan), scan.images, series, scan.labels, patient or scan.patient, digest, size
    )


def _named(scan: FoundScan) -> str:
    match = _CHANNEL.fullmatch(scan.name)
    return match["stem"] if match and match["channel"] == "0000" else scan.name


def _once(scans: Iterable[FoundScan], problems: list[str]) -> list[FoundScan]:
    """Each scan once, with the labels of any of its finds; copies are told."""
    kept: dict[str, FoundScan] = {}
    for scan in scans:
        first = kept.setdefault(scan.digest, scan)
        if first.images[0].resolve() != scan.images[0].resolve():
            problems.append(f"{scan.name} is a copy of {first.name} and counts once.")
        if scan.labels and not first.labels:
            kept[scan.digest] = scan
    return list(kept.values())


def fingerprint(files: Sequence[Path], series: str = "") -> tuple[str, int, str, str]:
    """Compute a fingerprint by which a scan is recognised in any folder, without reading all of it.

    Args:
        files: Its files, one for each channel, or its folder.

    Returns:
        Fingerprint, size of the first file (0 of DICOM), series and patient as DICOM names them.

    Raises:
        VolumeError: If it is no scan.
        OSError: If it cannot be read.
    """
    first = files[0]
    if first.is_dir():
        uid, patient = _series_in(first, series)
        return hashlib.sha256(uid.encode()).hexdigest()[:24], 0, uid, patient
    content, sizes = hashlib.sha256(), [path.stat().st_size for path in files]
    if not all(sizes):
        raise VolumeError("The file is empty.")
    for path, size in zip(files, sizes, strict=True):
        content.update(b"%d " % size)
        with path.open("rb") as file:
            for at in (*range(0, size, max(_PART, size // _PARTS)), max(0, size - _PART)):
                file.seek(at)
                content.update(file.read(_PART))
    patient = ""
    with first.open("rb") as file:
        is_dicom = file.read(132).endswith(b"DICM")
    if is_dicom:
        from pumit.io.dicom.files import read_header

        header = read_header(first)
        series, patient = header.series_instance_uid, header.patient
    return content.hexdigest()[:24], sizes[0], series, patient


def _series_in(folder: Path, series: str) -> tuple[str, str]:
    """Series and patient of a folder by the first header that fits."""
    from pumit.io.dicom.files import is_dicom, read_header

    for path in _files(folder):
        with suppress(OSError, VolumeError):
            with path.open("rb") as stream:
                if not is_dicom(stream.read(132)):
                    continue
            file = read_header(path)
            if file.is_image and series.partition("#")[0] in ("", file.series_instance_uid):
                uid = series or file.series_instance_uid
                return uid, file.patient
    raise VolumeError("The folder holds no scan.")


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(names) if not name.startswith("."))


def find_again(
    roots: Sequence[Path], digest: str, *, size: int, series: str, others: Sequence[str] = ()
) -> Path | None:
    """Look for a scan that was moved or renamed, by its content.

    Args:
        size: Size of its first file; 0 of DICOM.
        others: Names of its other channels, beside the first one.
    """
    for root in roots:
        if not size and series:
            with suppress(VolumeError):
                for scan in find_scans([root], series=series):
                    if scan.path.is_dir() and fingerprint([scan.path], series)[0] == digest:
                        return scan.path
            continue
        for path in [root] if root.is_file() else _files(root):
            with suppress(OSError, VolumeError):
                files = [path, *map(path.with_name, others)]
                if path.stat().st_size == size and fingerprint(files)[0] == digest:
                    return path
    return None
