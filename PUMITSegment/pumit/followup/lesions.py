"""Lesions of an earlier scan, and their propagation to a later scan by registration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.followup.registration import Registration
from pumit.geometry import Floats, window_of
from pumit.inference.interactive.grid_transfer import common, start_of, within
from pumit.preprocessing.channels import grey
from pumit.prompts import MaskPrompt, PointPrompt, Prompt
from pumit.volume import Volume

Mask = npt.NDArray[np.bool_]
Window = tuple[slice, ...]
Found = Literal["by its look", "by its place", "given", "gone", "not shown"]

# Smaller components are ignored as specks.
LEAST_VOXELS = 5
# Margin around a lesion, mm; and how far it may have grown or moved, in mm and in radii.
_AROUND_MM, _GROWTH_MM, _GROWTH_SHARE = 25.0, 8.0, 0.8
# Distances from a lesion of the ring that serves as its background.
_RING_MM = (2.0, 7.0)
_SMOOTH_MM = 1.5
# Least fraction of a lesion, and of its ring, that the intensity rule must classify correctly.
_KNOWN = 0.6
# Least fraction of the expected volume, below which a lesion counts as gone.
_LEFT = 0.03
# Least fraction of a lesion that must be within the later scan.
_SHOWN = 0.5


class KeptMask:
    """A mask, (D, H, W), stored as its bounding box, because a scan may hold a hundred lesions.

    Attributes:
        shape: Shape of the whole grid.
        window: Bounding box; empty slices for an empty mask.
        count: Number of foreground voxels.
    """

    def __init__(self, mask: Mask) -> None:
        self.shape = mask.shape
        self.window: Window = window_of(mask) or (slice(0, 0),) * 3
        self.part: Mask = mask[self.window].copy()
        self.count = int(np.count_nonzero(self.part))

    def whole(self) -> Mask:
        """Return the mask on the whole grid."""
        mask = np.zeros(self.shape, bool)
        mask[self.window] = self.part
        return mask

    def within(self, window: Window) -> Mask:
        """Return the mask within another box of the grid."""
        part = np.zeros([s.stop - s.start for s in window], bool)
        if both := common(self.window, window):
            part[within(both, start_of(window))] = self.part[within(both, start_of(self.window))]
        return part

    def shared(self, other: KeptMask) -> int:
        """Return the number of common voxels."""
        return int(np.count_nonzero(other.within(self.window) & self.part))

    def window_with(self, margin: tuple[int, ...]) -> Window:
        """Return the bounding box, enlarged by a margin in voxels within the grid."""
        return tuple(
            slice(max(s.start - m, 0), min(s.stop + m, n))
            for s, m, n in zip(self.window, margin, self.shape, strict=True)
        )


class Lesion:
    """A connected component of a segment.

    Args:
        name: Name of the segment, with a number if it has several components.
        mask: On the grid of its scan, (D, H, W).
    """

    def __init__(self, name: str, segment: str, mask: Mask) -> None:
        self.name, self.segment, self.kept = name, segment, KeptMask(mask)

    @property
    def mask(self) -> Mask:
        """Mask on the grid of its scan, (D, H, W)."""
        return self.kept.whole()


class CarriedLesion:
    """An earlier lesion propagated to the later scan.

    Args:
        mask: Initial mask on the grid of the later scan; empty if nothing was found.
        found: "by its look": found by intensities; "by its place": only propagated; "given": to
            compare with given masks; "gone": nothing similar; "not shown": outside the later scan.
        place: The earlier mask, propagated to the grid of the later scan.
    """

    def __init__(self, lesion: Lesion, mask: Mask, found: Found, place: Mask) -> None:
        self.lesion, self.found = lesion, found
        self.kept, self.kept_place = KeptMask(mask), KeptMask(place)

    @property
    def mask(self) -> Mask:
        """Initial mask on the grid of the later scan, (D, H, W)."""
        return self.kept.whole()

    @property
    def prompts(self) -> list[Prompt]:
        """Prompts for a session: the initial mask; none if it is empty."""
        return [MaskPrompt(self.mask)] if self.kept.count else []


def lesions_of(segments: Sequence[tuple[str, Mask]]) -> list[Lesion]:
    """Split segments into components, largest first; drop specks, unless a segment has no more."""
    found, names = [], {name for name, _ in segments}
    for name, mask in segments:
        pieces, _count = ndimage.label(mask, np.ones((3, 3, 3)))
        sizes = np.bincount(pieces.ravel())[1:]
        order = [i for i in np.argsort(-sizes, kind="stable") if sizes[i] >= LEAST_VOXELS]
        order = order or np.argsort(-sizes, kind="stable")[:1].tolist()
        for number, piece in enumerate(order, start=1):
            label = name if len(order) == 1 else f"{name[:58]} {number}"
            if label != name and label in names:  # another segment is called so
                label = f"{name[:57]} ({number})"
            found.append(Lesion(label, name, pieces == piece + 1))
    return found


def carried(
    lesions: Sequence[Lesion],
    earlier: Volume,
    later: Volume,
    registration: Registration,
    *,
    by_look: bool = True,
) -> list[CarriedLesion]:
    """Find the lesions of the earlier scan in the later one.

    A lesion is searched around its propagated position by its earlier intensities relative to its
    surroundings. If this rule does not separate it from its surroundings in the earlier scan, it is
    only propagated.

    Args:
        lesions: All lesions of the earlier scan, on its grid.
        by_look: Whether to search by intensities; else lesions are only propagated, to be compared
            with given masks.
    """
    together = np.zeros(earlier.shape, bool)
    for lesion in lesions:
        together[lesion.kept.window] |= lesion.kept.part
    return [
        _carried(lesion, together, earlier, later, registration, by_look=by_look)
        for lesion in lesions
    ]


def carried_clicks(
    prompts: Sequence[Prompt], later: Volume, registration: Registration
) -> list[PointPrompt]:
    """Move clicks to the later scan, and drop those outside it.

    Boxes and scribbles are dropped, too: they fit the lesion's former size.
    """
    clicks = [p for p in prompts if isinstance(p, PointPrompt)]
    places = registration.to_later([p.point_lps for p in clicks]).tolist() if clicks else []
    moved = [PointPrompt(tuple(at), p.is_positive) for at, p in zip(places, clicks, strict=True)]
    return [p for p in moved if later.contains(p.point_lps)]


def _carried(
    lesion: Lesion,
    together: Mask,
    earlier: Volume,
    later: Volume,
    registration: Registration,
    *,
    by_look: bool,
) -> CarriedLesion:
    empty = np.zeros(later.shape, bool)
    window = _window(lesion.kept, earlier, later, registration)
    if window is None:
        return CarriedLesion(lesion, empty, "not shown", empty)
    # 1. Resample both scans to a window of the later grid around the lesion.
    index = np.stack(np.meshgrid(*(np.arange(s.start, s.stop) for s in window), indexing="ij"), -1)
    places = registration.to_earlier(later.index_to_world(index))
    at = np.moveaxis(earlier.world_to_index(places), -1, 0)
    size = np.array(earlier.shape).reshape(3, 1, 1, 1)
    is_known = ((at >= -0.5) & (at <= size - 0.5)).all(axis=0)
    # Crop the earlier grid to this window.
    low = np.clip(np.floor(at.reshape(3, -1).min(axis=1)), 0, np.array(earlier.shape) - 1)
    high = np.clip(np.ceil(at.reshape(3, -1).max(axis=1)) + 1, low + 1, earlier.shape)
    from_box = tuple(slice(a, b) for a, b in zip(low.astype(int), high.astype(int), strict=True))
    at = at - low.reshape(3, 1, 1, 1)
    own = lesion.kept.within(from_box)
    place, others = (
        ndimage.map_coordinates(mask.astype(np.float32), at, order=1) > 0.5
        for mask in (own, together[from_box] & ~own)
    )
    voxel_mm3 = float(np.prod(later.spacing_mm))
    expected = lesion.kept.count * float(np.prod(earlier.spacing_mm))
    expected *= abs(float(np.linalg.det(registration.matrix[:3, :3])))
    whole = _put(place, window, later.shape)
    if np.count_nonzero(place) * voxel_mm3 < _SHOWN * expected or not place.any():
        # Voxels of a coarser scan may sample a small lesion only partly.
        is_small = expected < 4 * voxel_mm3 and bool(place.any())
        if not is_small:
            return CarriedLesion(lesion, empty, "not shown", whole)
    if not by_look:
        return CarriedLesion(lesion, whole, "given", whole)
    first = ndimage.map_coordinates(
        np.nan_to_num(_grey(earlier, from_box)), at, order=1, mode="nearest"
    )
    second = np.nan_to_num(_grey(later, window))
    sigma = [_SMOOTH_MM / s for s in later.spacing_mm]
    first, second = (ndimage.gaussian_filter(part, sigma) for part in (first, second))
    # 2. Intensities of the lesion and its surroundings, and their scale in the later scan.
    away = ndimage.distance_transform_edt(~place, sampling=later.spacing_mm)
    ring = (away > _RING_MM[0]) & (away <= _RING_MM[1]) & ~others & is_known
    near = (away > 2 * _RING_MM[0]) & (away <= _AROUND_MM) & is_known
    if ring.sum() < LEAST_VOXELS or near.sum() < 10 * LEAST_VOXELS:
        return CarriedLesion(lesion, whole, "by its place", whole)
    inside, outside = float(np.median(first[place])), float(np.median(first[ring]))
    scale, shift = _scale(first[near], second[near])
    reach = away <= max(_GROWTH_MM, _GROWTH_SHARE * (0.75 * expected / np.pi) ** (1 / 3))
    # 3. The rule must separate the lesion from its surroundings in the earlier scan.
    like = _looks(first, inside, outside) & is_known
    if like[place].mean() < _KNOWN or like[ring].mean() > 1 - _KNOWN:
        return CarriedLesion(lesion, whole, "by its place", whole)
    # 4. Exclude surroundings that looked like the lesion in the earlier scan, such as fat.
    apart = ndimage.distance_transform_edt(~(place | others), sampling=later.spacing_mm)
    neighbours = ndimage.binary_dilation(like & (apart > _RING_MM[0]))
    start = _looking_like(
        second, scale * inside + shift, scale * outside + shift, place, reach & ~neighbours
    )
    if np.count_nonzero(start) * voxel_mm3 < _LEFT * expected or start.sum() < LEAST_VOXELS:
        return CarriedLesion(lesion, empty, "gone", whole)
    return CarriedLesion(lesion, _put(start, window, later.shape), "by its look", whole)


def _window(
    kept: KeptMask, earlier: Volume, later: Volume, registration: Registration
) -> tuple[slice, ...] | None:
    box = kept.window
    margin = [_AROUND_MM / s for s in earlier.spacing_mm]
    ends = [(s.start - m, s.stop - 1 + m) for s, m in zip(box, margin, strict=True)]
    corners = np.stack(np.meshgrid(*ends, indexing="ij"), -1).reshape(-1, 3)
    index = later.world_to_index(registration.to_later(earlier.index_to_world(corners)))
    low = np.maximum(np.floor(index.min(axis=0)), 0).astype(int).tolist()
    high = np.minimum(np.ceil(index.max(axis=0)) + 1, later.shape).astype(int).tolist()
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return None
    return tuple(slice(a, b) for a, b in zip(low, high, strict=True))


def _grey(volume: Volume, window: tuple[slice, ...]) -> npt.NDArray[np.float32]:
    place: Any = (..., *window)
    part = Volume(volume.array[place], volume.spacing_mm)
    return np.asarray(grey(part, 0), np.float32)


def _put(part: Mask, window: tuple[slice, ...], shape: tuple[int, int, int]) -> Mask:
    whole = np.zeros(shape, bool)
    whole[window] = part
    return whole


def _scale(first: Floats, second: Floats) -> tuple[float, float]:
    middle = float(np.median(second) - np.median(first))
    if first.std() == 0 or second.std() == 0 or np.corrcoef(first, second)[0, 1] < 0.3:
        return 1.0, middle
    factor, shift = (float(v) for v in np.polyfit(first, second, 1))
    return (factor, shift) if factor > 0 else (1.0, middle)


def _looks(values: Floats, inside: float, outside: float) -> Mask:
    """Select voxels whose intensity is nearer to the lesion's than to its surroundings'."""
    if inside == outside:
        return np.zeros(values.shape, bool)
    # 0 is the lesion's intensity, 1 its surroundings'.
    apart = (inside - values) / (inside - outside)
    return np.asarray((apart < 0.5) & (apart > -1.2))


def _looking_like(values: Floats, inside: float, outside: float, place: Mask, reach: Mask) -> Mask:
    found = _looks(values, inside, outside) & reach
    opened = ndimage.binary_opening(found)
    pieces, _ = ndimage.label(opened if opened.any() else found)
    there = np.unique(pieces[ndimage.binary_dilation(place)])
    kept = np.isin(pieces, there[there > 0])
    return np.asarray(ndimage.binary_fill_holes(kept)) & reach
