"""Compressed masks: the bits of their bounding box."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
_FASTEST = 1


@dataclass(frozen=True)
class PackedMask:
    """Compressed mask, immutable and comparable.

    Attributes:
        shape: Shape of the whole grid, (D, H, W).
        box: First and last-plus-one index of each axis; None for an empty mask.
        bits: Compressed bits inside the box.
    """

    shape: tuple[int, ...]
    box: tuple[tuple[int, int], ...] | None
    bits: bytes

    @staticmethod
    def of(mask: npt.ArrayLike) -> PackedMask:
        """Pack a mask, bool (D, H, W)."""
        array = np.asarray(mask, dtype=bool)
        box = _boundingBox(array)
        if box is None:
            return PackedMask(array.shape, None, b"")
        inside = array[tuple(slice(start, stop) for start, stop in box)]
        bits = zlib.compress(np.packbits(inside, axis=None).tobytes(), _FASTEST)
        return PackedMask(array.shape, box, bits)

    @property
    def byteCount(self) -> int:
        """Memory use."""
        return len(self.bits)

    def inside(self) -> Mask:
        """Return the mask within its box."""
        size = [stop - start for start, stop in self.box or ((0, 0),) * len(self.shape)]
        packed = np.frombuffer(zlib.decompress(self.bits) if self.bits else b"", dtype=np.uint8)
        return np.unpackbits(packed, count=int(np.prod(size))).view(bool).reshape(size)

    def mask(self) -> Mask:
        """Return the whole mask, bool (D, H, W)."""
        array = np.zeros(self.shape, dtype=bool)
        if self.box is not None:
            array[tuple(slice(start, stop) for start, stop in self.box)] = self.inside()
        return array


def _boundingBox(mask: Mask) -> tuple[tuple[int, int], ...] | None:
    """Return the first and last-plus-one index of each axis, or None for an empty mask."""
    box: list[tuple[int, int]] = []
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        hits = np.flatnonzero(mask.any(axis=others))
        if not len(hits):
            return None
        box.append((int(hits[0]), int(hits[-1]) + 1))
        # The next axes only need the cropped mask.
        mask = mask[(slice(None),) * axis + (slice(*box[axis]),)]
    return tuple(box)
