"""The order of axes that puts the coarsest first; known without torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def depth_first(
    spacing: Sequence[float], shape: Sequence[int] | None = None
) -> tuple[int, int, int]:
    """Axis order that puts the coarsest axis first, keeping the others in order.

    Args:
        spacing: Voxel size along each axis.
        shape: Voxels along each axis; an axis of a single one is the depth, whatever its spacing.
    """
    if shape is not None and 1 in shape:
        axis = list(shape).index(1)
    else:
        axis = int(np.argmax(spacing))
        if spacing[axis] <= 1.01 * min(spacing):
            axis = 0
    rest = [a for a in range(3) if a != axis]
    return (axis, rest[0], rest[1])
