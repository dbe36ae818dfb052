"""Masks cut to their foreground, ready to be written into a segment."""

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
    """A mask cropped to its foreground.

    Attributes:
        shape: (D, H, W) of the volume.
        box: Bounding box of the voxels that are set; empty where none is.
        voxels: uint8, 0 or 1, contiguous, fills `box`.
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
    """Cut a mask to what is set in it: the part of a write that any thread may do.

    Args:
        mask: bool, (D, H, W).

    Raises:
        VolumeError: If it is not such an array.
    """
    mask = np.asarray(mask)
    if mask.dtype != np.bool_ or mask.ndim != 3:
        raise VolumeError(f"A mask must be bool, (D, H, W), got {mask.dtype} {mask.shape}.")
    box = Box.around(mask)
    voxels = np.ascontiguousarray(mask[box.within(Box((0, 0, 0), mask.shape))])
    return PreparedMask(mask.shape, box, voxels.view(np.uint8))


def unpacked(packed: PackedMask) -> PreparedMask:
    """Return a mask that was kept, ready to be written back."""
    starts, stops = zip(*(packed.box or ((0, 0),) * 3), strict=True)
    voxels = np.ascontiguousarray(packed.inside()).view(np.uint8)
    d, h, w = packed.shape
    return PreparedMask((d, h, w), Box(starts, stops), voxels)
