"""Masks cropped to their foreground, ready to be written to a segment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pumit.errors import VolumeError
from pumit.geometry import Array
from pumit.segmentation import Mask
from PUMITSlicerLib.labelmap_grid import Box

from PUMITSegmentLib.segments.packed_mask import PackedMask


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
