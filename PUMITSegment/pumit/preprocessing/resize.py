"""Linear resampling between grids over the same box, slice by slice."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F


def resized_shape(
    shape: Sequence[int], spacing_mm: Sequence[float], target_mm: Sequence[float]
) -> tuple[int, int, int]:
    """Return the grid size at a target spacing over the same box; a single slice stays single."""
    d, h, w = (
        1 if n == 1 else max(1, round(n * s / t))
        for n, s, t in zip(shape, spacing_mm, target_mm, strict=True)
    )
    return (d, h, w)


def slice_positions(count: int, source: int) -> npt.NDArray[np.float64]:
    """Return fractional positions of `count` slices among `source` slices of equal extent."""
    at = (np.arange(count) + 0.5) * (source / count) - 0.5
    return np.clip(at, 0, source - 1)


def resize_plane(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Resample (C, h, w) to (C, *size); the outer borders of both grids coincide."""
    if tuple(x.shape[1:]) == size:
        return x
    return F.interpolate(x[None], size=size, mode="bilinear", align_corners=False)[0]


def resize(array: npt.NDArray[Any], shape: tuple[int, int, int]) -> Tensor:
    """Resample intensities (d, h, w) to another grid over the same box.

    Only two slices of the source are held in float32 at a time.

    Returns:
        float32, of that shape.
    """
    out = torch.empty(shape)
    planes: dict[int, Tensor] = {}
    for i, at in enumerate(slice_positions(shape[0], array.shape[0])):
        low = int(at)
        high = min(low + 1, array.shape[0] - 1)
        for k in (low, high):
            if k not in planes:
                # Always a copy: NumPy calls a reversed axis of one voxel contiguous.
                plane = torch.from_numpy(array[k].astype(np.float32, order="C"))
                planes[k] = resize_plane(plane[None], (shape[1], shape[2]))[0]
        out[i] = torch.lerp(planes[low], planes[high], float(at - low))
        planes = {k: plane for k, plane in planes.items() if k >= low}
    return out
