"""Batches of augmented patches with their labels, sampled at random or by class."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pumit.networks import monai
from pumit.training.loop.task import Batch
from pumit.training.recipes.segmentation import SIDED, AugmentationSettings
from pumit.training.segmentation.prepared_cases import PreparedCase

Shape = tuple[int, int, int]
# With thicker slices relative to the pixels, patches are rotated in-plane only.
FLAT = 3.0


def flip_axes(settings: AugmentationSettings, classes: Iterable[str]) -> tuple[int, ...]:
    """Return the axes 0..2 of (d, h, w) that may be flipped."""
    if settings.flips != "auto":
        return tuple("dhw".index(letter) for letter in sorted(set(settings.flips)))
    return () if any(SIDED.search(name) for name in classes) else (0, 1, 2)


class Augmentation:
    """Spatial and intensity augmentation of a patch.

    Args:
        patch: Size of the result (d, h, w).
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
        """Return the random affine transform of a patch, or None for none."""
        turn = rng.rand() < self.settings.rotation
        scale = rng.rand() < self.settings.scaling
        if not (turn or scale):
            return None
        third = math.pi / 6
        angles = ((math.pi, 0.0, 0.0) if self.is_flat else (third,) * 3) if turn else (0.0,) * 3
        # One output voxel covers 1/1.4 to 1/0.7 input voxels. Thick slices are not scaled in depth.
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
        """Return the size of the region that a patch is cut from, (d, h, w)."""
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
        """Augment a patch.

        Args:
            image: (C, d, h, w), with the size of `source_size`.
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
    """Batch of patches.

    Attributes:
        image: (B, C, d, h, w), float32.
        labels: (B, d, h, w), uint8, `UNKNOWN` for unannotated voxels.
        drawn: Annotated classes of each patch's case, bool (B, K); None if all were in all cases.
    """

    image: Tensor
    labels: Tensor
    cases: list[str]
    drawn: Tensor | None = None

    def __len__(self) -> int:
        return len(self.image)

    @property
    def voxels(self) -> int:
        """Number of voxels, for the log."""
        return self.labels.numel()


@dataclass
class SegmentationSource:
    """Source of random batches, which depend only on the generator's state.

    Attributes:
        patch: Patch size (d, h, w).
        balanced_share: Share of patches centred on a voxel of a class drawn uniformly among those
            of the case. The others are anywhere or, in partially annotated cases, around an
            annotated voxel.
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
        """Draw a batch; the degree of anisotropy is ignored, as there is only one spacing."""
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
        """Return the first voxel of a patch, within the case or, if it is smaller, around it."""
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
    """Return the annotated classes of each case, (B, K); None if all were in all cases."""
    count = next((len(case.drawn) for case in cases if case.drawn is not None), 0)
    if not count:
        return None
    rows = [np.ones(count, dtype=bool) if c.drawn is None else c.drawn for c in cases]
    return torch.from_numpy(np.stack(rows))


def cut(
    array: npt.NDArray[np.generic], start: npt.NDArray[np.int64], size: Shape, beyond: float
) -> npt.NDArray[np.generic]:
    """Crop a box (d, h, w) out of an array (C, d, h, w), padded with a constant.

    The first voxel `start` may be negative.
    """
    shape = np.array(array.shape[1:])
    low = np.clip(start, 0, shape)
    high = np.clip(start + np.array(size), 0, shape)
    out = np.full((array.shape[0], *size), beyond, dtype=array.dtype)
    source = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    target = tuple(slice(a, b) for a, b in zip(low - start, high - start, strict=True))
    out[(slice(None), *target)] = array[(slice(None), *source)]
    return out
