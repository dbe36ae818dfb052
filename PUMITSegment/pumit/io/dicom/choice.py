"""One stack of slices out of whatever a folder holds, or a clear question which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from pumit.errors import AmbiguousSeriesError, VolumeError
from pumit.io.dicom.files import DicomFile, first_value
from pumit.io.dicom.slices import DicomSlice, slices_of

# Slices closer than this lie at the same position.
SAME_POSITION_MM = 1e-3
# Direction cosines of one stack may differ by this much.
SAME_ORIENTATION = 1e-3
# Longest list in a question.
MAX_LISTED = 12
DESCRIPTION_LENGTH = 64


@dataclass(frozen=True, eq=False)
class Stack:
    """Slices that form one volume.

    Attributes:
        choice: Name by which a user chooses it: the SeriesInstanceUID, followed by `#1`, `#2` ...
            where a series holds several stacks.
        description: Modality, description and number of slices; no patient data.
        slices: Slices in any order.
    """

    choice: str
    description: str
    slices: list[DicomSlice]


def choose_stack(files: Sequence[DicomFile], series: str | None) -> Stack:
    """Choose the only image series, or the one that is named.

    Reports, plans, doses and segmentations are passed over. A series that holds several
    images per position (echoes, times) or several orientations is split into stacks.

    Args:
        files: Every DICOM object found.
        series: SeriesInstanceUID, with `#k` for the k-th stack of a series.

    Raises:
        VolumeError: If there is no image, or none with that identifier.
        AmbiguousSeriesError: If several remain.
    """
    images = [f for f in files if f.is_image]
    if not images:
        kinds = sorted({f.kind for f in files})
        found = f"only {', '.join(kinds)}" if kinds else "no DICOM objects"
        raise VolumeError(
            f"No DICOM image there: {found}; give the folder, zip or file of the scan itself."
        )
    by_series: dict[str, list[DicomFile]] = defaultdict(list)
    for file in images:
        by_series[file.series_instance_uid].append(file)
    chosen, _, number = (series or "").partition("#")
    if series is not None and chosen not in by_series:
        raise VolumeError(
            f"There is no image series {series}; there are {_listed(_described(by_series))}."
        )
    if series is None and len(by_series) > 1:
        raise _question(_described(by_series), f"{len(by_series)} image series")
    uid = chosen if series is not None else next(iter(by_series))
    stacks = _stacks_of_series(uid, by_series[uid])
    if number:
        stacks = [s for s in stacks if s.choice == series] or stacks
    if len(stacks) > 1:
        described = [(s.choice, s.description) for s in stacks]
        raise _question(described, f"{len(stacks)} stacks of slices in one series")
    return stacks[0]


def _question(described: list[tuple[str, str]], found: str) -> AmbiguousSeriesError:
    return AmbiguousSeriesError(
        f"There are {found}; choose one by its identifier: {_listed(described)}.", described
    )


def _listed(described: list[tuple[str, str]]) -> str:
    shown = "; ".join(f"{choice} ({text})" for choice, text in described[:MAX_LISTED])
    more = len(described) - MAX_LISTED
    return shown + (f"; and {more} more" if more > 0 else "")


def _described(by_series: dict[str, list[DicomFile]]) -> list[tuple[str, str]]:
    return [
        (uid, _description(files[0], sum(_frame_count(f) for f in files)))
        for uid, files in by_series.items()
    ]


def _frame_count(file: DicomFile) -> int:
    try:
        return max(int(first_value(file.header, "NumberOfFrames") or 1), 1)
    except (TypeError, ValueError):
        return 1


def _description(file: DicomFile, count: int, difference: str = "") -> str:
    header = file.header
    words = [str(first_value(header, k) or "") for k in ("Modality", "SeriesDescription")]
    words.append(difference)
    words.append(f"{count} slice{'s' if count != 1 else ''}")
    parts = [" ".join(word.split())[:DESCRIPTION_LENGTH] for word in words]
    return ", ".join(part for part in parts if part)


def _stacks_of_series(uid: str, files: list[DicomFile]) -> list[Stack]:
    slices = [s for file in _without_copies(files) for s in slices_of(file)]
    parts = _split([("", slices)], "{0} x {1} pixels", lambda s: s.size)
    parts = [p for part in parts for p in _by_orientation(part)]
    parts = [p for part in parts for p in _by_repetition(part)]
    if len(parts) == 1:
        return [Stack(uid, _description(files[0], len(slices)), slices)]
    return [
        Stack(f"{uid}#{k}", _description(part[0].file, len(part), difference), part)
        for k, (difference, part) in enumerate(parts, start=1)
    ]


def _without_copies(files: list[DicomFile]) -> list[DicomFile]:
    """Drop second copies of one object, which exports of a study often contain."""
    unique = {str(first_value(f.header, "SOPInstanceUID") or f.path): f for f in reversed(files)}
    return sorted(unique.values(), key=lambda f: f.path)


_Part = tuple[str, list[DicomSlice]]


def _split(
    parts: list[_Part], text: str, key: Callable[[DicomSlice], tuple[Hashable, ...]]
) -> list[_Part]:
    result = []
    for difference, slices in parts:
        groups: dict[tuple[Hashable, ...], list[DicomSlice]] = defaultdict(list)
        for s in slices:
            groups[key(s)].append(s)
        for values, group in groups.items():
            result.append((text.format(*values) if len(groups) > 1 else difference, group))
    return result


def _by_orientation(part: _Part) -> list[_Part]:
    difference, slices = part
    groups: list[list[DicomSlice]] = []
    for s in slices:
        if s.position_lps is None:
            # Projection images share no space: each is an image of its own.
            groups.append([s])
            continue
        for group in groups:
            if group[0].position_lps is not None and np.allclose(
                group[0].axes_lps, s.axes_lps, rtol=0, atol=SAME_ORIENTATION
            ):
                group.append(s)
                break
        else:
            groups.append([s])
    if len(groups) == 1:
        return [(difference, slices)]
    return [(_plane(group[0]), group) for group in groups]


def _plane(s: DicomSlice) -> str:
    if s.position_lps is None:
        number = first_value(s.file.header, "InstanceNumber")
        return f"image {number}" if number is not None else "image"
    main = int(np.abs(s.normal_lps).argmax())
    return ("sagittal", "coronal", "axial")[main]


def _offsets(slices: list[DicomSlice]) -> list[float]:
    normal = slices[0].normal_lps
    return [0.0 if s.position_lps is None else float(s.position_lps @ normal) for s in slices]


def _has_repetition(slices: list[DicomSlice]) -> bool:
    offsets = np.sort(_offsets(slices))
    return bool((np.diff(offsets) < SAME_POSITION_MM).any())


def _by_repetition(part: _Part) -> list[_Part]:
    """Split images that share positions by what differs between them."""
    _, slices = part
    if not _has_repetition(slices):
        return [part]
    # The order of a slice's differences is the order of preference.
    keys = dict.fromkeys(key for s in slices for key in s.differences)
    for key in keys:
        groups: dict[str, list[DicomSlice]] = defaultdict(list)
        for s in slices:
            groups[s.differences.get(key, "")].append(s)
        if len(groups) > 1 and not any(_has_repetition(g) for g in groups.values()):
            return [(f"{key} {value}", group) for value, group in groups.items()]
    return _by_order(slices)


def _by_order(slices: list[DicomSlice]) -> list[_Part]:
    """The k-th image of every position is one stack; the series' own order decides."""
    by_offset: list[list[DicomSlice]] = []
    last = -np.inf
    order = np.argsort(_offsets(slices), kind="stable")
    offsets = _offsets(slices)
    for index in order:
        if offsets[index] - last >= SAME_POSITION_MM:
            by_offset.append([])
        by_offset[-1].append(slices[index])
        last = offsets[index]
    counts = {len(group) for group in by_offset}
    if len(counts) > 1:
        crowded = max(by_offset, key=len)[0].position_lps
        where = "" if crowded is None else f", for example at LPS {np.round(crowded, 2).tolist()}"
        raise VolumeError(
            f"The series has {min(counts)} to {max(counts)} images per slice position{where}; "
            "it mixes acquisitions: put the images of one into a folder of their own."
        )
    for group in by_offset:
        group.sort(key=lambda s: (_instance_number(s), s.frame))
    count = counts.pop()
    return [(f"image {k + 1} of {count}", [g[k] for g in by_offset]) for k in range(count)]


def _instance_number(s: DicomSlice) -> int:
    try:
        return int(first_value(s.file.header, "InstanceNumber") or 0)
    except (TypeError, ValueError):
        return 0
