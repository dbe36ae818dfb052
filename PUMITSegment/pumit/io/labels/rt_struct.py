"""Regions of an RT structure set, filled on the slices of the scan that they were drawn on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pydicom
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset

from pumit.errors import VolumeError
from pumit.io.dicom.codes import color_of
from pumit.io.dicom.files import first_value
from pumit.io.labels.label_file import LabelFile, LabelledSegment
from pumit.io.labels.label_layers import LabelLayers
from pumit.io.parser_errors import parsing
from pumit.volume import Floats, Volume

# A contour may leave its plane, and a plane a slice's centre, by this part of a slice: rounding.
OFF_PLANE = 0.1
ON_SLICE = 0.1
MOST_ROIS = 65_535
_FILLED = {"CLOSED_PLANAR", "CLOSEDPLANAR_XOR"}


@dataclass(frozen=True)
class _Plane:
    """Contours of one plane: where it lies along its axis, and their corners in it."""

    axis: int
    at: float
    polygons: tuple[Floats, ...]


def read_rt_struct(path: Path, image: Volume) -> LabelFile:
    """Read an RTSTRUCT and fill its contours.

    A voxel is inside where its centre is inside an odd number of a region's contours, so that a
    contour within another is a hole. Where contours do not lie on the image's slices, or regularly
    leave slices out, each slice takes the nearest contour, and that is a doubt.

    Args:
        path: The object.
        image: The scan; contours lie in planes of its voxels.

    Returns:
        Regions on the image's grid, overlapping ones on several layers; their values count from 1.

    Raises:
        VolumeError: If it cannot be read, a contour is oblique to the image, or all lie outside.
    """
    with parsing("RTSTRUCT"):
        struct = pydicom.dcmread(path)
        contours = _contours(struct)
        segments = regions_of(struct)
        if not segments:
            raise VolumeError("The RTSTRUCT names no region of interest; export it again.")
        layers = LabelLayers(image.shape, len(segments))
        doubts: list[str] = []
        found = []
        has_contours = anything = False
        for number, segment in segments.items():
            planes, ignored = _planes(contours.get(number, []), image, segment.name)
            if ignored:
                text = f"has {ignored} points or open lines, which enclose nothing"
                doubts.append(f"RTSTRUCT: {segment.name} {text}")
            mask, remarks = _filled(planes, image, segment.name)
            has_contours |= bool(planes)
            anything |= bool(mask.any())
            doubts += remarks
            used = np.flatnonzero(mask.any(axis=(1, 2)))
            first, stop = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
            layer = layers.add(segment.value, mask[first:stop], first)
            found.append(replace(segment, layer=layer))
        if has_contours and not anything:
            raise VolumeError(
                "no contour of the RTSTRUCT encloses a voxel of the image; it was drawn on another "
                "scan."
            )
        volume = replace(image, array=layers.array(), source=None)
    return LabelFile(volume, tuple(found), tuple(doubts))


def regions_of(struct: Dataset) -> dict[int, LabelledSegment]:
    """Region number to what the header says of it; layers are not known yet."""
    colors = {
        int(first_value(item, "ReferencedROINumber") or 0): color_of(item, "ROIDisplayColor")
        for item in first_value(struct, "ROIContourSequence") or []
    }
    found: dict[int, LabelledSegment] = {}
    for item in first_value(struct, "StructureSetROISequence") or []:
        number = int(item.ROINumber)
        name = " ".join(str(first_value(item, "ROIName") or "").split()) or f"ROI {number}"
        found[number] = LabelledSegment(len(found) + 1, 0, name, "", colors.get(number))
    if len(found) > MOST_ROIS:
        raise VolumeError(
            f"The RTSTRUCT has {len(found)} regions, at most {MOST_ROIS} can be used."
        )
    return found


def _contours(struct: Dataset) -> dict[int, list[Dataset]]:
    return {
        int(first_value(item, "ReferencedROINumber") or 0): list(
            first_value(item, "ContourSequence") or []
        )
        for item in first_value(struct, "ROIContourSequence") or []
    }


def _planes(items: list[Dataset], image: Volume, name: str) -> tuple[list[_Plane], int]:
    """A region's planes in order along their axis, and how many items are no closed contour."""
    grouped: dict[tuple[int, float], dict[bytes, Floats]] = defaultdict(dict)
    ignored = 0
    for item in items:
        kind = str(first_value(item, "ContourGeometricType") or "CLOSED_PLANAR")
        numbers = _numbers(item)
        if kind not in _FILLED or len(numbers) < 9:
            ignored += 1
            continue
        if len(numbers) % 3 or not np.isfinite(numbers).all():
            raise VolumeError(f"A contour of {name!r} is damaged; export the RTSTRUCT again.")
        points = image.world_to_index(numbers.reshape(-1, 3))
        axis = _axis(points, image, name)
        across = points[:, [a for a in range(3) if a != axis]]
        # A planar image's only slice takes contours wherever they lie along its normal.
        at = 0.0 if image.is_planar and axis == 0 else round(float(points[:, axis].mean()), 2)
        at = float(round(at)) if abs(at - round(at)) <= ON_SLICE else at
        # Some programs write a contour twice; filled twice by even-odd it would be nothing.
        grouped[axis, at][across.tobytes()] = across
    axes = {axis for axis, _ in grouped}
    if len(axes) > 1:
        raise VolumeError(
            f"{name} has contours in planes of several directions; export it in one direction."
        )
    ordered = sorted(grouped.items(), key=lambda pair: pair[0])
    return [_Plane(axis, at, tuple(p.values())) for (axis, at), p in ordered], ignored


def _numbers(item: Dataset) -> Floats:
    """A contour's coordinates in a row; read from the text, as pydicom's numbers take long."""
    element = item.get_item("ContourData")
    if isinstance(element, RawDataElement) and isinstance(element.value, bytes):
        return np.array([float(v) for v in element.value.split(b"\\") if v.strip(b" \0")])
    return np.array([float(v) for v in first_value(item, "ContourData") or []])


def _axis(points: Floats, image: Volume, name: str) -> int:
    """The image's axis that a contour's plane is across."""
    extent = np.ptp(points, axis=0)
    if image.is_planar:
        extent[0] = 0.0
    axis = 0 if extent[0] <= OFF_PLANE else int(extent.argmin())
    if extent[axis] > OFF_PLANE:
        raise VolumeError(
            f"{name} has a contour that is oblique to the image's slices, by "
            f"{extent[axis]:.1f} voxels; export it on this image's slices."
        )
    return axis


def _filled(
    planes: list[_Plane], image: Volume, name: str
) -> tuple[npt.NDArray[np.bool_], list[str]]:
    """A region's mask (D, H, W), and what a user should know of how it was filled."""
    mask = np.zeros(image.shape, dtype=bool)
    if not planes:
        return mask, []
    # 1. Each plane's contours as a picture (H, W), and its place among the slices.
    axis = planes[0].axis
    slices = np.moveaxis(mask, axis, 0)
    pictures = [_picture(plane, slices.shape[1:]) for plane in planes]
    places = np.array([plane.at for plane in planes])
    # 2. Do the planes lie on slices, and on every slice?
    off = np.abs(places - np.rint(places)).max()
    gaps = np.diff(places)
    usual = float(np.median(gaps)) if len(gaps) else 1.0
    is_sparse = len(gaps) > 1 and usual >= 1.5 and bool((np.abs(gaps / usual - 1) < 0.1).all())
    doubts = []
    outside = int(((places < -0.5) | (places > len(slices) - 0.5)).sum())
    if outside:
        doubts.append(f"RTSTRUCT: {outside} contour planes of {name} lie outside of the image")
    # 3. If so, each slice takes the picture of its own plane.
    if off <= ON_SLICE and not is_sparse:
        for at, picture in zip(np.rint(places).astype(int), pictures, strict=True):
            if 0 <= at < len(slices):
                slices[at] ^= picture
        skipped = int((np.rint(gaps) > 1).sum())
        if skipped:
            doubts.append(
                f"RTSTRUCT: {name} has no contour on slices between others, at {skipped} places; "
                "these stay empty"
            )
        return mask, doubts
    # 4. Otherwise each slice takes the nearest, within half the usual distance of planes.
    reach = max(usual, 1.0) / 2 + 1e-6
    for k in range(len(slices)):
        nearest = int(np.abs(places - k).argmin())
        if abs(places[nearest] - k) <= reach:
            slices[k] = pictures[nearest]
    where = f"up to {off:.1f} of a slice off the image's slices" if off > ON_SLICE else ""
    every = f"on every {usual:.3g} slices only" if is_sparse else ""
    doubts.append(
        f"RTSTRUCT: {name} has contours {' and '.join(t for t in (where, every) if t)}; each "
        "slice takes the nearest"
    )
    return mask, doubts


def _picture(plane: _Plane, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Pixels whose centres lie inside an odd number of a plane's contours.

    A pixel is inside where a ray from it along its row meets an odd number of sides. All rows and
    sides at once, which is a hundred times as fast as `skimage.draw` for contours of some length.
    """
    rows, columns = shape
    meets = np.zeros((rows, columns + 1), dtype=np.int32)
    for polygon in plane.polygons:
        start, end = polygon, np.roll(polygon, -1, axis=0)
        first = max(int(np.floor(polygon[:, 0].min())), 0)
        stop = min(int(np.ceil(polygon[:, 0].max())) + 1, rows)
        row = np.arange(first, max(stop, first))[:, None]  # (rows, 1), against sides (1, n)
        crosses = (start[:, 0] > row) != (end[:, 0] > row)
        at, side = np.nonzero(crosses)
        height = at + first
        slope = (end - start)[side]
        place = start[side, 1] + slope[:, 1] * (height - start[side, 0]) / slope[:, 0]
        # As many pixels of the row as this lie before the place where the side is met.
        np.add.at(meets, (height, np.ceil(place).clip(0, columns).astype(int)), 1)
    return np.asarray(np.cumsum(meets[:, :0:-1], axis=1)[:, ::-1] % 2 == 1)
