"""Batches of unlabelled images for pre-training, each of one degree of anisotropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor

from pumit.errors import PumitError
from pumit.networks.pumit.anisotropy import MAX_DEGREE, Anisotropy
from pumit.preprocessing.normalization import Normalization
from pumit.training.loop.task import Batch
from pumit.training.pretraining.real_images import RealImages
from pumit.training.recipes.pretraining import CropSize
from pumit.training.synthesis.grid import chance, flip_and_turn, uniform
from pumit.training.synthesis.scene import draw_scene

# Batch size multiplier of each degree of anisotropy: thinner images come in larger batches.
IMAGES = {0: 1, 1: 1, 2: 2, 3: 3, 4: 4, 5: 8}
DEGREE_SHARES = {0: 0.22, 1: 0.22, 2: 0.22, 3: 0.14, 4: 0.06, 5: 0.14}
MEAN, DEVIATION = 0.45, 0.225  # statistics of photographs, close enough to those of scans


@dataclass
class ImageBatch(Batch):
    """Images of one degree of anisotropy.

    Attributes:
        image: Intensities in [0, 1], (B, 3, D, H, W).
        is_masked: Masked patches, bool (B, N), if the objective masks any.
    """

    image: Tensor
    da0: int
    cases: list[str] = field(default_factory=list)
    is_masked: Tensor | None = None

    def __len__(self) -> int:
        return len(self.image)

    @property
    def anisotropy(self) -> Anisotropy:
        """Anisotropy of the images at full resolution."""
        return Anisotropy(self.da0)

    @property
    def patches(self) -> int:
        """Number of patches per image, 16 x 16 in-plane voxels each."""
        d, h, w = self.image.shape[2:]
        return (d // self.anisotropy.depth_stride(4)) * (h // 16) * (w // 16)

    @property
    def voxels(self) -> int:
        """Number of voxels of all images."""
        return self.image[:, 0].numel()


def crop_shape(crop: CropSize, da0: int) -> tuple[int, int, int]:
    """Return the shape (d, h, w) of a crop at a degree of anisotropy, voxels.

    Source:
        PUMIT: depth T * max(16 >> DA, 1) with T = 4 for the tokenizer and 5 for the ViT, and one
        slice in 2D.
    """
    return (Anisotropy(da0).depth_at(crop.depth), crop.in_plane, crop.in_plane)


@dataclass
class ImageSource:
    """Source of crops of generated and real images.

    Attributes:
        crops: Crop sizes; each step draws one, with fewer crops if it is larger. A network with
            group norms must be trained on several sizes, since its output depends on the crop size.
        images: Real images, or None for generated ones only.
        batch_size: Crops of the first size per step, before the factor in `IMAGES`.
        generated_size: Largest in-plane size of a generated scan, which is then resized to the
            crop. With large values, drawing takes longer than training.
    """

    crops: Sequence[CropSize]
    _: KW_ONLY
    images: RealImages | None
    real_share: float
    batch_size: int
    generated_size: int = 64
    is_upright: bool = False

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> ImageBatch:
        """Draw a batch of one degree of anisotropy.

        Args:
            generator: CPU generator of this process and step.
            shared: Generator with the same state in every process, for the crop size, which
                determines the duration of a step.

        Raises:
            PumitError: If an image has another shape than the batch.
        """
        images, cases = [], []
        crop = self.crops[int(torch.randint(len(self.crops), (), generator=shared))]
        shape = crop_shape(crop, da0)
        fewer = math.prod(crop_shape(self.crops[0], da0)) / math.prod(shape)
        for _ in range(max(1, round(self.batch_size * IMAGES[da0] * fewer))):
            image, case = self._one(da0, shape, generator)
            if image.shape[1:] != shape:
                raise PumitError(
                    f"{case} has {tuple(image.shape[1:])} voxels; a batch holds images of one "
                    f"degree of anisotropy, here {da0}, all of {shape}."
                )
            if not self.is_upright:
                image = flip_and_turn(image, generator)
            images.append(varied(image, generator).expand(3, -1, -1, -1))
            cases.append(case)
        return ImageBatch(torch.stack(images), da0, cases)

    def _one(
        self, da0: int, shape: tuple[int, int, int], generator: torch.Generator
    ) -> tuple[Tensor, str]:
        if self.images is not None and chance(generator, self.real_share):
            found = self.images.draw(da0, shape, generator)
            if found is not None:
                return found
        image = draw_scene(da0, min(self.generated_size, shape[1]), generator).image
        scaling = Normalization().scaling(image.numpy())
        image = (image * scaling.factor + scaling.offset).clamp(0, 1)[None]
        if image.shape[1:] != shape:
            image = torch.nn.functional.interpolate(
                image[None], shape, mode="trilinear", align_corners=False
            )[0]
        return image, "generated"


def varied(image: Tensor, generator: torch.Generator) -> Tensor:
    """Augment brightness, contrast and gamma of intensities in [0, 1], as published.

    Source:
        PUMIT's pre-training: brightness and contrast 0.75..1.25 with probability 0.15 each, gamma
        0.7..1.5 with probability 0.3, half of the time on the inverted image.
    """
    if chance(generator, 0.15):
        image = image * (1 + uniform(generator, -0.25, 0.25))
    if chance(generator, 0.15):
        mean = image.mean()
        image = (image - mean) * uniform(generator, 0.75, 1.25) + mean
    image = image.clamp(0, 1)
    if chance(generator, 0.3):
        power = uniform(generator, 0.7, 1.5)
        image = 1 - (1 - image) ** power if chance(generator, 0.5) else image**power
    return image


def degrees_of(given: dict[int, float] | None) -> dict[int, float]:
    """Return the degrees of anisotropy that have a share; None means `DEGREE_SHARES`.

    Raises:
        PumitError: If a degree is not 0 to 5, or a share is negative or all are zero.
    """
    shares = DEGREE_SHARES if given is None else given
    if not all(da0 in range(MAX_DEGREE + 1) and share >= 0 for da0, share in shares.items()):
        raise PumitError(f"Degrees of anisotropy are 0 to {MAX_DEGREE} with shares, got {shares}.")
    if not sum(shares.values()) > 0:
        raise PumitError("No degree of anisotropy has a share above zero.")
    return {da0: share for da0, share in shares.items() if share > 0}


def standardised(image: Tensor) -> Tensor:
    """Map intensities in [0, 1] to about mean 0 and standard deviation 1, as in fine-tuning.

    Uses the same affine map for all images, which preserves brightness differences.
    """
    return (image - MEAN) / DEVIATION
