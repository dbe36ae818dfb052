"""Resampling of answers between a field's grid and the volume's."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from pumit.geometry import window_of
from pumit.preprocessing.fields import Field, box_of, resampled

Floats = npt.NDArray[np.float32]
Box = tuple[slice, ...]  # voxels of the volume
SLICES = 8  # slices per slab
INSIDE, OUTSIDE = 4.0, -4.0  # logits of certain foreground and background


@dataclass
class LogitBox:
    """Logits (d, h, w) on a box of the volume, and its first voxel; outside is background."""

    start: tuple[int, ...]
    logits: Floats

    @property
    def voxels(self) -> int:
        """Number of foreground voxels."""
        return int((self.logits > 0).sum())

    @property
    def window(self) -> Box:
        """The box as slices of the volume."""
        return tuple(slice(s, s + n) for s, n in zip(self.start, self.logits.shape, strict=True))


def patch_of(mask: npt.NDArray[np.bool_]) -> LogitBox:
    """Convert a non-empty mask, bool (D, H, W), to logits of certain voxels."""
    window = window_of(mask)
    assert window is not None
    return LogitBox(start_of(window), certain(mask[window]))


def certain(mask: npt.NDArray[np.bool_]) -> Floats:
    """Return a mask as logits; it may be as large as the scan, so nothing is made in double."""
    return np.where(mask, np.float32(INSIDE), np.float32(OUTSIDE))


def is_inside(patch: LogitBox, place: Sequence[float]) -> bool:
    """Return whether a patch is foreground at a volume index."""
    index = [round(p) - s for p, s in zip(place, patch.start, strict=True)]
    if any(not 0 <= i < n for i, n in zip(index, patch.logits.shape, strict=True)):
        return False
    return bool(patch.logits[tuple(index)] > 0)


def to_volume(logits: Floats, field: Field, shape: tuple[int, int, int]) -> LogitBox | None:
    """Resample a field's logits (d, h, w) to the volume, only in the box of their foreground."""
    box = foreground_box(logits, field, shape)
    return None if box is None else on_box(logits, field, box)


def covered_box(field: Field, shape: tuple[int, int, int]) -> Box | None:
    """Return the voxels of the volume that a field covers, or None if it covers none."""
    low, high = field.bounds()
    first = np.ceil(low).astype(int).clip(0)
    return box_between(first, np.minimum(np.floor(high).astype(int) + 1, shape))


def foreground_box(
    logits: Floats, field: Field, shape: tuple[int, int, int], *, above: float = 0.0
) -> Box | None:
    """Return the box of volume voxels where a field's logits may exceed a value, or None."""
    window, covered = window_of(logits > above), covered_box(field, shape)
    if window is None or covered is None:
        return None
    low, high = field.to_volume([[s.start - 1 for s in window], [s.stop for s in window]])
    first = np.maximum(np.floor(low).astype(int), [s.start for s in covered])
    return box_between(first, np.minimum(np.ceil(high).astype(int) + 1, [s.stop for s in covered]))


def on_box(values: Floats, field: Field, box: Box) -> LogitBox:
    """Resample values (d, h, w) of a field to the voxels of a box of the volume."""
    axes = [field.along(axis, np.arange(s.start, s.stop))[0] for axis, s in enumerate(box)]
    return LogitBox(start_of(box), resampled(values, axes))


def slabs(box: Box) -> Iterator[Box]:
    """Split a box into slabs of a few slices, to bound memory."""
    depth, *plane = box
    for first in range(depth.start, depth.stop, SLICES):
        yield (slice(first, min(first + SLICES, depth.stop)), *plane)


def enclosing(boxes: Iterable[Box]) -> Box:
    """Return the smallest box that contains all boxes."""
    return tuple(
        slice(min(s.start for s in parts), max(s.stop for s in parts))
        for parts in zip(*boxes, strict=True)
    )


def filled(box: Box, value: float) -> LogitBox:
    """Return a `LogitBox` with one value everywhere."""
    shape = [s.stop - s.start for s in box]
    return LogitBox(start_of(box), np.full(shape, value, dtype=np.float32))


def on_other_box(patch: LogitBox, box: Box) -> LogitBox:
    """Copy an answer to another box; voxels outside the answer's box become background."""
    other, shared = filled(box, OUTSIDE), common(patch.window, box)
    if shared is not None:
        other.logits[within(shared, other.start)] = patch.logits[within(shared, patch.start)]
    return other


def common(a: Box, b: Box) -> Box | None:
    """Return the intersection of two boxes, or None."""
    pairs = zip(a, b, strict=True)
    both = tuple(slice(max(s.start, t.start), min(s.stop, t.stop)) for s, t in pairs)
    return both if all(s.start < s.stop for s in both) else None


def shared_voxels(a: LogitBox, b: LogitBox) -> int:
    """Return the number of foreground voxels that two answers share."""
    box = common(a.window, b.window)
    if box is None:
        return 0
    first, second = (patch.logits[within(box, patch.start)] > 0 for patch in (a, b))
    return int((first & second).sum())


def within(part: Box, start: Sequence[int]) -> Box:
    """Return a box as slices of an array whose first voxel is `start`."""
    return tuple(slice(s.start - a, s.stop - a) for s, a in zip(part, start, strict=True))


def start_of(box: Box) -> tuple[int, ...]:
    """Return the first voxel of a box."""
    return tuple(s.start for s in box)


def box_between(first: npt.NDArray[Any], stop: npt.NDArray[Any]) -> Box | None:
    """Return the box from a first voxel to one beyond the last, or None if it has no voxel."""
    if (stop <= first).any():
        return None
    return tuple(slice(int(a), int(b)) for a, b in zip(first, stop, strict=True))


def to_field(patch: LogitBox | None, field: Field) -> Floats:
    """Return a patch's foreground probability on a field's grid, (d, h, w); 0 outside the patch."""
    if patch is None:
        return np.zeros(field.shape, dtype=np.float32)
    axes, valid = [], []
    for axis in range(3):
        at = field.places(axis) - patch.start[axis]
        valid.append((at > -0.5) & (at < patch.logits.shape[axis] - 0.5))
        axes.append(at)
    return sigmoid(resampled(patch.logits, axes)) * box_of(valid)


def sigmoid(logits: Floats) -> Floats:
    """Convert logits to probabilities."""
    return np.asarray(special.expit(logits))


def logit(probability: Floats) -> Floats:
    """Convert probabilities to logits, finite at 0 and 1."""
    return np.asarray(special.logit(probability.clip(1e-4, 1 - 1e-4)))
