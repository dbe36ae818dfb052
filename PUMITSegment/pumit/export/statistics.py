"""Segment statistics: size, intensities, position and diameters, as CSV or JSON."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage
from scipy.spatial import ConvexHull
from scipy.spatial.distance import pdist, squareform

from pumit.errors import ExportError
from pumit.export.mask_contours import outer_contours
from pumit.geometry import Floats, Triple
from pumit.segmentation import Mask, Segment
from pumit.system.files import write_text
from pumit.system.wording import digits_for
from pumit.volume import Volume

# Pixel spacing of a 2D image that states none.
_NO_PIXEL_SIZE_MM = (1.0, 1.0)
_LPS_TO_RAS = np.array([-1.0, -1.0, 1.0])


@dataclass(frozen=True)
class SegmentStatistics:
    """Statistics of one segment; positions are RAS, as in Slicer.

    Attributes:
        volume_mm3: None for a 2D image, as `volume_ml`.
        mean: Mean intensity; all intensities are in the units of the scan, and None if a voxel is
            not a finite number.
        standard_deviation: Population standard deviation of the intensities.
        box_lower_ras_mm: Lower corner of the bounding box, which includes whole voxels.
        long_axis_mm: Longest diameter of one connected component within one slice; None for a 2D
            image without a pixel size, such as a photograph.
        perpendicular_mm: Longest chord perpendicular to it, in the same component and slice.
        long_axis_slice: Number of that slice, from 1.
        intensity_unit: Unit of the intensities if DICOM states it, such as HU; else empty.
    """

    name: str
    code: str
    voxels: int
    volume_mm3: float | None
    volume_ml: float | None
    mean: float | None
    standard_deviation: float | None
    median: float | None
    first_quartile: float | None
    third_quartile: float | None
    interquartile_range: float | None
    minimum: float | None
    maximum: float | None
    box_lower_ras_mm: Triple
    box_upper_ras_mm: Triple
    centroid_ras_mm: Triple
    long_axis_mm: float | None
    perpendicular_mm: float | None
    long_axis_slice: int
    long_axis_from_ras_mm: Triple
    long_axis_to_ras_mm: Triple
    intensity_unit: str = ""


def segment_statistics(
    volume: Volume, segments: Sequence[Segment], *, channel: int = 0
) -> list[SegmentStatistics]:
    """Measure segments.

    Diameters are measured within slices (first axis of the volume), between contours half-way
    between voxel centres inside and outside.

    Args:
        segments: Segments on the volume's grid; they may overlap.

    Raises:
        ExportError: If the scan does not have the channel.
    """
    if not 0 <= channel < volume.channels:
        raise ExportError(
            f"The scan has {volume.channels} channels, numbered from 0; there is no channel "
            f"{channel}."
        )
    array = volume.array if volume.array.ndim == 3 else volume.array[channel]
    return [_statistics(volume, array, segment) for segment in segments]


def write_statistics(statistics: Sequence[SegmentStatistics], path: str | Path) -> None:
    """Write one row per segment as `.csv`, or one object per segment as `.json`.

    Positions are three columns in CSV, `..._r_mm`, `..._a_mm` and `..._s_mm`, and lists of three
    numbers in JSON.

    Raises:
        ExportError: If the suffix is unknown, or the file cannot be written.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in (".csv", ".json"):
        raise ExportError(f"Statistics are written as .csv or .json, got {target.suffix!r}.")
    rows = [asdict(each) for each in statistics]
    text = json.dumps(rows, indent=1) + "\n" if suffix == ".json" else _table(rows)
    write_text(target, text, what="The statistics")


def _table(rows: Sequence[dict[str, Any]]) -> str:
    columns = [name for f in fields(SegmentStatistics) for name in _columns(f.name)]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    for row in rows:
        values: list[Any] = []
        for value in row.values():
            values += value if isinstance(value, tuple) else ["" if value is None else value]
        table.writerow(values)
    return text.getvalue()


def _columns(name: str) -> list[str]:
    if not name.endswith("_ras_mm"):
        return [name]
    return [f"{name.removesuffix('_ras_mm')}_{axis}_mm" for axis in "ras"]


def _statistics(volume: Volume, array: Any, segment: Segment) -> SegmentStatistics:
    box = ndimage.find_objects(segment.mask.view(np.uint8))[0]
    mask = segment.mask[box]
    values = array[box][mask].astype(np.float64)
    start = np.array([side.start for side in box])
    lower, upper = _bounds_lps(volume, mask, start)
    first, third = (float(v) for v in np.percentile(values, (25, 75)))
    centroid = volume.index_to_world(start + np.array(ndimage.center_of_mass(mask)))
    k, axis_ends, long_mm, perpendicular_mm = _long_axis(mask, volume.spacing_mm[1:])
    ends = volume.index_to_world(np.column_stack([np.full(2, k), axis_ends]) + start)
    voxel_mm3 = float(np.prod(volume.spacing_mm))
    mm3 = None if volume.is_planar else len(values) * voxel_mm3
    is_sized = not (volume.is_planar and volume.spacing_mm[1:] == _NO_PIXEL_SIZE_MM)
    corners = np.sort([lower * _LPS_TO_RAS, upper * _LPS_TO_RAS], axis=0)
    places = [*corners, centroid * _LPS_TO_RAS, *(ends * _LPS_TO_RAS)]
    digits = digits_for(volume.spacing_mm, 4)
    box_lower, box_upper, middle, start_ras, end_ras = (_triple(p, digits) for p in places)
    return SegmentStatistics(
        segment.name,
        f"{segment.type.scheme}:{segment.type.value}",
        len(values),
        _rounded(mm3),
        _rounded(None if mm3 is None else mm3 / 1000),
        _rounded(values.mean()),
        _rounded(values.std()),
        _rounded(np.median(values)),
        _rounded(first),
        _rounded(third),
        _rounded(third - first),
        _rounded(values.min()),
        _rounded(values.max()),
        box_lower,
        box_upper,
        middle,
        _rounded(long_mm if is_sized else None),
        _rounded(perpendicular_mm if is_sized else None),
        int(k + start[0]) + 1,
        start_ras,
        end_ras,
        volume.source.intensity_unit if volume.source else "",
    )


def _rounded(value: Any) -> Any:
    """Round to ten significant digits, without -0.0; None for what JSON cannot hold."""
    return None if value is None or not np.isfinite(value) else float(f"{float(value):.10g}") + 0.0


def _triple(values: Floats, digits: int) -> Triple:
    x, y, z = (float(v) + 0.0 for v in np.round(values, digits))
    return (x, y, z)


def _bounds_lps(volume: Volume, mask: Mask, start: Floats) -> tuple[Floats, Floats]:
    """Return the bounding box of a mask in LPS mm, whole voxels included."""
    # Coordinates are monotone along a row of voxels, so its ends are enough.
    rows = np.argwhere(mask.any(axis=2))
    lines = mask[tuple(rows.T)]
    last = mask.shape[2] - 1
    ends = (lines.argmax(axis=1), last - lines[:, ::-1].argmax(axis=1))
    index = np.concatenate([np.column_stack([rows, end]) for end in ends]) + start
    places = volume.index_to_world(index)
    # A 2D image has no thickness.
    steps = np.array([0.0 if volume.is_planar else volume.spacing_mm[0], *volume.spacing_mm[1:]])
    half = np.abs(volume.direction) @ (steps[::-1] / 2)
    return places.min(axis=0) - half, places.max(axis=0) + half


def _long_axis(mask: Mask, spacing_mm: tuple[float, ...]) -> tuple[int, Floats, float, float]:
    """Find the longest diameter of a component within a slice, and its perpendicular chord.

    Returns:
        The slice, the ends of the diameter, (2, 2), index (h, w), and both lengths, mm.
    """
    spacing = np.asarray(spacing_mm)
    best: tuple[float, int, Floats, Floats] | None = None
    for k in np.flatnonzero(mask.any(axis=(1, 2))).tolist():
        for outline in outer_contours(mask[k]):
            corners = outline * spacing
            extent = float(np.linalg.norm(np.ptp(corners, axis=0)))
            if best is not None and extent <= best[0]:
                continue
            hull = corners[ConvexHull(corners).vertices]
            apart = squareform(pdist(hull))
            a, b = np.unravel_index(int(apart.argmax()), apart.shape)
            if best is None or apart[a, b] > best[0]:
                best = (float(apart[a, b]), k, hull[[a, b]], corners)
    assert best is not None
    long_mm, k, ends, corners = best
    along = (ends[1] - ends[0]) / long_mm
    return k, ends / spacing, long_mm, _widest_chord(corners, along)


def _widest_chord(corners: Floats, along: Floats) -> float:
    """Return the longest chord of a polygon, (N, 2), perpendicular to a direction."""
    place = corners @ along
    height = corners @ np.array([-along[1], along[0]])
    next_place, next_height = np.roll(place, -1), np.roll(height, -1)
    # Chord length is linear between vertices, so the longest chord is beside a vertex.
    reach = float(np.ptp(place)) * 1e-9
    longest = 0.0
    for at in np.concatenate([place - reach, place + reach]):
        crosses = np.flatnonzero((place > at) != (next_place > at))
        share = (at - place[crosses]) / (next_place[crosses] - place[crosses])
        met = np.sort(height[crosses] + share * (next_height[crosses] - height[crosses]))
        # Crossings 1 to 2, 3 to 4 and so on are inside.
        if len(met):
            longest = max(longest, float((met[1::2] - met[::2]).max()))
    return longest
