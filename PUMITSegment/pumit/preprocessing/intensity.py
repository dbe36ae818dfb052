"""Intensities as the promptable network sees them, whatever the modality."""

from __future__ import annotations

import torch
from torch import Tensor

BINS = 128
CLIP = 4.0  # a histogram bin counts at most four times the average: air must not fill the scale


def _quantile(values: Tensor, q: float) -> float:
    """Quantile of a 1-D tensor through its k-th value (torch.quantile limits the size)."""
    k = min(max(round(q * (values.numel() - 1)) + 1, 1), values.numel())
    return float(values.kthvalue(k).values)


def equalizing_steps(values: Tensor) -> Tensor:
    """Where contrast-limited histogram equalisation puts the borders of the bins.

    Args:
        values: Intensities in [0, 1], any shape.

    Returns:
        Shape (BINS + 1,), rising from 0 to 1.
    """
    counts = torch.histc(values.float(), BINS, 0, 1)
    counts = counts.clamp_max(CLIP * counts.mean())
    steps = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    return steps / steps[-1].clamp_min(1e-12)


def equalized(linear: Tensor, steps: Tensor) -> Tensor:
    """Equalise intensities in [0, 1] by given steps, linear within a bin; differentiable.

    Beyond 0 and 1 the line of the outermost bin goes on.
    """
    position = linear * BINS
    lower = position.detach().floor().clamp(0, BINS - 1).long()
    return steps[lower] + (steps[lower + 1] - steps[lower]) * (position - lower)


def field_channels(image: Tensor, inside: Tensor) -> Tensor:
    """Image channels of a field: linear intensity, equalised intensity, inside the volume.

    Both are measured on the field itself, so that a small field on soft tissue in CT gets its own
    contrast. The equalised channel spreads crowded intensities apart (contrast-limited histogram
    equalisation over the field).

    Args:
        image: Intensities, shape (D, H, W), any range.
        inside: 1 where the field lies in the volume, 0 beyond, shape (D, H, W).

    Returns:
        Shape (3, D, H, W), each about [0, 1]; 0 outside of the volume.
    """
    is_inside = inside > 0.5
    values = image[is_inside]
    if values.numel() == 0:
        return torch.zeros((3, *image.shape), dtype=torch.float32, device=image.device)
    low, high = _quantile(values, 0.005), _quantile(values, 0.995)
    if not high > low:
        low, high = float(values.min()), float(values.max())
    linear = ((image - low) / max(high - low, 1e-12)).clamp(0, 1)
    equal = equalized(linear, equalizing_steps(linear[is_inside]))
    mask = is_inside.to(linear.dtype)
    return torch.stack((linear * mask, equal * mask, mask)).float()
