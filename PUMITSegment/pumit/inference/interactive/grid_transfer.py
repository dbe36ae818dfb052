"""Move an answer between a field's grid and the volume's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from pumit.geometry import window_of
from pumit.preprocessing.fields import Field, box_of
from pumit.preprocessing.interpolation import resampled

Floats = npt.NDArray[np.float32]
INSIDE, OUTSIDE = 4.0, -4.0  # logits of what is sure


@dataclass
class LogitBox:
    """Logits on a box of the volume's own grid.

    Attributes:
        start: First voxel (d, h, w).
        logits: (d, h, w) float32; what lies outside of the box is background.
    """

    start: tuple[int, int, int]
    logits: Floats

    @property
    def voxels(self) -> int:
        """How many voxels are foreground."""
        return int((self.logits > 0).sum())

    @property
    def window(self) -> tuple[slice, slice, slice]:
        """The box as slices of the volume."""
        d, h, w = (slice(s, s + n) for s, n in zip(self.start, self.logits.shape, strict=True))
        return (d, h, w)


def patch_of(mask: npt.NDArray[np.bool_]) -> LogitBox:
    """Return a mask, bool (D, H, W) and not empty, as an answer that is sure of each voxel."""
    window = window_of(mask)
    assert window is not None
    values = np.where(mask[window], INSIDE, OUTSIDE).astype(np.float32)
    d, h, w = (s.start for s in window)
    return LogitBox((d, h, w), values)


def is_inside(patch: LogitBox, place: Sequence[float]) -> bool:
    """Return whether a patch is foreground at a volume index."""
    index = [round(p) - s for p, s in zip(place, patch.start, strict=True)]
    if any(not 0 <= i < n for i, n in zip(index, patch.logits.shape, strict=True)):
        return False
    return bool(patch.logits[tuple(index)] > 0)


def to_volume(logits: Floats, field: Field, shape: tuple[int, int, int]) -> LogitBox | None:
    """Bring a field's logits (d, h, w) to the volume's grid, where they are foreground.

    Only the box around the foreground is computed: the cost follows the segment, not the volume.

    Returns:
        The patch, or None where nothing is foreground.
    """
    window = window_of(logits > 0)
    if window is None:
        return None
    starts, axes = [], []
    for axis, hit in enumerate(window):
        edge = np.array([hit.start - 1.0, hit.stop])
        step, centre = field.step[axis], field.centre_index[axis]
        low, high = (edge - (field.shape[axis] - 1) / 2) * step + centre
        start = int(max(0, np.floor(low)))
        stop = int(min(shape[axis], np.ceil(high) + 1))
        # Voxels beyond the field belong to others.
        outer_low, outer_high = (b[axis] for b in field.bounds())
        start = max(start, int(np.ceil(outer_low)))
        stop = min(stop, int(np.floor(outer_high)) + 1)
        if stop <= start:
            return None
        starts.append(start)
        axes.append((np.arange(start, stop) - centre) / step + (field.shape[axis] - 1) / 2)
    return LogitBox((starts[0], starts[1], starts[2]), resampled(logits, axes))


def to_volume_box(values: Floats, field: Field, shape: tuple[int, int, int]) -> LogitBox | None:
    """Bring all of a field's values (d, h, w) to the volume's grid.

    Returns:
        The patch, or None where the field lies beyond the volume.
    """
    starts, axes = [], []
    low, high = field.bounds()
    for axis in range(3):
        start = max(0, int(np.ceil(low[axis])))
        stop = min(shape[axis], int(np.floor(high[axis])) + 1)
        if stop <= start:
            return None
        offset = (np.arange(start, stop) - field.centre_index[axis]) / field.step[axis]
        axes.append(offset + (field.shape[axis] - 1) / 2)
        starts.append(start)
    return LogitBox((starts[0], starts[1], starts[2]), resampled(values, axes))


def to_field(patch: LogitBox | None, field: Field) -> Floats:
    """Foreground probability of a patch on a field's grid, (d, h, w); 0 outside of the patch."""
    if patch is None:
        return np.zeros(field.shape, dtype=np.float32)
    axes, valid = [], []
    for axis in range(3):
        offset = np.arange(field.shape[axis]) - (field.shape[axis] - 1) / 2
        at = offset * field.step[axis] + field.centre_index[axis] - patch.start[axis]
        valid.append((at > -0.5) & (at < patch.logits.shape[axis] - 0.5))
        axes.append(at)
    return sigmoid(resampled(patch.logits, axes)) * box_of(valid)


def sigmoid(logits: Floats) -> Floats:
    """Probabilities of logits."""
    return np.asarray(special.expit(logits))


def logit(probability: Floats) -> Floats:
    """Logits of probabilities, those of 0 and 1 finite."""
    return np.asarray(special.logit(probability.clip(1e-4, 1 - 1e-4)))
