"""A box on a slice, as a box in space.

The network has learnt boxes around whole structures: of a flat one it answers next to nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
# A box is flat where its third extent is less than this share of its second.
_FLAT = 1e-3


def extrude_flat_box(corners_lps: npt.ArrayLike) -> Floats:
    """Make a flat box as deep as the mean of its two sides; other boxes stay as they are.

    Args:
        corners_lps: Shape (4, 3) or (8, 3), in any order, LPS mm.

    Returns:
        Corners (8, 3), LPS mm, of a box whose middle slice is the flat one.
    """
    corners = np.asarray(corners_lps, dtype=np.float64)
    from_middle = corners - corners.mean(axis=0)
    _, extents, axes = np.linalg.svd(from_middle, full_matrices=False)
    if extents[2] > _FLAT * extents[1]:
        return corners
    # Corners that coincide, as those of a box given by two corners of one slice, count once.
    distances = np.linalg.norm(corners - corners[0], axis=1)
    apart = np.sort(distances[distances > _FLAT * distances.max()])
    # Two sides and a diagonal: each once of four corners, twice of eight that coincide in pairs.
    sides = (apart[0], apart[len(apart) // 2])
    half = axes[2] * np.mean(sides) / 2
    return np.concatenate((corners - half, corners + half))
