"""Batches of images without labels, of one degree of anisotropy each, for pre-training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from pumit.errors import PumitError
from pumit.networks.pumit.anisotropy import MAX_DEGREE, Anisotropy
from pumit.preprocessing.normalization import Normalization
from pumit.training.loop.task import Batch
from pumit.training.synthesis.grid import chance, uniform
from pumit.training.synthesis.scene import draw_scene

# Images of a step, times the batch size: thinner ones come in larger batches.
IMAGES = {0: 1, 1: 1, 2: 2, 3: 3, 4: 4, 5: 8}
DEGREE_SHARES = {0: 0.22, 1: 0.22, 2: 0.22, 3: 0.14, 4: 0.06, 5: 0.14}
MEAN, DEVIATION = 0.45, 0.225  # of photographs, and near enough to those of scans


@dataclass
class ImageBatch(Batch):
    """Images of one degree of anisotropy.

    Attributes:
        image: Intensities in [0, 1], (B, 3, D, H, W).
        is_masked: Hidden patches, bool (B, N), where the objective hides some.
    """

    image: Tensor
    da0: int
    cases: list[str] = field(default_factory=list)
    is_masked: Tensor | None = None

    def __len__(self) -> int:
        return len(self.image)

    @property
    def anisotropy(self) -> Anisotropy:
        """State of the images at full resolution."""
        return Anisotropy(self.da0)

    @property
    def patches(self) -> int:
        """Patches of 16 in-plane voxels of each image."""
        d, h, w = self.image.shape[2:]
        return (d // self.anisotropy.depth_stride(4)) * (h // 16) * (w // 16)

    @property
    def voxels(self) -> int:
        """Voxels of all images."""
        return self.image[:, 0].numel()


@dataclass(frozen=True)
class Crop:
    """Size of the crops of an isotropic image; thicker slices are fewer.

    Attributes:
        depth: Slices at isotropic spacing, a multiple of 16.
        in_plane: Rows and columns, a multiple of 16.

    Source:
        PUMIT: depth T * max(16 >> DA, 1) with T = 4 for the tokenizer and 5 for the ViT, and one
        slice in 2D.
    """

    depth: int = 64
    in_plane: int = 128

    def __post_init__(self) -> None:
        if min(self.depth, self.in_plane) < 16 or self.depth % 16 or self.in_plane % 16:
            raise ValueError(
                f"Crops must be multiples of 16, got {self.depth} x {self.in_plane} voxels."
            )

    def shape(self, da0: int) -> tuple[int, int, int]:
        """Voxels (d, h, w) at a degree of anisotropy."""
        return (Anisotropy(da0).depth_at(self.depth), self.in_plane, self.in_plane)


class Images(Protocol):
    """Source of real images."""

    def draw(
        self, da0: int, shape: tuple[int, int, int], generator: torch.Generator
    ) -> tuple[Tensor, str] | None:
        """Return a crop (C, D, H, W) in [0, 1] and its name; None where none has the degree."""


@dataclass
class ImageSource:
    """Draw crops of generated and of real images.

    Attributes:
        crops: Their sizes; each step draws one, and fewer of them the larger it is. A network with
            group norms has to see several: what it makes of an image depends on how much of it
            it sees.
        images: Real images, or None for generated ones only.
        batch_size: Crops of the first size per step, times `IMAGES`.
        generated_size: In-plane voxels of a generated scan at most; it is enlarged to the crop.
            Drawing takes longer than training where it is large.
        is_upright: Whether crops stay as they lie, neither flipped nor turned.
    """

    crops: Crop | Sequence[Crop]
    _: KW_ONLY
    images: Images | None
    real_share: float
    batch_size: int
    generated_size: int = 64
    is_upright: bool = False

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> ImageBatch:
        """Draw a batch of one degree.

        Args:
            generator: Generator of this process and step, on the CPU.
            shared: Generator in the same state in every process, for the size, which decides how
                long a step takes.

        Raises:
            PumitError: If an image is of another degree.
        """
        images, cases = [], []
        crops = (self.crops,) if isinstance(self.crops, Crop) else self.crops
        crop = crops[int(torch.randint(len(crops), (), generator=shared))]
        shape = crop.shape(da0)
        fewer = math.prod(crops[0].shape(da0)) / math.prod(shape)
        for _ in range(max(1, round(self.batch_size * IMAGES[da0] * fewer))):
            image, case = self._one(da0, shape, generator)
            if image.shape[1:] != shape:
                raise PumitError(
                    f"{case} has {tuple(image.shape[1:])} voxels; a batch holds images of one "
                    f"degree of anisotropy, here {da0}, all of {shape}."
                )
            if not self.is_upright:
                image = turned(image, generator)
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


def turned(image: Tensor, generator: torch.Generator) -> Tensor:
    """Random flips and quarter turns of (C, D, H, W); H equals W."""
    flips = [axis for axis in (1, 2, 3) if chance(generator, 0.5)]
    image = image.flip(flips) if flips else image
    return torch.rot90(image, int(torch.randint(4, (), generator=generator)), dims=(2, 3))


def varied(image: Tensor, generator: torch.Generator) -> Tensor:
    """Random brightness, contrast and gamma of intensities in [0, 1], as published.

    Source:
        PUMIT's pre-training: shift by 0.25 and contrast 0.75..1.25 with probability 0.15 each,
        gamma 0.7..1.5 with probability 0.3, half of the time of the inverted image.
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
    """Shares of the degrees of anisotropy: those of a recipe, else the usual ones.

    Raises:
        ValueError: If a degree is not 0 to 5, or a share is negative or all are zero.
    """
    shares = dict(DEGREE_SHARES if given is None else given)
    if not all(da0 in range(MAX_DEGREE + 1) and share >= 0 for da0, share in shares.items()):
        raise ValueError(f"Degrees of anisotropy are 0 to {MAX_DEGREE} with shares, got {shares}.")
    if not sum(shares.values()) > 0:
        raise ValueError("No degree of anisotropy has a share above zero.")
    return shares


def standardised(image: Tensor) -> Tensor:
    """Map intensities in [0, 1] to about the mean 0 and deviation 1 of fine-tuning's z-scores.

    One affine map for all images: how bright one is stays visible.

    Args:
        image: Any shape.
    """
    return (image - MEAN) / DEVIATION
