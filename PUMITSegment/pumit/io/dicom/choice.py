"""Selection of the image series and stack of slices to read, or an error that lists the choices."""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pydicom

from pumit.errors import AmbiguousSeriesError, VolumeError
from pumit.io.dicom.files import DicomFile, first_value
from pumit.io.dicom.slices import DicomSlice, frame_count, slices_of
from pumit.system.wording import listed

logger = logging.getLogger(__name__)

# Slices closer than this are at the same position.
SAME_POSITION_MM = 1e-3
# Direction cosines of one stack may differ by this much.
SAME_ORIENTATION = 1e-3
# Most choices listed in an error message.
MAX_LISTED = 12
DESCRIPTION_LENGTH = 64
_POSITION = "ImagePositionPatient"


@dataclass(frozen=True, eq=False)
class Stack:
    """Slices that form one volume.

    Attributes:
        choice: Identifier by which a user selects it: the SeriesInstanceUID, followed by `#1`,
            `#2` ... if the series holds several stacks.
        description: Modality, SeriesDescription and number of slices; no patient data.
    """

    choice: str
    description: str
    slices: list[DicomSlice]


def choose_stack(files: Sequence[DicomFile], series: str | None) -> Stack:
    """Choose the only image series, or the requested one.

    Reports, plans, doses and segmentations are ignored. A series with several images per
    position (echoes, time points) or several orientations is split into stacks.

    Args:
        series: SeriesInstanceUID, with `#k` for the k-th stack of the series; None for the only
            series.

    Raises:
        VolumeError: If there is no image, no image series with that UID, or the series is of
            several patients.
        AmbiguousSeriesError: If several series or stacks match.
    """
    images = [f for f in files if f.is_image]
    if not images:
        kinds = sorted({f.kind for f in files})
        found = f"only {', '.join(kinds)}" if kinds else "no DICOM objects"
        raise VolumeError(
            f"No DICOM image found: {found}; give the folder, zip or file of the scan itself."
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
    patients = {file.patient.casefold() for file in by_series[uid]} - {""}
    if len(patients) > 1:
        raise VolumeError(
            f"The images of one series state {len(patients)} patients (PatientID); put the images "
            "of each patient into a separate folder."
        )
    stacks = _stacks_of_series(uid, by_series[uid])
    if number:
        named = [s for s in stacks if s.choice == series]
        if not named and len(stacks) == 1:
            raise VolumeError(
                f"There is no stack {series}: the series has only one, {stacks[0].description}. "
                f"Choose it as {uid}, if it is the one that is meant."
            )
        stacks = named or stacks
    if len(stacks) > 1:
        described = [(s.choice, s.description) for s in stacks]
        raise _question(described, f"{len(stacks)} stacks of slices in one series")
    return stacks[0]


def _question(described: list[tuple[str, str]], found: str) -> AmbiguousSeriesError:
    return AmbiguousSeriesError(
        f"There are {found}; choose one by its identifier: {_listed(described)}.", described
    )


def _listed(described: list[tuple[str, str]]) -> str:
    return listed((f"{choice} ({text})" for choice, text in described), MAX_LISTED, ";")


def _described(by_series: dict[str, list[DicomFile]]) -> list[tuple[str, str]]:
    return [
        (uid, _description(files[0], sum(frame_count(f.header) for f in files)))
        for uid, files in by_series.items()
    ]


def _description(file: DicomFile, count: int, difference: str = "") -> str:
    header = file.header
    words = [str(first_value(header, k) or "") for k in ("Modality", "SeriesDescription")]
    words.append(difference)
    words.append(f"{count} slice{'s' if count != 1 else ''}")
    parts = [" ".join(word.split())[:DESCRIPTION_LENGTH] for word in words]
    return ", ".join(part for part in parts if part)


def _stacks_of_series(uid: str, files: list[DicomFile]) -> list[Stack]:
    slices = [s for file in _without_copies(files) for s in slices_of(file)]
    if any(s.is_slope_guessed for s in slices):
        logger.warning(
            "The DICOM series states a rescale slope of 0, which would make all voxels equal; 1 "
            "is used instead: the scaling of intensities may be wrong."
        )
    parts = [p for part in _by_matrix(slices) for p in _by_orientation(part)]
    parts = [p for part in parts for p in _by_repetition(part)]
    if len(parts) == 1:
        return [Stack(uid, _description(files[0], len(slices)), slices)]
    return [
        Stack(f"{uid}#{k}", _description(part[0].file, len(part), difference), part)
        for k, (difference, part) in enumerate(parts, start=1)
    ]


def _without_copies(files: list[DicomFile]) -> list[DicomFile]:
    """Drop duplicate objects, which exports of a study often contain.

    An equal SOPInstanceUID does not prove a duplicate: some programs give all slices the same one.
    """
    # Duplicates have equal headers, so compare only objects with the same UID, number and position.
    known: dict[tuple[str, ...], list[DicomFile]] = defaultdict(list)
    for file in sorted(files, key=lambda f: f.path):
        uid = str(first_value(file.header, "SOPInstanceUID") or file.path)
        place = (str(first_value(file.header, k)) for k in ("InstanceNumber", _POSITION))
        same = known[(uid, *place)]
        if not any(_is_copy(file, other) for other in same):
            same.append(file)
    if len({uid for uid, *_ in known}) < sum(map(len, known.values())):
        logger.warning(
            "Different images of the series have the same SOPInstanceUID; all are read, but no "
            "DICOM-SEG can reference them."
        )
    return sorted((f for found in known.values() for f in found), key=lambda f: f.path)


def _is_copy(file: DicomFile, other: DicomFile) -> bool:
    if file.header != other.header:
        return False
    syntaxes = {f.header.file_meta.get("TransferSyntaxUID") for f in (file, other)}
    return len(syntaxes) > 1 or _pixel_bytes(file) == _pixel_bytes(other)


def _pixel_bytes(file: DicomFile) -> list[Any]:
    keywords = ["PixelData", "FloatPixelData", "DoubleFloatPixelData"]
    found = pydicom.dcmread(file.path, specific_tags=list(keywords), force=True)
    return [found.get(keyword) for keyword in keywords]


_Part = tuple[str, list[DicomSlice]]


def _by_matrix(slices: list[DicomSlice]) -> list[_Part]:
    groups: dict[tuple[int, int, int], list[DicomSlice]] = defaultdict(list)
    for s in slices:
        groups[s.size].append(s)
    return [
        (f"{rows} x {columns} pixels" if len(groups) > 1 else "", group)
        for (rows, columns, _), group in groups.items()
    ]


def _by_orientation(part: _Part) -> list[_Part]:
    difference, slices = part
    groups = {i: [s] for i, s in enumerate(slices) if s.is_separate}
    left = np.array([i for i in range(len(slices)) if i not in groups], dtype=np.int64)
    axes = np.stack([s.axes_lps.ravel() for s in slices])
    while len(left):
        is_near = (np.abs(axes[left] - axes[left[0]]) <= SAME_ORIENTATION).all(axis=1)
        groups[int(left[0])] = [slices[i] for i in left[is_near]]
        left = left[~is_near]
    if len(groups) == 1:
        return [(difference, slices)]
    return [(_plane(group[0]), group) for _, group in sorted(groups.items())]


def _plane(s: DicomSlice) -> str:
    if s.is_separate:
        count = frame_count(s.file.header)
        if s.times < count:  # one of several frames
            return f"frame {s.frame + 1} of {count}"
        number = first_value(s.file.header, "InstanceNumber")
        return f"image {number}" if number is not None else "image"
    main = int(np.abs(s.normal_lps).argmax())
    return ("sagittal", "coronal", "axial")[main]


def _offsets(slices: list[DicomSlice]) -> list[float]:
    normal = slices[0].normal_lps
    return [0.0 if s.position_lps is None else float(s.position_lps @ normal) for s in slices]


def _by_position(slices: list[DicomSlice]) -> list[list[DicomSlice]]:
    """Group slices by position, in ascending order along the normal."""
    offsets = _offsets(slices)
    found: list[list[DicomSlice]] = []
    last = -np.inf
    for index in np.argsort(offsets, kind="stable"):
        if offsets[index] - last >= SAME_POSITION_MM:
            found.append([])
        found[-1].append(slices[index])
        last = offsets[index]
    return found


def _by_repetition(part: _Part) -> list[_Part]:
    """Split images at the same positions by attributes that differ, else by time or number.

    If neither tells which images belong together, the series is refused rather than mixed.
    """
    _, slices = part
    places = _by_position(slices)
    most = max(map(len, places))
    if most == 1:
        return [part]
    if len({len(group) for group in places}) > 1:
        return _by_uneven_difference(slices, places)
    # 1. Split by attributes with the same values at each position, such as EchoTime or ImageType.
    parts: list[_Part] = [("", slices)]
    for key in _keys(slices):
        finer = [p for one in parts for p in _by_difference(one, key)]
        if all(_is_whole(one, len(places)) for _, one in finer):
            parts = finer
        if all(len(one) == len(places) for _, one in parts):
            return parts
    # 2. Split the rest by order of time, or of InstanceNumber, at each position.
    return [p for one in parts for p in _by_order(one)]


def _keys(slices: list[DicomSlice]) -> list[str]:
    """List the keywords of all differences, in each slice's order of preference."""
    return list(dict.fromkeys(key for s in slices for key in s.differences))


def _by_difference(part: _Part, key: str) -> list[_Part]:
    before, slices = part
    groups: dict[str, list[DicomSlice]] = defaultdict(list)
    for s in slices:
        groups[s.differences.get(key, "")].append(s)
    if len(groups) == 1:
        return [part]
    start = f"{before}, " if before else ""
    return [(f"{start}{key} {value}", groups[value]) for value in sorted(groups, key=_by_size)]


def _by_size(value: str) -> tuple[float, str]:
    number = _decimal(value)
    return (np.inf if number is None else number, value)


def _is_whole(slices: list[DicomSlice], positions: int) -> bool:
    """Whether all positions have images, the same number at each."""
    places = _by_position(slices)
    return len(places) == positions and len({len(group) for group in places}) == 1


def _by_uneven_difference(slices: list[DicomSlice], places: list[list[DicomSlice]]) -> list[_Part]:
    """Split a series with more images at some positions, such as a few slices scanned twice."""
    counts = {len(group) for group in places}
    for key in _keys(slices):
        parts = _by_difference(("", slices), key)
        # No more parts than images at a position: what differs in every slice separates nothing.
        if len(parts) == max(counts) and all(
            len(group) == 1 for _, one in parts for group in _by_position(one)
        ):
            return parts
    crowded = max(places, key=len)[0].position_lps
    where = "" if crowded is None else f", for example at LPS {np.round(crowded, 2).tolist()}"
    raise VolumeError(
        f"The series has {min(counts)} to {max(counts)} images per slice position{where}; it "
        "mixes acquisitions: put the images of one acquisition into a separate folder."
    )


def _by_order(part: _Part) -> list[_Part]:
    """Make the k-th image of each position one stack, ordered by time or InstanceNumber."""
    before, slices = part
    places = _by_position(slices)
    count = len(places[0])
    if count == 1:
        return [part]
    for order in _TIMES:
        keys = [[order(s) for s in group] for group in places]
        if any(None in row or len(set(row)) < count for row in keys):
            continue
        ranked = [
            [group[i] for i in np.argsort(np.array(row, dtype=np.float64))]
            for row, group in zip(keys, places, strict=True)
        ]
        if order is not _number or _is_monotone(ranked):
            start = f"{before}, " if before else ""
            return [
                (f"{start}image {k + 1} of {count}", [group[k] for group in ranked])
                for k in range(count)
            ]
    raise VolumeError(
        f"The series has {count} images at each slice position and does not state which belong "
        "together: their times or numbers are missing or repeated; put the images of one volume "
        "into a separate folder."
    )


def _is_monotone(ranked: list[list[DicomSlice]]) -> bool:
    """Whether numbers count volume by volume, or position by position."""
    numbers = np.array([[_number(s) for s in group] for group in ranked], dtype=np.float64)
    by_volume = bool((numbers[:, :-1].max(axis=0) < numbers[:, 1:].min(axis=0)).all())
    rows = numbers[np.argsort(numbers[:, 0])]
    return by_volume or bool((rows[:-1].max(axis=1) < rows[1:].min(axis=1)).all())


def _number(s: DicomSlice) -> float | None:
    number = _decimal(first_value(s.file.header, "InstanceNumber"))
    # Frames of one file keep their order.
    return None if number is None else number + s.frame / (frame_count(s.file.header) + 1)


def _header_number(keyword: str) -> Callable[[DicomSlice], float | None]:
    return lambda s: _decimal(first_value(s.file.header, keyword))


def _acquired(s: DicomSlice) -> float | None:
    """Return the date and time of the acquisition as one increasing number."""
    whole = s.differences.get("FrameAcquisitionDateTime")
    whole = whole or first_value(s.file.header, "AcquisitionDateTime")
    if whole is not None:
        return _decimal(str(whole).partition("+")[0].partition("-")[0])
    time = first_value(s.file.header, "AcquisitionTime")
    if time is None:
        return None
    seconds, _, fraction = str(time).replace(":", "").partition(".")
    date = str(first_value(s.file.header, "AcquisitionDate") or "0").replace(".", "")
    return _decimal(f"{date}{seconds.ljust(6, '0')}.{fraction or 0}")


def _decimal(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


# Criteria to order images at one position: temporal and cardiac time, clock, InstanceNumber.
_TIMES: tuple[Callable[[DicomSlice], float | None], ...] = (
    _header_number("TemporalPositionIdentifier"),
    _header_number("TriggerTime"),
    lambda s: _decimal(s.differences.get("NominalCardiacTriggerDelayTime")),
    _header_number("FrameReferenceTime"),
    _acquired,
    _number,
)
