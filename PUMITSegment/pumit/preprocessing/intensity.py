"""Intensity pre-processing for the promptable network, independent of modality."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
BINS = 128
CLIP = 4.0  # clip limit of histogram bins, times their mean, so that air does not dominate
# Above this, the difference of two values may overflow float32.
HALF_OF_SINGLE = float(np.finfo(np.float32).max) / 2


def equalizing_steps(values: Floats) -> Floats:
    """Compute the mapping of contrast-limited histogram equalisation at the bin borders.

    Args:
        values: Intensities in [0, 1], any shape.

    Returns:
        Shape (BINS + 1,), rising from 0 to 1.
    """
    bins = np.minimum(values.reshape(-1) * np.float32(BINS), BINS - 1).astype(np.uint8)
    counts = np.bincount(bins, minlength=BINS).astype(np.float32)
    counts = np.minimum(counts, CLIP * counts.mean())
    steps = np.concatenate((np.zeros(1, np.float32), counts.cumsum(dtype=np.float32)))
    return np.asarray(steps / max(float(steps[-1]), 1e-12))


def equalized(linear: Floats, steps: Floats) -> Floats:
    """Equalise intensities in [0, 1] with the output of `equalizing_steps`, linear within a bin."""
    position = linear * np.float32(BINS)
    lower = np.minimum(position, BINS - 1).astype(np.intp)
    position -= lower
    return np.asarray(steps[lower] + np.diff(steps)[lower] * position)


def field_channels(image: Floats, inside: Floats) -> Floats:
    """Compute a field's input channels: linear intensity, equalised intensity, inside mask.

    Scaling and equalisation (contrast-limited, of the histogram) use only the field itself, so a
    small field on soft tissue in CT gets its own contrast.

    Args:
        image: Intensities, shape (D, H, W), any range.
        inside: 1 inside the volume, 0 outside, shape (D, H, W).

    Returns:
        Shape (3, D, H, W), each in [0, 1]; 0 outside the volume.
    """
    is_inside = inside > 0.5
    values = image[is_inside]
    channels = np.zeros((3, *image.shape), dtype=np.float32)
    if values.size == 0:
        return channels
    ends = [round(q * (values.size - 1)) for q in (0.005, 0.995)]
    low, high = (float(v) for v in np.partition(values, ends)[ends])
    if not high > low:
        low, high = float(values.min()), float(values.max())
    if high - low > HALF_OF_SINGLE:
        values, low, high = values * np.float32(0.25), low / 4, high / 4
    with np.errstate(over="ignore"):  # overflow is clipped below
        linear = (values - np.float32(low)) / np.float32(max(high - low, 1e-12))
    linear = linear.clip(0, 1)
    channels[0][is_inside] = linear
    channels[1][is_inside] = equalized(linear, equalizing_steps(linear))
    channels[2] = is_inside
    return channels
