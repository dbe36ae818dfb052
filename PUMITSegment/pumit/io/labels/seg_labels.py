"""Reader of DICOM Segmentation objects onto the grid of the source scan."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pydicom
from pydicom.dataset import Dataset, FileDataset

from pumit.errors import VolumeError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.io.dicom.codes import color_of, terminology_of
from pumit.io.dicom.decoding import frames_one_by_one, is_deflated
from pumit.io.dicom.files import DicomFile, first_value, items_of
from pumit.io.dicom.slices import DicomSlice, slices_of
from pumit.io.labels.grid_match import Placement, overlap_of, place
from pumit.io.labels.label_file import (
    LabelFile,
    LabelLayers,
    LabelledSegment,
    distinct_values,
    unreviewed_sentence,
    with_review,
)
from pumit.io.parser_errors import parsing
from pumit.volume import Volume

WHAT = "the DICOM-SEG"
HALF = 0.5  # smallest fraction that counts as inside a segment
LONGEST_NAME = 64


@dataclass(frozen=True)
class _Frame:
    part: int
    index: int
    segment: int
    placement: Placement


def read_dicom_seg(paths: Sequence[Path], image: Volume) -> LabelFile:
    """Read a DICOM-SEG: BINARY, FRACTIONAL (thresholded at one half) or LABELMAP.

    Args:
        paths: The object; for a concatenation all parts in order.
        image: The scan. Each frame must lie on its voxel grid. Frames without a position must
            refer to it, and it must be planar.

    Returns:
        Segments on the image's grid, overlapping ones in several layers; label values are segment
        numbers.

    Raises:
        VolumeError: If it cannot be read, or is on another grid than the image.
    """
    with parsing("DICOM-SEG"):
        parts = [pydicom.dcmread(path) for path in paths]
        seg = parts[0]
        segments = segments_of(seg)
        if not segments:
            raise VolumeError("The DICOM-SEG describes no segment; export it again.")
        frames = [
            frame
            for number, (path, part) in enumerate(zip(paths, parts, strict=True))
            for frame in _frames(DicomFile(path, part), part, number, image)
        ]
        kind = str(first_value(seg, "SegmentationType") or "BINARY")
        missing: list[str] = []
        layers = LabelLayers(image.shape, max(s.value for s in segments))
        if kind == "LABELMAP":
            lost = _add_label_maps(parts, frames, layers, [s.value for s in segments])
            placed = segments
        else:
            placed, missing, lost = _add_segments(parts, kind, frames, layers, segments)
        volume = replace(image, array=layers.array(), source=None)
    doubts = [f"DICOM-SEG: {lost} voxels are outside of the image"] if lost else []
    off = max((f.placement for f in frames), key=lambda p: p.error_voxels).doubt if frames else ""
    if off:
        doubts.append(f"DICOM-SEG: {off}")
    if missing:
        doubts.append(f"DICOM-SEG: has no frame of {', '.join(missing)}")
    return with_review(LabelFile(volume, tuple(placed), tuple(doubts)))


def segments_of(seg: Dataset) -> list[LabelledSegment]:
    """List the segments described in SegmentSequence, all with layer 0."""
    found = []
    for item in items_of(seg, "SegmentSequence"):
        value = int(item.SegmentNumber)
        if not 0 < value <= np.iinfo(np.uint16).max:
            if value == 0:  # the background of a LABELMAP
                continue
            raise VolumeError(
                f"The DICOM-SEG has an invalid segment number, {value}; export it again."
            )
        name = " ".join(str(first_value(item, "SegmentLabel") or "").split())
        name = name or f"Segment {value}"
        terms = terminology_of(item)
        color = color_of(item, "RecommendedDisplayCIELabValue")
        kind = str(first_value(item, "SegmentAlgorithmType") or "")
        model = " ".join(str(first_value(item, "SegmentAlgorithmName") or "").split())
        sentence = unreviewed_sentence(kind, model, "")
        found.append(LabelledSegment(value, 0, name, terms, color, sentence))
    return found


def _frames(file: DicomFile, seg: Dataset, part: int, image: Volume) -> list[_Frame]:
    shared = items_of(seg, "SharedFunctionalGroupsSequence", "SegmentIdentificationSequence")
    groups = items_of(seg, "PerFrameFunctionalGroupsSequence")
    if not groups:
        raise VolumeError(
            "The DICOM-SEG does not state the positions of its frames; export it again."
        )
    found = []
    known: dict[tuple[float, ...], Placement] = {}
    for index, (group, where) in enumerate(zip(groups, slices_of(file), strict=True)):
        items = items_of(group, "SegmentIdentificationSequence") or shared or [Dataset()]
        number = int(first_value(items[0], "ReferencedSegmentNumber") or 0)
        if where.position_lps is None or where.pixel_spacing_mm is None:
            if _is_on_picture(group, where, image):
                whole = Placement((0, 1, 2), (False, False, False), (0, 0, 0), image.shape)
                found.append(_Frame(part, index, number, whole))
            continue
        key = (*where.position_lps, *where.axes_lps.ravel(), *where.pixel_spacing_mm)
        if key not in known:
            known[key] = place(_plane(where), image, WHAT)
        found.append(_Frame(part, index, number, known[key]))
    return found


def _is_on_picture(group: Dataset, where: DicomSlice, image: Volume) -> bool:
    """Return whether a frame without a position belongs to the image, not to another source frame.

    Raises:
        VolumeError: If the image is a volume, or not the source image.
    """
    if not image.is_planar:
        raise VolumeError("The DICOM-SEG has a frame without a position; export it again.")
    sources = items_of(group, "DerivationImageSequence", "SourceImageSequence")
    instances = {str(first_value(s, "ReferencedSOPInstanceUID") or "") for s in sources} - {""}
    known = set(image.source.instances) if image.source else set()
    if where.size[:2] != image.shape[1:] or (instances and known and not instances & known):
        raise VolumeError(
            "The DICOM-SEG has frames without a position and belongs to another picture; use it "
            "with that picture."
        )
    frames = [first_value(s, "ReferencedFrameNumber") for s in sources]
    numbers = {int(n) for f in frames if f is not None for n in np.atleast_1d(f)}
    only = image.source.frame if image.source else None
    return only is None or not numbers or only in numbers


def _plane(where: DicomSlice) -> Volume:
    """Return the grid of a frame as an empty planar volume."""
    rows, columns, _ = where.size
    assert where.position_lps is not None
    assert where.pixel_spacing_mm is not None
    row_mm, column_mm = where.pixel_spacing_mm
    x, y, z = (float(v) for v in where.position_lps)
    direction = np.column_stack([where.axes_lps, where.normal_lps])
    empty = np.broadcast_to(np.uint8(0), (1, rows, columns))
    return Volume(empty, (PLANAR_SLICE_SPACING_MM, row_mm, column_mm), (x, y, z), direction)


def _pixels(parts: Sequence[FileDataset], frames: list[_Frame]) -> Iterator[npt.NDArray[Any]]:
    """Decode frames, (Rows, Columns), in order, one at a time."""
    decoded = []
    for number, part in enumerate(parts):
        _check_length(part)
        indices = [frame.index for frame in frames if frame.part == number]
        decoded.append(frames_one_by_one(part, indices))
    return (next(decoded[frame.part]) for frame in frames)


def _check_length(seg: Dataset) -> None:
    """Refuse an object with missing or truncated pixel data."""
    if "PixelData" not in seg:
        raise VolumeError("The DICOM-SEG has no pixel data; export it again.")
    syntax = seg.file_meta.TransferSyntaxUID
    if is_deflated(syntax) or syntax.is_compressed:
        return
    count = int(seg.Rows) * int(seg.Columns) * int(seg.NumberOfFrames) * int(seg.BitsAllocated)
    if len(seg.PixelData) < (count + 7) // 8:
        raise VolumeError("The DICOM-SEG is truncated; copy or export it again.")


def _add_segments(
    parts: Sequence[FileDataset],
    kind: str,
    frames: list[_Frame],
    layers: LabelLayers,
    segments: list[LabelledSegment],
) -> tuple[list[LabelledSegment], list[str], int]:
    """Add segments to layers; return them, names without a frame, and voxels outside the image."""
    # 1. Group frames by segment.
    least = 1.0
    if kind == "FRACTIONAL":
        least = HALF * float(first_value(parts[0], "MaximumFractionalValue") or 255)
    by_segment: dict[int, list[_Frame]] = defaultdict(list)
    for frame in frames:
        by_segment[frame.segment].append(frame)
    unknown = by_segment.keys() - {s.value for s in segments}
    if unknown:
        raise VolumeError(
            f"The DICOM-SEG has frames of segment {min(unknown)}, which its header does not "
            "describe; export it again."
        )
    # 2. Decode one frame at a time, in the order of segments.
    ordered = [frame for s in segments for frame in by_segment[s.value]]
    pixels = _pixels(parts, ordered)
    placed, missing, lost = [], [], 0
    # 3. Put the slices between a segment's first and last frame, (d, H, W), into a layer.
    for segment in segments:
        own = by_segment[segment.value]
        if not own:
            missing.append(segment.name)
            placed.append(segment)
            continue
        depth = layers.shape[0]
        first = min(max(min(f.placement.start[0] for f in own), 0), depth - 1)
        last = max(f.placement.start[0] + f.placement.shape[0] for f in own)
        mask = np.zeros((max(min(last, depth) - first, 1), *layers.shape[1:]), dtype=bool)
        for frame in own:
            on = next(pixels) >= least
            lost += _merge(mask, first, on, frame.placement, layers.shape)
        placed.append(replace(segment, layer=layers.add(segment.value, mask, first)))
    return placed, missing, lost


def _merge(
    mask: npt.NDArray[np.bool_],
    first: int,
    on: npt.NDArray[np.bool_],
    placement: Placement,
    shape: tuple[int, int, int],
) -> int:
    """Add a frame to the slices of a mask; return its number of pixels outside the image."""
    into, out = overlap_of(placement, shape)
    inside = placement.along_image(on[None])[out]
    depth = slice(into[1].start - first, into[1].stop - first)
    mask[(depth, *into[2:])] |= inside
    return int(np.count_nonzero(on) - np.count_nonzero(inside))


def _add_label_maps(
    parts: Sequence[FileDataset], frames: list[_Frame], layers: LabelLayers, known: list[int]
) -> int:
    """Add LABELMAP frames to one layer; return the number of voxels outside the image."""
    labels = np.zeros(layers.shape, dtype=np.uint16)
    lost = 0
    for frame, values in zip(frames, _pixels(parts, frames), strict=True):
        into, out = overlap_of(frame.placement, layers.shape)
        inside = frame.placement.along_image(values[None])[out]
        labels[into] = np.where(inside > 0, inside, labels[into])
        lost += int(np.count_nonzero(values) - np.count_nonzero(inside))
    undescribed = sorted(set(distinct_values(labels).tolist()) - {0, *known})
    if undescribed:
        raise VolumeError(
            f"The DICOM-SEG has pixels of segment {undescribed[0]}, which its header does not "
            "describe; export it again."
        )
    layers.fill(labels)
    return lost
