"""Vary patches as other scanners, positions and people would."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from pumit.networks import monai
from pumit.training.recipes.segmentation import AugmentationSettings

Shape = tuple[int, int, int]
# Where slices lie this many times farther apart than pixels, turning is done within them.
FLAT = 3.0
# Classes that a mirror would turn into others.
SIDED = re.compile(
    r"(^|[^a-z])(left|right|anterior|posterior|superior|inferior|upper|lower|medial|lateral|"
    r"front|back|ventral|dorsal|cranial|caudal|l|r|lt|rt|links|rechts)([^a-z]|$)",
    re.IGNORECASE,
)


def flip_axes(settings: AugmentationSettings, classes: Iterable[str]) -> tuple[int, ...]:
    """Axes 0..2 of (d, h, w) that are mirrored."""
    if settings.flips != "auto":
        return tuple("dhw".index(letter) for letter in sorted(set(settings.flips)))
    return () if any(SIDED.search(name) for name in classes) else (0, 1, 2)


class Augmentation:
    """Turn, scale, mirror and disturb a patch.

    Args:
        patch: Size of the result (d, h, w).
        flip_axes: Axes that may be mirrored.
    """

    def __init__(
        self,
        settings: AugmentationSettings,
        patch: Shape,
        spacing_mm: tuple[float, float, float],
        flip_axes: tuple[int, ...],
    ) -> None:
        self.settings = settings
        self.patch = patch
        self.flip_axes = flip_axes
        self.is_flat = patch[0] == 1 or spacing_mm[0] > FLAT * max(spacing_mm[1:])
        s = settings
        self._intensities = monai.Compose(
            [
                monai.RandGaussianNoise(prob=s.noise, std=0.3),
                monai.RandGaussianSmooth((0.5, 1.0), (0.5, 1.0), (0.5, 1.0), prob=s.blur),
                monai.RandScaleIntensity(factors=0.25, prob=s.brightness),
                monai.RandScaleIntensityFixedMean(factors=0.25, prob=s.contrast),
                monai.RandSimulateLowResolution(prob=s.low_resolution, zoom_range=(0.5, 1.0)),
                monai.RandAdjustContrast(prob=0.75 * s.gamma, gamma=(0.7, 1.5), retain_stats=True),
                monai.RandAdjustContrast(
                    prob=0.25 * s.gamma, gamma=(0.7, 1.5), retain_stats=True, invert_image=True
                ),
            ]
        )

    def movement(self, rng: np.random.RandomState) -> monai.RandAffine | None:
        """Return the movement of one patch, or None where it stays as it is."""
        turn = rng.rand() < self.settings.rotation
        scale = rng.rand() < self.settings.scaling
        if not (turn or scale):
            return None
        third = math.pi / 6
        angles = ((math.pi, 0.0, 0.0) if self.is_flat else (third,) * 3) if turn else (0.0,) * 3
        # A step of the output covers 1/1.4 to 1/0.7 of one of the input; in thick slices the
        # depth keeps its size.
        sizes = ((-0.28, 0.42),) * 3 if scale else ((0.0, 0.0),) * 3
        if self.is_flat:
            sizes = ((0.0, 0.0), *sizes[1:])
        affine = monai.RandAffine(
            prob=1.0,
            rotate_range=tuple((-a, a) for a in angles),
            scale_range=sizes,
            spatial_size=self.patch,
            padding_mode="border",
        )
        return affine.set_random_state(seed=rng.randint(2**31))

    def source_size(self, affine: monai.RandAffine | None) -> Shape:
        """How much of a case a patch is made of."""
        if affine is None:
            return self.patch
        d, h, w = (
            n if i == 0 and self.is_flat else math.ceil(1.4 * n) for i, n in enumerate(self.patch)
        )
        return (d, h, w)

    def __call__(
        self,
        image: Tensor,
        labels: Tensor,
        affine: monai.RandAffine | None,
        rng: np.random.RandomState,
    ) -> tuple[Tensor, Tensor]:
        """Make a patch.

        Args:
            image: (C, d, h, w) of the size that `source_size` says.
            labels: (d, h, w), uint8.
            affine: Movement, of `movement`.

        Returns:
            Image (C, *patch) and labels (*patch).
        """
        if affine is not None:
            image = monai.convert_to_tensor(affine(image, mode="bilinear"), track_meta=False)
            moved = affine(labels[None].float(), mode="nearest", randomize=False)
            labels = monai.convert_to_tensor(moved, track_meta=False)[0].to(torch.uint8)
        flipped = [a for a in self.flip_axes if rng.rand() < 0.5]
        if flipped:
            image = image.flip([a + 1 for a in flipped])
            labels = labels.flip(flipped)
        self._intensities.set_random_state(seed=rng.randint(2**31))
        varied: Tensor = monai.convert_to_tensor(self._intensities(image), track_meta=False)
        return varied.float(), labels
