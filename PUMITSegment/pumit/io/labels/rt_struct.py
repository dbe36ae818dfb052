"""Reader of RT Structure Sets, whose contours are filled on the grid of the source scan."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pydicom
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset

from pumit.errors import VolumeError
from pumit.geometry import Floats
from pumit.io.dicom.codes import color_of
from pumit.io.dicom.files import first_value, items_of
from pumit.io.labels.label_file import (
    LabelFile,
    LabelLayers,
    LabelledSegment,
    unreviewed_sentence,
    with_review,
)
from pumit.io.labels.planar_contours import fill_contours
from pumit.io.parser_errors import parsing
from pumit.volume import Volume

MOST_ROIS = 65_535
_XOR = "CLOSEDPLANAR_XOR"
_FILLED = {"CLOSED_PLANAR", _XOR}


def read_rt_struct(path: Path, image: Volume) -> LabelFile:
    """Read an RTSTRUCT and fill its contours; see `fill_contours` for the rules.

    Args:
        image: The scan; contours must be parallel to its voxel planes.

    Returns:
        ROIs on the image's grid, overlapping ones in several layers; label values count from 1.

    Raises:
        VolumeError: If it cannot be read, a contour is oblique to the image, or all are outside.
    """
    with parsing("RTSTRUCT"):
        struct = pydicom.dcmread(path)
        contours = _contours(struct)
        segments = regions_of(struct)
        if not segments:
            raise VolumeError("The RTSTRUCT names no region of interest; export it again.")
        # 1. Each ROI: contours (N, 3) in mm -> voxel indices -> mask (D, H, W) -> a layer.
        layers = LabelLayers(image.shape, len(segments))
        doubts: list[str] = []
        found = []
        has_contours = anything = False
        for number, segment in segments.items():
            closed, is_xor, ignored = _closed(contours.get(number, []), segment.name)
            if ignored:
                text = f"has {ignored} points or open contours, which enclose no area"
                doubts.append(f"RTSTRUCT: {segment.name} {text}")
            if not closed:  # needs no mask
                found.append(segment)
                continue
            points = [image.world_to_index(each) for each in closed]
            mask, remarks = fill_contours(points, image.shape, segment.name, is_xor=is_xor)
            has_contours = True
            anything |= bool(mask.any())
            doubts += [f"RTSTRUCT: {remark}" for remark in remarks]
            used = np.flatnonzero(mask.any(axis=(1, 2)))
            first, stop = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
            layer = layers.add(segment.value, mask[first:stop], first)
            found.append(replace(segment, layer=layer))
        # 2. Contours of another scan enclose nothing.
        if has_contours and not anything:
            raise VolumeError(
                "no contour of the RTSTRUCT encloses a voxel of the image; it was drawn on another "
                "scan."
            )
        volume = replace(image, array=layers.array(), source=None)
    return with_review(LabelFile(volume, tuple(found), tuple(doubts)))


def regions_of(struct: Dataset) -> dict[int, LabelledSegment]:
    """Return the ROIs by ROINumber, as segments with layer 0."""
    colors = {
        int(first_value(item, "ReferencedROINumber") or 0): color_of(item, "ROIDisplayColor")
        for item in items_of(struct, "ROIContourSequence")
    }
    is_approved = str(first_value(struct, "ApprovalStatus") or "") == "APPROVED"
    found: dict[int, LabelledSegment] = {}
    for item in items_of(struct, "StructureSetROISequence"):
        number = int(item.ROINumber)
        name = " ".join(str(first_value(item, "ROIName") or "").split()) or f"ROI {number}"
        kind = str(first_value(item, "ROIGenerationAlgorithm") or "")
        sentence = "" if is_approved else unreviewed_sentence(kind, "", "")
        color = colors.get(number)
        found[number] = LabelledSegment(len(found) + 1, 0, name, "", color, sentence)
    if len(found) > MOST_ROIS:
        raise VolumeError(
            f"The RTSTRUCT has {len(found)} regions, at most {MOST_ROIS} can be used."
        )
    return found


def _contours(struct: Dataset) -> dict[int, list[Dataset]]:
    """Collect the contours of each ROI, which may have several items in ROIContourSequence."""
    found: dict[int, list[Dataset]] = defaultdict(list)
    for item in items_of(struct, "ROIContourSequence"):
        number = int(first_value(item, "ReferencedROINumber") or 0)
        found[number] += items_of(item, "ContourSequence")
    return found


def _closed(items: list[Dataset], name: str) -> tuple[list[Floats], bool, int]:
    """Return an ROI's closed contours, each (N, 3) LPS mm, and the number of ignored items.

    In between, whether all contours are of type CLOSEDPLANAR_XOR.
    """
    found, kinds, ignored = [], set(), 0
    for item in items:
        kind = str(first_value(item, "ContourGeometricType") or "CLOSED_PLANAR")
        numbers = _numbers(item)
        if kind not in _FILLED or len(numbers) < 9:
            ignored += 1
            continue
        if len(numbers) % 3 or not np.isfinite(numbers).all():
            raise VolumeError(f"A contour of {name!r} is damaged; export the RTSTRUCT again.")
        kinds.add(kind)
        found.append(numbers.reshape(-1, 3))
    return found, kinds == {_XOR}, ignored


def _numbers(item: Dataset) -> Floats:
    """Parse ContourData to a flat array; from raw text, as pydicom's conversion is slow."""
    element = item.get_item("ContourData")
    if isinstance(element, RawDataElement) and isinstance(element.value, bytes):
        return np.array([float(v) for v in element.value.split(b"\\") if v.strip(b" \0")])
    return np.array([float(v) for v in first_value(item, "ContourData") or []])
