"""A lasso as a path through the area that it encloses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]


def filled_path(outline: Points, spacing_mm: float) -> Points:
    """Points inside of a closed outline, row after row.

    Args:
        outline: (N, 3), mm, in order; the last is joined with the first. They need not lie
            exactly in a plane: the plane that fits best counts.
        spacing_mm: Distance of rows, and of points in a row, mm.

    Returns:
        (M, 3) inside of the outline; its middle where it is smaller than the spacing.
    """
    return outline
