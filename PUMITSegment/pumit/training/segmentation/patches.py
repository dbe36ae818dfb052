"""Batches of patches with their labels: cut at random or by classes, then varied."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pumit.networks import monai
from pumit.training.loop.task import Batch
from pumit.training.recipes.segmentation import AugmentationSettings
from pumit.training.segmentation.prepared_cases import PreparedCase

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


@dataclass(frozen=True, eq=False)
class SegmentationBatch(Batch):
    """Patches.

    Attributes:
        image: (B, C, d, h, w), float32.
        labels: (B, d, h, w), uint8, `UNKNOWN` where that is not known.
        drawn: Classes that were drawn in each patch's case, bool (B, K); None for all in all.
    """

    image: Tensor
    labels: Tensor
    cases: list[str]
    drawn: Tensor | None = None

    def __len__(self) -> int:
        return len(self.image)

    @property
    def voxels(self) -> int:
        """How many voxels it holds, for the log."""
        return self.labels.numel()


@dataclass
class SegmentationSource:
    """Draw batches; a function only of the generator's state.

    Attributes:
        patch: Size of the patches (d, h, w).
        balanced_share: Part of the patches whose middle lies in a class drawn with even chances
            among those of the case; the others lie anywhere, or around a voxel of which it is
            known what it is, where that is not so everywhere.
    """

    cases: Sequence[PreparedCase]
    _: KW_ONLY
    patch: Shape
    batch_size: int
    balanced_share: float
    augmentation: Augmentation

    def draw(
        self, da0: int, generator: torch.Generator, shared: torch.Generator
    ) -> SegmentationBatch:
        """Draw a batch; the network sees one spacing, so its degree of anisotropy is of no use."""
        seed = int(torch.randint(2**31, (), generator=generator))
        rng = np.random.RandomState(seed)
        images, labels, cases = [], [], []
        for _ in range(self.batch_size):
            case = self.cases[rng.randint(len(self.cases))]
            affine = self.augmentation.movement(rng)
            size = self.augmentation.source_size(affine)
            start = self._start(case, size, rng)
            image = torch.from_numpy(cut(case.image, start, size, case.lowest))
            label = torch.from_numpy(cut(case.labels[None], start, size, 0)[0])
            image, label = self.augmentation(image, label, affine, rng)
            images.append(image)
            labels.append(label)
            cases.append(case)
        names = [case.name for case in cases]
        return SegmentationBatch(torch.stack(images), torch.stack(labels), names, _drawn(cases))

    def _start(
        self, case: PreparedCase, size: Shape, rng: np.random.RandomState
    ) -> npt.NDArray[np.int64]:
        """First voxel of a patch: inside of the case, or around it where the case is smaller."""
        slack = np.array(case.labels.shape) - np.array(size)
        low, high = np.minimum(slack, 0), np.maximum(slack, 0)
        anywhere = np.array([rng.randint(a, b + 1) for a, b in zip(low, high, strict=True)])
        if not case.places or rng.rand() >= self.balanced_share:
            if case.known is None or not len(case.known):
                return anywhere
            places = case.known
        else:
            classes = sorted(case.places)
            places = case.places[classes[rng.randint(len(classes))]]
        middle = places[rng.randint(len(places))].astype(np.int64) - np.array(size) // 2
        return np.where(slack > 0, np.clip(middle, low, high), anywhere)


def _drawn(cases: Sequence[PreparedCase]) -> Tensor | None:
    """Classes that were drawn in each case, (B, K); None for all in all."""
    count = next((len(case.drawn) for case in cases if case.drawn is not None), 0)
    if not count:
        return None
    rows = [np.ones(count, dtype=bool) if c.drawn is None else c.drawn for c in cases]
    return torch.from_numpy(np.stack(rows))


def cut(
    array: npt.NDArray[np.generic], start: npt.NDArray[np.int64], size: Shape, beyond: float
) -> npt.NDArray[np.generic]:
    """Copy a box out of (C, d, h, w); what lies beyond the array gets one value.

    Args:
        start: First voxel (d, h, w), which may be negative.
        size: Size (d, h, w).
        beyond: Value outside.

    Returns:
        (C, *size).
    """
    shape = np.array(array.shape[1:])
    low = np.clip(start, 0, shape)
    high = np.clip(start + np.array(size), 0, shape)
    out = np.full((array.shape[0], *size), beyond, dtype=array.dtype)
    source = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    target = tuple(slice(a, b) for a, b in zip(low - start, high - start, strict=True))
    out[(slice(None), *target)] = array[(slice(None), *source)]
    return out
