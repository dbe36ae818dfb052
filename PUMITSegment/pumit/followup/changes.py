"""Matching and measurement of lesions at two dates: same, new, gone, merged or split."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import ndimage
from scipy.sparse.csgraph import connected_components
from scipy.spatial import ConvexHull, QhullError
from scipy.spatial.distance import pdist

from pumit.export.statistics import SegmentStatistics, segment_statistics
from pumit.followup.lesions import (
    LEAST_VOXELS,
    CarriedLesion,
    KeptMask,
    Lesion,
    Mask,
    lesions_of,
)
from pumit.geometry import Floats, window_of
from pumit.segmentation import Segment
from pumit.volume import Volume

Change = Literal[
    "stable", "grown", "shrunk", "new", "gone", "merged", "split", "regrouped", "not shown"
]

# RECIST 1.1: at least 20 % and 5 mm longer, or 30 % shorter.
_GROWN, _GROWN_MM, _SHRUNK = 1.2, 5.0, 0.7
# Overlap, as a fraction of the smaller one, from which two segments hold the same lesion.
_SAME_SHARE = 0.3
# Overlap, as a fraction of the smaller one, that links an earlier and a later lesion.
_LINKED_SHARE = 0.1


@dataclass(frozen=True)
class Measure:
    """Size of lesions at one date.

    Attributes:
        long_axis_mm: Sum of the longest diameters within a slice, as in RECIST.
        perpendicular_mm: Perpendicular diameter in the same slice, of the longest lesion.
    """

    volume_ml: float = 0.0
    long_axis_mm: float = 0.0
    perpendicular_mm: float = 0.0
    longest_mm: float = 0.0


@dataclass(frozen=True, eq=False)
class LesionChange:
    """Change of a lesion, or of a group of linked lesions.

    Attributes:
        name: Names of the earlier lesions, or of the new ones.
        remark: What the user should check; empty for nothing.
    """

    name: str
    change: Change
    before: Measure
    after: Measure
    remark: str = ""

    @property
    def volume_change(self) -> float | None:
        """Relative change of volume; None if a volume is unknown."""
        if not self.before.volume_ml or self.change == "not shown":
            return None
        return self.after.volume_ml / self.before.volume_ml - 1


def changes_of(
    carried: Sequence[CarriedLesion],
    later: Sequence[tuple[str, Mask]],
    *,
    earlier_volume: Volume,
    later_volume: Volume,
    tolerance_mm: float,
) -> list[LesionChange]:
    """Match lesions by position, and measure them.

    Args:
        later: Names and masks of the later segments. A segment may hold several lesions, and two
            segments the same one.
        tolerance_mm: Largest distance of a later lesion from the propagated position.
    """
    pieces = lesions_of([(name, mask) for name, mask in later if mask.any()])
    links = _links(carried, pieces, later, later_volume.spacing_mm, tolerance_mm)
    return [
        _change(
            [carried[i] for i in olds],
            _distinct([pieces[i] for i in news]),
            earlier_volume,
            later_volume,
        )
        for olds, news in _groups(len(carried), len(pieces), links)
    ]


def _links(
    carried: Sequence[CarriedLesion],
    pieces: list[Lesion],
    later: Sequence[tuple[str, Mask]],
    spacing_mm: Sequence[float],
    tolerance_mm: float,
) -> set[tuple[int, int]]:
    """Return pairs of earlier lesions and pieces; what is left of a lesion is added to these."""
    links: set[tuple[int, int]] = set()
    for i, old in enumerate(carried):
        if old.found in ("gone", "not shown"):
            continue
        kept = old.kept if old.kept.count else old.kept_place
        for j, piece in enumerate(pieces):
            least = min(kept.count, piece.kept.count)
            if kept.shared(piece.kept) >= max(1, _LINKED_SHARE * least):
                links.add((i, j))
    # A speck is no lesion, but an earlier lesion of which one is left is not gone.
    for i, old in enumerate(carried):
        if old.found not in ("gone", "not shown") and all(i != k for k, _ in links):
            left = _left_of(old.kept if old.kept.count else old.kept_place, later)
            if left is not None:
                links.add((i, len(pieces)))
                pieces.append(left)
    # Link the rest to unlinked components within the tolerance, the nearest pairs first.
    free = [j for j in range(len(pieces)) if all(j != k for _, k in links)]
    near: list[tuple[float, int, int]] = []
    for i, old in enumerate(carried):
        if any(i == k for k, _ in links) or old.found in ("gone", "not shown") or not free:
            continue
        place = old.kept_place
        if not place.count:
            continue
        window = place.window_with(tuple(int(tolerance_mm / s) + 1 for s in spacing_mm))
        away = ndimage.distance_transform_edt(~place.within(window), sampling=spacing_mm)
        apart = ((away[pieces[j].kept.within(window)].min(initial=np.inf), j) for j in free)
        near += [(float(mm), i, j) for mm, j in apart if mm <= tolerance_mm]
    for _, i, j in sorted(near):
        if all(i != other and j != piece for other, piece in links):
            links.add((i, j))
    return links


def _left_of(kept: KeptMask, later: Sequence[tuple[str, Mask]]) -> Lesion | None:
    """Return the specks of the later segments that meet an earlier lesion, or None."""
    window = kept.window_with((LEAST_VOXELS,) * 3)
    for name, mask in later:
        pieces, _ = ndimage.label(mask[window], np.ones((3, 3, 3)))
        sizes = np.bincount(pieces.ravel())
        met = np.unique(pieces[kept.within(window)])
        specks = [number for number in met if number and sizes[number] < LEAST_VOXELS]
        if specks:
            whole = np.zeros(mask.shape, bool)
            whole[window] = np.isin(pieces, specks)
            return Lesion(name, name, whole)
    return None


def _groups(
    earlier: int, later: int, links: set[tuple[int, int]]
) -> list[tuple[list[int], list[int]]]:
    # The nodes of the graph are the earlier lesions, then the later ones.
    graph = np.zeros((earlier + later, earlier + later), bool)
    for i, j in links:
        graph[i, earlier + j] = True
    count, group_of = connected_components(graph, directed=False)
    groups = sorted(np.flatnonzero(group_of == number).tolist() for number in range(count))
    return [
        ([n for n in group if n < earlier], [n - earlier for n in group if n >= earlier])
        for group in groups
    ]


def _distinct(pieces: Sequence[Lesion]) -> list[Lesion]:
    kept: list[Lesion] = []
    for piece in sorted(pieces, key=lambda p: -p.kept.count):
        if all(piece.kept.shared(k.kept) < _SAME_SHARE * piece.kept.count for k in kept):
            kept.append(piece)
    return [piece for piece in pieces if piece in kept]


def _change(
    before: Sequence[CarriedLesion],
    after: Sequence[Lesion],
    earlier_volume: Volume,
    later_volume: Volume,
) -> LesionChange:
    old = [each.lesion for each in before]
    first, second = measured(old, earlier_volume), measured(after, later_volume)
    name = " + ".join(each.name for each in (old or after))
    is_by_place = any(each.found == "by its place" for each in before)
    remark = "found by its place only: check it" if is_by_place else ""
    return LesionChange(name, _named(before, after, first, second), first, second, remark)


def _named(
    before: Sequence[CarriedLesion], after: Sequence[Lesion], first: Measure, second: Measure
) -> Change:
    if not before:
        return "new"
    if not after:
        return "not shown" if all(b.found == "not shown" for b in before) else "gone"
    if len(before) > 1:
        return "merged" if len(after) == 1 else "regrouped"
    if len(after) > 1:
        return "split"
    longer = second.long_axis_mm - first.long_axis_mm
    if second.long_axis_mm >= _GROWN * first.long_axis_mm and longer >= _GROWN_MM:
        return "grown"
    return "shrunk" if second.long_axis_mm <= _SHRUNK * first.long_axis_mm else "stable"


def measured(lesions: Sequence[Lesion], volume: Volume) -> Measure:
    """Measure lesions of one scan as a group."""
    if not lesions:
        return Measure()
    statistics = segment_statistics(volume, [Segment(each.name, each.mask) for each in lesions])
    longest: SegmentStatistics = max(statistics, key=lambda s: s.long_axis_mm or 0.0)
    return Measure(
        round(sum(s.volume_ml or 0.0 for s in statistics), 4),
        round(sum(s.long_axis_mm or 0.0 for s in statistics), 2),
        round(longest.perpendicular_mm or 0.0, 2),
        round(max(longest_diameter(each.mask, volume) for each in lesions), 2),
    )


def longest_diameter(mask: Mask, volume: Volume) -> float:
    """Return the longest diameter of a mask in any direction, mm.

    Borders are half-way between voxel centres inside and outside, as for diameters within a slice.
    """
    window = window_of(mask)
    if window is None:
        return 0.0
    inner = np.pad(mask[window], 1)
    rim = inner & ~ndimage.binary_erosion(inner)
    corners = np.argwhere(rim).astype(np.float64)
    half = np.concatenate([np.eye(3), -np.eye(3)]) / 2
    points = (corners[:, None] + half).reshape(-1, 3) * np.array(volume.spacing_mm)
    return float(pdist(_hull(points)).max())


def _hull(points: Floats) -> Floats:
    try:
        return np.asarray(points[ConvexHull(points).vertices])
    except QhullError:  # flat
        return points
