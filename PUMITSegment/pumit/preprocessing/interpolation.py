"""Linear interpolation along one axis: grids that are aligned need no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def interpolate(x: Tensor, axis: int, at: npt.NDArray[np.floating[Any]]) -> Tensor:
    """Linear interpolation of x along one axis at fractional indices, edges replicated."""
    n = x.shape[axis]
    position = torch.from_numpy(np.clip(at, 0, n - 1)).float()
    lower = position.floor().clamp_max(max(n - 2, 0)).long()
    weight = (position - lower).view([-1 if a == axis else 1 for a in range(x.ndim)])
    low = x.index_select(axis, lower)
    if n == 1:
        return low
    return low.lerp(x.index_select(axis, lower + 1), weight)
