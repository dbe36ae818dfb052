"""Writer of Slicer's `.seg.nrrd` with names, colours, terminology and overlapping segments."""

import gzip
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pumit.export.labelmap import Labels, label_type
from pumit.export.spacing import written_spacing_mm
from pumit.export.terminology import serialize_terminology
from pumit.geometry import window_of
from pumit.segmentation import Mask, Segment, Segmentation
from pumit.system.files import atomic_path

# Higher levels compress masks hardly better and take longer.
GZIP_LEVEL = 3


def write_seg_nrrd(
    segmentation: Segmentation, path: str | Path, *, is_reviewed: bool = False, reviewer: str = ""
) -> None:
    """Write a Slicer segmentation file on the full grid of the volume.

    Overlapping segments go to separate layers. The algorithm is written as the segment tags that
    Slicer uses for DICOM-SEG.

    Args:
        is_reviewed: Whether a person approved the segments; sets their status to "completed" with
            the current time, instead of "inprogress".

    Raises:
        ExportError: If the file cannot be written.
    """
    review = _review(reviewer) if is_reviewed else {}
    with atomic_path(Path(path)) as temporary, temporary.open("wb") as file:
        save_seg_nrrd(segmentation, file, review=review)


def save_seg_nrrd(
    segmentation: Segmentation, file: BinaryIO, *, review: dict[str, str] | None = None
) -> None:
    """Write the same as `write_seg_nrrd` to an open file or buffer."""
    layers, layer_of = arrange_in_layers(segmentation.segments, segmentation.numbers)
    tags = review or {"Segmentation.Status": "inprogress"}
    header = _header(segmentation, layers, layer_of, tags)
    file.write(header.encode("utf-8"))
    with gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) as packed:
        for part in zip(*layers, strict=True):
            # The list axis varies fastest: slices of (H, W, L).
            stacked = np.stack(part, axis=-1)
            packed.write(stacked.astype(stacked.dtype.newbyteorder("<"), copy=False).tobytes())


def arrange_in_layers(
    segments: tuple[Segment, ...], numbers: tuple[int, ...]
) -> tuple[list[Labels], list[int]]:
    """Put each segment, in order, into the first label map where it overlaps no other.

    Returns:
        Label maps, (D, H, W), with the segments' numbers; and the map of each segment.
    """
    dtype = label_type(max(numbers))
    maps: list[Labels] = []
    layer_of = []
    for number, segment in zip(numbers, segments, strict=True):
        layer = next((i for i, m in enumerate(maps) if not m[segment.mask].any()), len(maps))
        if layer == len(maps):
            maps.append(np.zeros(segment.mask.shape, dtype=dtype))
        maps[layer][segment.mask] = number
        layer_of.append(layer)
    return maps, layer_of


def _review(reviewer: str) -> dict[str, str]:
    # : and | are the separators of tags.
    who = "".join(c if c.isprintable() and c not in ":|" else " " for c in reviewer).strip()
    when = datetime.now().astimezone().isoformat(timespec="minutes").replace(":", "")
    tags = {"Segmentation.Status": "completed", "PUMIT.ReviewedAt": when}
    return tags | ({"PUMIT.Reviewer": who} if who else {})


def _header(
    segmentation: Segmentation,
    layers: Sequence[Labels],
    layer_of: Sequence[int],
    review: dict[str, str],
) -> str:
    volume, segments = segmentation.volume, segmentation.segments
    d, h, w = volume.shape
    steps = volume.direction * np.asarray(written_spacing_mm(volume)[::-1])  # columns W, H, D
    vectors = [_vector(column) for column in steps.T]
    is_wide = layers[0].dtype == np.uint16
    sizes, kinds = [str(n) for n in (w, h, d)], ["domain"] * 3
    if len(layers) > 1:
        sizes, kinds = [str(len(layers)), *sizes], ["list", *kinds]
        vectors = ["none", *vectors]
    fields = [
        "NRRD0004",
        f"type: {'unsigned short' if is_wide else 'unsigned char'}",
        f"dimension: {len(sizes)}",
        "space: left-posterior-superior",
        f"sizes: {' '.join(sizes)}",
        f"space directions: {' '.join(vectors)}",
        f"kinds: {' '.join(kinds)}",
        "endian: little",
        "encoding: gzip",
        f"space origin: {_vector(volume.origin_lps)}",
    ]
    pairs = {
        "Segmentation_ContainedRepresentationNames": "Binary labelmap|",
        "Segmentation_ConversionParameters": "",
        # The former name of the next key, the only one that Slicer before 5.2 reads.
        "Segmentation_MasterRepresentation": "Binary labelmap",
        "Segmentation_SourceRepresentation": "Binary labelmap",
        "Segmentation_ReferenceImageExtentOffset": "0 0 0",
    }
    for index, segment in enumerate(segments):
        tags = {
            "DICOM.SegmentAlgorithmType": segmentation.algorithm.kind,
            "DICOM.SegmentAlgorithmName": segmentation.algorithm.name,
            **review,
            "TerminologyEntry": serialize_terminology(segment),
        }
        place = (segmentation.numbers[index], layer_of[index])
        values = _segment_pairs(segment, index, place, tags)
        pairs |= {f"Segment{index}_{key}": value for key, value in values.items()}
    lines = fields + [f"{key}:={value}" for key, value in pairs.items()]
    return "\n".join(lines) + "\n\n"


def _segment_pairs(
    segment: Segment, index: int, place: tuple[int, int], tags: dict[str, str]
) -> dict[str, str]:
    value, layer = place
    return {
        "ID": f"Segment_{index + 1}",
        "Name": segment.name,
        "NameAutoGenerated": "0",
        "Color": " ".join(f"{part:.6g}" for part in segment.color_rgb),
        "ColorAutoGenerated": "0",
        "Extent": _extent(segment.mask),
        "LabelValue": str(value),
        "Layer": str(layer),
        "Tags": "".join(f"{key}:{value}|" for key, value in tags.items()),
    }


def _extent(mask: Mask) -> str:
    window = window_of(mask)
    assert window is not None
    return " ".join(f"{s.start} {s.stop - 1}" for s in reversed(window))


def _vector(values: object) -> str:
    return "(" + ",".join(repr(float(v)) for v in np.asarray(values)) + ")"
