"""Masks cropped to their foreground: compressed for the history, or ready to be written."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pumit.errors import VolumeError
from pumit.geometry import Array
from pumit.segmentation import Mask
from PUMITSlicerLib.labelmap_grid import Box

_FASTEST = 1


@dataclass(frozen=True)
class PackedMask:
    """Compressed mask, immutable and comparable.

    Attributes:
        shape: Shape of the whole grid, (D, H, W).
        box: First and last-plus-one index of each axis; None for an empty mask.
        bits: Compressed bits inside the box.
        own: The same segment on the grid of its segmentation: box and mask; None if that is the
            scan's grid.
    """

    shape: tuple[int, ...]
    box: tuple[tuple[int, int], ...] | None
    bits: bytes
    own: tuple[Box, PackedMask] | None = field(default=None, compare=False)

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
        return len(self.bits) + (self.own[1].byteCount if self.own is not None else 0)

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


@dataclass(frozen=True, eq=False)
class PreparedMask:
    """Mask cropped to its foreground.

    Attributes:
        shape: (D, H, W) of the volume.
        box: Bounding box of the foreground; empty for an empty mask.
        voxels: uint8, 0 or 1, contiguous, of the shape of `box`.
    """

    shape: tuple[int, int, int]
    box: Box
    voxels: Array

    def whole(self) -> Mask:
        """Return the mask on the whole volume, bool (D, H, W)."""
        mask = np.zeros(self.shape, dtype=bool)
        mask[self.box.within(Box((0, 0, 0), self.shape))] = self.voxels.view(bool)
        return mask


def prepare(mask: Mask) -> PreparedMask:
    """Crop a mask to its foreground: the part of a write that any thread may do.

    Args:
        mask: bool, (D, H, W).

    Raises:
        VolumeError: If it has another type or number of dimensions.
    """
    mask = np.asarray(mask)
    if mask.dtype != np.bool_ or mask.ndim != 3:
        raise VolumeError(f"A mask must be bool, (D, H, W), got {mask.dtype} {mask.shape}.")
    box = Box.around(mask)
    voxels = np.ascontiguousarray(mask[box.within(Box((0, 0, 0), mask.shape))])
    return PreparedMask(mask.shape, box, voxels.view(np.uint8))


def unpacked(packed: PackedMask) -> PreparedMask:
    """Return a packed mask, ready to be written."""
    starts, stops = zip(*(packed.box or ((0, 0),) * 3), strict=True)
    voxels = np.ascontiguousarray(packed.inside()).view(np.uint8)
    d, h, w = packed.shape
    return PreparedMask((d, h, w), Box(starts, stops), voxels)
