"""Filling of closed contours parallel to an image's voxel planes, such as those of an RTSTRUCT."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.geometry import Floats

# Tolerances for rounding, in slices: a contour from its plane, a plane from a slice's centre.
OFF_PLANE = 0.1
ON_SLICE = 0.1
# A contour with at least this fraction inside another is its hole: manual drawing is inexact.
WITHIN = 0.9
# Most contours of a plane to check for crossings; programs that write more draw none that cross.
MOST_COMPARED = 500
# Most pairs of a plane with meeting bounding boxes; manual contours have few.
MOST_PAIRS = 2000
_MOST_SIDES = 4096  # sides of a polygon compared with all rows at once


@dataclass(frozen=True)
class _Plane:
    """Contours of one plane: its normal axis, its position on that axis, and corners within it."""

    axis: int
    at: float
    polygons: tuple[Floats, ...]


def fill_contours(
    contours: Iterable[Floats], shape: Sequence[int], name: str, *, is_xor: bool = False
) -> tuple[npt.NDArray[np.bool_], list[str]]:
    """Fill a region's closed contours.

    Contours are filled by the even-odd rule at voxel centres, so that a contour within another is a
    hole. Contours that cross each other, as when a region was drawn twice, are joined. If contours
    are not on slices, or skip slices regularly, each slice takes the nearest contour. The last two
    are reported.

    Args:
        contours: Corners, each (N, 3), index (d, h, w); each contour in one voxel plane.
        shape: (D, H, W) of the image.
        is_xor: Whether crossing contours are combined by exclusive or, not joined.

    Returns:
        The mask, (D, H, W), and warnings for the user.

    Raises:
        VolumeError: If a contour is oblique to the image, or planes have several directions.
    """
    mask = np.zeros(tuple(shape), dtype=bool)
    planes = _planes(contours, shape, name)
    if not planes:
        return mask, []
    # 1. Position of each plane, in slices.
    axis = planes[0].axis
    slices = np.moveaxis(mask, axis, 0)
    places = np.array([plane.at for plane in planes])
    # 2. Are the planes on slices, and on every slice?
    off = np.abs(places - np.rint(places)).max()
    gaps = np.diff(places)
    usual = float(np.median(gaps)) if len(gaps) else 1.0
    is_sparse = len(gaps) > 1 and usual >= 1.5 and bool((np.abs(gaps / usual - 1) < 0.1).all())
    # 3. Assign each slice its own plane, or the nearest within half the usual distance.
    is_exact = off <= ON_SLICE and not is_sparse
    if is_exact:
        at = np.rint(places).astype(int)
        used = {int(k): i for i, k in enumerate(at) if 0 <= k < len(slices)}
    else:
        reach = max(usual, 1.0) / 2 + 1e-6
        near = {k: int(np.abs(places - k).argmin()) for k in range(len(slices))}
        used = {k: i for k, i in near.items() if abs(places[i] - k) <= reach}
    # 4. Fill only planes in use: a file may have any number of others.
    crossing = unknown = 0
    for i in sorted(set(used.values())):
        picture, crosses, is_capped = _filled(planes[i], slices.shape[1:], is_xor)
        slices[[k for k, own in used.items() if own == i]] = picture
        crossing, unknown = crossing + crosses, unknown + is_capped
    doubts = []
    if crossing:
        doubts.append(
            f"{name} has contours that cross each other, in {crossing} planes; they are joined"
        )
    if unknown:
        doubts.append(
            f"{name} has too many contours that meet, in {unknown} planes; crossings are not "
            "checked there"
        )
    outside = int(((places < -0.5) | (places > len(slices) - 0.5)).sum())
    if outside:
        doubts.append(f"{outside} contour planes of {name} are outside of the image")
    if is_exact:
        skipped = int((np.rint(gaps) > 1).sum())
        if skipped:
            doubts.append(
                f"{name} has no contour on slices between others, at {skipped} places; "
                "these stay empty"
            )
        return mask, doubts
    where = f"up to {off:.1f} of a slice off the image's slices" if off > ON_SLICE else ""
    every = f"on every {usual:.3g} slices only" if is_sparse else ""
    doubts.append(
        f"{name} has contours {' and '.join(t for t in (where, every) if t)}; each "
        "slice takes the nearest"
    )
    return mask, doubts


def _planes(contours: Iterable[Floats], shape: Sequence[int], name: str) -> list[_Plane]:
    """Group contours by plane, sorted along the axis."""
    is_planar = shape[0] == 1
    grouped: dict[tuple[int, float], dict[bytes, Floats]] = defaultdict(dict)
    for points in contours:
        axis = _axis(points, is_planar, name)
        across = points[:, [a for a in range(3) if a != axis]]
        # The only slice of a planar image takes contours at any position along its normal.
        at = 0.0 if is_planar and axis == 0 else round(float(points[:, axis].mean()), 2)
        at = float(round(at)) if abs(at - round(at)) <= ON_SLICE else at
        # Some programs write a contour twice, which the even-odd rule would cancel.
        grouped[axis, at][_outline(across)] = across
    axes = {axis for axis, _ in grouped}
    if len(axes) > 1:
        raise VolumeError(
            f"{name} has contours in planes of several directions; export it in one direction."
        )
    ordered = sorted(grouped.items(), key=lambda pair: pair[0])
    return [_Plane(axis, at, tuple(p.values())) for (axis, at), p in ordered]


def _outline(corners: Floats) -> bytes:
    """Return a key of a contour that is independent of its first corner and direction."""
    rounded = np.round(corners, 3) + 0.0
    keep = (rounded != np.roll(rounded, 1, axis=0)).any(axis=1)
    rounded = rounded[keep] if keep.any() else rounded[:1]
    start = int(np.lexsort(rounded.T[::-1])[0])
    onward = np.roll(rounded, -start, axis=0)
    backward = np.roll(onward[::-1], 1, axis=0)
    return min(onward.tobytes(), backward.tobytes())


def _axis(points: Floats, is_planar: bool, name: str) -> int:
    """Return the image axis normal to a contour's plane."""
    extent = np.ptp(points, axis=0)
    if is_planar:
        extent[0] = 0.0
    axis = 0 if extent[0] <= OFF_PLANE else int(extent.argmin())
    if extent[axis] > OFF_PLANE:
        raise VolumeError(
            f"{name} has a contour that is oblique to the image's slices, by "
            f"{extent[axis]:.1f} voxels; export it on this image's slices."
        )
    return axis


def _filled(
    plane: _Plane, shape: tuple[int, ...], is_xor: bool
) -> tuple[npt.NDArray[np.bool_], bool, bool]:
    """Fill a plane; return its pixels, whether contours were joined, and whether too many meet."""
    picture = _picture(plane.polygons, shape)
    if is_xor or not 1 < len(plane.polygons) <= MOST_COMPARED:
        return picture, False, False
    # 1. Find pairs that share pixels, neither within the other, in their bounding boxes.
    polygons = plane.polygons
    low = np.array([np.floor(p.min(axis=0)) for p in polygons]).clip(0, shape).astype(int)
    high = np.array([np.floor(p.max(axis=0)) + 1 for p in polygons]).clip(low, shape).astype(int)
    meet = (np.maximum(low[:, None], low) < np.minimum(high[:, None], high)).all(axis=-1)
    pairs = np.argwhere(np.triu(meet, 1)).tolist()
    if len(pairs) > MOST_PAIRS:
        return picture, False, True
    each = {
        i: _picture([polygons[i] - low[i]], tuple((high[i] - low[i]).tolist()))
        for i in sorted({i for pair in pairs for i in pair})
    }
    area = {i: int(own.sum()) for i, own in each.items()}
    crossing = set()
    for i, j in pairs:
        start, stop = np.maximum(low[i], low[j]), np.minimum(high[i], high[j])
        one, other = (each[k][tuple(map(slice, start - low[k], stop - low[k]))] for k in (i, j))
        shared = int((one & other).sum())
        if 0 < shared < WITHIN * min(area[i], area[j]):
            crossing |= {i, j}
    if not crossing:
        return picture, False, False
    # 2. Join these; the others remain holes or islands.
    joined = np.zeros(shape, dtype=bool)
    for i in crossing:
        joined[tuple(map(slice, low[i], high[i]))] |= each[i]
    rest = [polygon for i, polygon in enumerate(polygons) if i not in crossing]
    return joined ^ _picture(rest, shape), True, False


def _picture(polygons: Sequence[Floats], shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Fill polygons by the even-odd rule at pixel centres.

    A pixel is inside if a ray from it along its row crosses an odd number of sides. All rows and
    sides at once, a hundred times as fast as `skimage.draw` for long contours.
    """
    rows, columns = shape
    meets = np.zeros((rows, columns + 1), dtype=np.int32)
    for polygon in polygons:
        start, end = polygon, np.roll(polygon, -1, axis=0)
        first = max(int(np.floor(polygon[:, 0].min())), 0)
        stop = min(int(np.ceil(polygon[:, 0].max())) + 1, rows)
        row = np.arange(first, max(stop, first))[:, None]  # (rows, 1), against sides (1, n)
        for some in range(0, len(start), _MOST_SIDES):
            side = slice(some, some + _MOST_SIDES)
            _add_meets(meets, row, start[side], end[side])
    return np.asarray(np.cumsum(meets[:, :0:-1], axis=1)[:, ::-1] % 2 == 1)


def _add_meets(
    meets: npt.NDArray[np.int32], row: npt.NDArray[Any], start: Floats, end: Floats
) -> None:
    """Count the crossings of sides with the rays of rows, (rows, 1)."""
    at, side = np.nonzero((start[:, 0] > row) != (end[:, 0] > row))
    height = row[at, 0]
    slope = (end - start)[side]
    place = start[side, 1] + slope[:, 1] * (height - start[side, 0]) / slope[:, 0]
    # This many pixels of the row are before the crossing.
    np.add.at(meets, (height, np.ceil(place).clip(0, meets.shape[1] - 1).astype(int)), 1)
