"""Axis order with the coarsest axis first; needs no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def depth_first(
    spacing: Sequence[float], shape: Sequence[int] | None = None
) -> tuple[int, int, int]:
    """Return the axis order with the coarsest axis first and the others in order.

    Args:
        spacing: Voxel size along each axis.
        shape: Voxels along each axis; an axis with a single voxel is the depth in any case.
    """
    if shape is not None and 1 in shape:
        axis = list(shape).index(1)
    else:
        axis = int(np.argmax(spacing))
        if spacing[axis] <= 1.01 * min(spacing):
            axis = 0
    rest = [a for a in range(3) if a != axis]
    return (axis, rest[0], rest[1])
