"""Separable linear interpolation for axis-aligned grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def interpolate(x: Floats, axis: int, at: npt.NDArray[np.floating[Any]]) -> Floats:
    """Interpolate x linearly along one axis at fractional indices, with replicated edges."""
    n = x.shape[axis]
    position = np.clip(at, 0, n - 1).astype(np.float32)
    lower = np.minimum(np.floor(position), max(n - 2, 0)).astype(np.intp)
    out = x.take(lower, axis)
    if n == 1:
        return out
    weight = (position - lower).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    upper = x.take(lower + 1, axis)
    upper -= out
    upper *= weight
    out += upper
    return out


def resampled(x: Floats, places: Sequence[npt.NDArray[np.floating[Any]]]) -> Floats:
    """Interpolate x (d, h, w) linearly at fractional indices along each axis.

    The axis that grows most is processed last, to save work.
    """
    growth = [len(at) / n for at, n in zip(places, x.shape, strict=True)]
    for axis in sorted(range(x.ndim), key=lambda a: (growth[a], -a)):
        x = interpolate(x, axis, places[axis])
    return x
