"""Clean-up of a mask: fill holes, keep the largest island, smooth."""

from __future__ import annotations

import enum

import numpy as np
from pumit.segmentation import Mask
from PUMITSlicerLib.labelmap_grid import Box
from slicer.i18n import tr as _

# Standard deviation of the smoothing in in-plane voxels.
_SMOOTHING = 2.0
# Threshold of the smoothed mask, and its minimum where a small mask would shrink.
_INSIDE, _LEAST_INSIDE = 0.5, 0.35
_MARGIN = 8
_NEIGHBOURS = np.ones((3, 3, 3), dtype=bool)


class CleanUp(enum.Enum):
    """Clean-up operation on a mask."""

    FILL_HOLES = "fill holes"
    LARGEST_ISLAND = "keep the largest island"
    SMOOTH = "smooth"


def cleanUpTexts() -> dict[CleanUp, str]:
    """Return the display texts of the operations."""
    return {
        CleanUp.FILL_HOLES: _("Fill holes"),
        CleanUp.LARGEST_ISLAND: _("Keep the largest island"),
        CleanUp.SMOOTH: _("Smooth"),
    }


def cleanedUp(mask: Mask, how: CleanUp, spacing_mm: tuple[float, float, float]) -> Mask:
    """Return a cleaned-up mask, (D, H, W).

    A hole is background that is not connected to the outside, in 3D; in 2D for an image of one
    slice.

    Args:
        mask: bool, (D, H, W).
        spacing_mm: (D, H, W); smoothing is isotropic in mm.
    """
    from scipy import ndimage  # takes 0.3 s, so only if needed

    result = mask.copy()
    box = Box.around(mask)
    if box.isEmpty:
        return result
    window = tuple(
        slice(max(start - _MARGIN, 0), stop + _MARGIN)
        for start, stop in zip(box.start, box.stop, strict=True)
    )
    part = result[window]
    if how is CleanUp.FILL_HOLES:
        filled = ndimage.binary_fill_holes(part[0])[None] if mask.shape[0] == 1 else None
        result[window] = ndimage.binary_fill_holes(part) if filled is None else filled
    elif how is CleanUp.LARGEST_ISLAND:
        labels, _number = ndimage.label(part, _NEIGHBOURS)
        counts = np.bincount(labels.ravel())
        counts[0] = 0
        result[window] = labels == counts.argmax()
    else:
        sigma_mm = _SMOOTHING * max(spacing_mm[1:])
        sigma = [
            sigma_mm / step if n > 1 else 0.0
            for step, n in zip(spacing_mm, mask.shape, strict=True)
        ]
        share = ndimage.gaussian_filter(part.astype(np.float32), sigma)
        # Keep the number of voxels: a threshold of 0.5 would shrink a small convex mask.
        kept = np.partition(share, -np.count_nonzero(part), axis=None)
        inside = float(kept[-np.count_nonzero(part)])
        result[window] = share >= min(max(inside, _LEAST_INSIDE), _INSIDE)
    return result
