"""Masks stored as their bounding box, because a scan may hold a hundred lesions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pumit.geometry import window_of

Mask = npt.NDArray[np.bool_]
Window = tuple[slice, ...]


class KeptMask:
    """A mask cropped to its bounding box.

    Args:
        mask: On the whole grid, (D, H, W).

    Attributes:
        shape: Shape of the whole grid.
        window: Bounding box as slices; empty slices for an empty mask.
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
        here, there = [], []
        for own, other in zip(self.window, window, strict=True):
            low, high = max(own.start, other.start), min(own.stop, other.stop)
            high = max(low, high)
            here.append(slice(low - own.start, high - own.start))
            there.append(slice(low - other.start, high - other.start))
        if all(s.start < s.stop for s in here):
            part[tuple(there)] = self.part[tuple(here)]
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
