"""Serialization of masks: packed bits of the bounding box, in an array envelope."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pumit.geometry import window_of
from pumit.wire.arrays import Array, Codec, pack_array, unpack_array
from pumit.wire.protocol import ArrayError

Mask = npt.NDArray[np.bool_]
# Half-open (start, stop) for each axis in (D, H, W) order, as in the nnInteractive protocol.
BoundingBox = list[list[int]]


def bounding_box(mask: Mask) -> BoundingBox | None:
    """Return the bounding box of a mask, (D, H, W), or None for an empty mask."""
    window = window_of(mask)
    return None if window is None else [[s.start, s.stop] for s in window]


def packed_bits(mask: Mask) -> tuple[BoundingBox | None, npt.NDArray[np.uint8] | None]:
    """Return the bounding box of a mask, (D, H, W), and the packed bits inside."""
    box = bounding_box(mask)
    if box is None:
        return None, None
    return box, np.packbits(mask[tuple(slice(start, stop) for start, stop in box)], axis=None)


def unpacked_bits(
    box: Sequence[Sequence[int]] | None, bits: Array | None, shape: tuple[int, int, int]
) -> Mask:
    """Restore a mask on the whole grid, (D, H, W), from the result of `packed_bits`.

    Raises:
        ArrayError: If the box is not within the grid, or the bits do not fill it.
    """
    mask = np.zeros(shape, dtype=bool)
    if box is None:
        if bits is not None:
            raise ArrayError("A mask without a bounding box has no voxels to send.")
        return mask
    count = _box_size(box, shape)
    if bits is None or bits.dtype != np.uint8 or bits.shape != ((count + 7) // 8,):
        raise ArrayError(f"A mask box of {count} voxels needs {(count + 7) // 8} packed bytes.")
    extent = [stop - start for start, stop in box]
    inside = np.unpackbits(bits, count=count).reshape(extent).view(bool)
    mask[tuple(slice(start, stop) for start, stop in box)] = inside
    return mask


def pack_mask(mask: Mask, *, codec: Codec = "lz4") -> tuple[BoundingBox | None, bytes]:
    """Encode a mask, (D, H, W), as its bounding box and an envelope of the bits inside."""
    box, bits = packed_bits(mask)
    return box, b"" if bits is None else pack_array(bits, codec=codec)


def unpack_mask(
    box: Sequence[Sequence[int]] | None, body: bytes | bytearray, shape: tuple[int, int, int]
) -> Mask:
    """Decode the result of `pack_mask` to a mask on the whole grid.

    Args:
        box: Bounding box, or None for an empty mask.
        body: Envelope of the bits; empty if `box` is None.
        shape: Shape (D, H, W) of the grid.

    Raises:
        ArrayError: If the box is not within the grid, or the bits do not fill it.
    """
    if box is None:
        return unpacked_bits(None, np.zeros(0, np.uint8) if body else None, shape)
    most = (_box_size(box, shape) + 7) // 8
    return unpacked_bits(box, unpack_array(body, max_bytes=most, axes=(1,)), shape)


def _box_size(box: Sequence[Sequence[int]], shape: tuple[int, int, int]) -> int:
    """Return the number of voxels in a box, after checking that it is within the grid."""
    if len(box) != 3 or not all(
        0 <= start < stop <= size for (start, stop), size in zip(box, shape, strict=True)
    ):
        raise ArrayError(f"The mask's box {box} is not inside the volume's grid {shape}.")
    return math.prod(stop - start for start, stop in box)
