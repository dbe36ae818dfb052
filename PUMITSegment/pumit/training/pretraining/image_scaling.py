"""Intensities of unlabelled images as a network sees them that is later given z-scores."""

from __future__ import annotations

from torch import Tensor

MEAN, DEVIATION = 0.45, 0.225  # of photographs, and near enough to those of scans


def standardised(image: Tensor) -> Tensor:
    """Map intensities in [0, 1] to about the mean 0 and deviation 1 of fine-tuning's z-scores.

    One affine map for all images: how bright one is stays visible.

    Args:
        image: Any shape.
    """
    return (image - MEAN) / DEVIATION
