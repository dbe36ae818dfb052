"""Pre-processing of slices and photographs for SAM: resizing, padding and normalisation."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

# SAM's normalisation: ImageNet statistics, of intensities in 0..1.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


def inner_size(shape: tuple[int, int], size: int) -> tuple[int, int]:
    """Return rows and columns of a slice after resizing its longer side to `size` pixels."""
    factor = size / max(shape)
    return max(1, round(shape[0] * factor)), max(1, round(shape[1] * factor))


def slice_pixels(plane: npt.NDArray[Any], window: tuple[float, float], size: int) -> Tensor:
    """Convert a slice to the encoder's input, with zero padding below or to the right.

    Args:
        plane: Intensities (channels, H, W), one channel or RGB.
        size: Side of the square, pixels.

    Returns:
        (1, 3, size, size).
    """
    low, high = window
    values = np.nan_to_num(np.asarray(plane[:3], dtype=np.float32))
    values = np.clip((values - low) / max(high - low, 1e-12), 0, 1)
    rgb = torch.from_numpy(values).expand(3, -1, -1)
    mean, std = (rgb.new_tensor(t)[:, None, None] for t in (_MEAN, _STD))
    rows, columns = inner = inner_size((rgb.shape[1], rgb.shape[2]), size)
    resized = interpolate(
        rgb[None], size=inner, mode="bilinear", align_corners=False, antialias=True
    )
    return pad((resized - mean) / std, (0, size - columns, 0, size - rows))


def display_window(pixels: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the intensities of black and white, from a subsample of the voxels."""
    if pixels.dtype == np.uint8:
        return 0.0, 255.0
    values = pixels.reshape(-1)
    values = values[:: max(1, values.size // 1_000_000)].astype(np.float64)
    values = values[np.isfinite(values)]
    if values.size == 0:
        return 0.0, 1.0
    low, high = np.percentile(values, (0.5, 99.5))
    return float(low), float(high)
