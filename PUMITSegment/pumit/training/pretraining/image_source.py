"""Batches of unlabelled images, generated and real, each batch of one degree of anisotropy."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pumit.errors import PumitError, VolumeError
from pumit.networks.pumit.anisotropy import MAX_DEGREE, Anisotropy
from pumit.preprocessing.fields import Field, Pyramid
from pumit.preprocessing.normalization import Normalization
from pumit.preprocessing.pretraining_image import prepare_file
from pumit.training.data.volume_cache import VolumeCache
from pumit.training.loop.task import Batch
from pumit.training.recipes.pretraining import CropSize
from pumit.training.synthesis.grid import chance, flip_and_turn, rotation_of, uniform
from pumit.training.synthesis.scene import draw_scene, slice_ratio_for

logger = logging.getLogger(__name__)

# Batch size multiplier of each degree of anisotropy: thinner images come in larger batches.
IMAGES = {0: 1, 1: 1, 2: 2, 3: 3, 4: 4, 5: 8}
DEGREE_SHARES = {0: 0.22, 1: 0.22, 2: 0.22, 3: 0.14, 4: 0.06, 5: 0.14}
MEAN, DEVIATION = 0.45, 0.225  # statistics of photographs, close enough to those of scans
TRIES = 8
SMALLEST_ZOOM, LARGEST_ZOOM = 0.75, 2.0
WIDEST = 2.5  # largest width of a crop over that of its image; the rest is air
EMPTY = 0.02  # upper intensity limit of air, for a range of 0 to 1
# Smallest share of foreground in a crop, and share of crops without that limit.
LEAST_FOREGROUND, ANYWHERE = 0.15, 0.15
TURNED = 0.3  # share of rotated crops
LEAST_TO_SHARE = 16  # files per process below which all processes draw from all files
CACHE_SETTINGS: Mapping[str, Any] = {"images": "prepared for pre-training, 8 bits"}


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


@dataclass(frozen=True)
class ImageFile:
    """An image to train on.

    Attributes:
        depth_axis: Depth axis as stated by the publisher; see `find_depth_axis`.
        series: SeriesInstanceUID if the folder holds several series.
        is_found: Whether it was found by searching a folder; if unusable, it is then skipped.
    """

    path: Path
    name: str
    weight: float = 1.0
    depth_axis: str | None = None
    series: str | None = None
    is_found: bool = False


class RealImages:
    """Source of crops from image files, which are read on first use.

    Args:
        in_memory: Number of images kept in memory (least recently used are dropped).
        share: Rank and number of processes. Each process draws from its own part of the files, and
            reads only these, unless there are too few.
    """

    def __init__(
        self,
        files: Sequence[ImageFile],
        *,
        cache: VolumeCache | None = None,
        in_memory: int = 64,
        share: tuple[int, int] = (0, 1),
        is_upright: bool = False,
    ) -> None:
        if not files:
            raise PumitError("There are no images to train on; check the recipe's patterns.")
        number, processes = share
        is_shared = len(files) >= LEAST_TO_SHARE * processes
        self.files = list(files[number::processes] if is_shared else files)
        self.weights = torch.tensor([f.weight for f in self.files])
        if not self.weights.any():
            raise PumitError("All images have a weight of 0; check the recipe's real_images.")
        self.cache = cache
        self.in_memory = in_memory
        self.is_upright = is_upright
        self._images: OrderedDict[int, list[Pyramid]] = OrderedDict()
        self._without: set[int] = set()
        logger.info("%d real images", len(self.files))

    def image(self, index: int) -> list[Pyramid]:
        """Return the channels of an image, depth axis first, 0..255; from memory if possible.

        Raises:
            VolumeError: If it cannot be used; the message names it.
        """
        if index in self._images:
            self._images.move_to_end(index)
            return self._images[index]
        file = self.files[index]
        make = partial(prepared, file, is_upright=self.is_upright)
        try:
            if self.cache is None:
                arrays = make()
            else:
                arrays = self.cache.get(file.path, make, part=file.series or "")
        except (VolumeError, PumitError) as error:
            raise VolumeError(f"{file.name}: {error}") from None
        spacing = tuple(float(s) for s in arrays["spacing_mm"])
        found = [Pyramid(c, spacing) for c in arrays["levels"]]  # type: ignore[arg-type]
        self._images[index] = found
        if len(self._images) > self.in_memory:
            self._images.popitem(last=False)
        return found

    def draw(
        self, da0: int, shape: tuple[int, int, int], generator: torch.Generator
    ) -> tuple[Tensor, str] | None:
        """Draw a crop (C, D, H, W) in [0, 1], C 1 or 3, and its name; None if no try succeeds."""
        for _ in range(TRIES):
            index = int(torch.multinomial(self.weights, 1, generator=generator))
            try:
                channels = self.image(index)
            except VolumeError as error:
                self._pass_over(index, error)
                continue
            if channels[0].array.shape[0] == 1 and da0 < MAX_DEGREE:
                continue
            turned = 0.0 if self.is_upright else TURNED
            crop = draw_crop(channels, da0, shape, generator, turned=turned)
            if crop is not None:
                return crop, self.files[index].name
        if da0 not in self._without:
            self._without.add(da0)
            logger.warning(
                "Of %d scans drawn, none has a crop of degree %d of anisotropy (2D images have %d "
                "only); a generated one takes its place. `degrees` of the recipe chooses degrees.",
                *(TRIES, da0, MAX_DEGREE),
            )
        return None

    def _pass_over(self, index: int, error: VolumeError) -> None:
        """Exclude an unusable scan found by search; raise the error for one given by name."""
        if not self.files[index].is_found:
            raise error
        self.weights[index] = 0
        left = int((self.weights > 0).sum())
        logger.warning("A scan among those that were found cannot be used; %d are left.", left)
        if not self.weights.any():
            raise VolumeError(f"None of the scans can be used; the last one: {error}") from None


def prepared(file: ImageFile, *, is_upright: bool = False) -> dict[str, npt.NDArray[Any]]:
    """Pre-process an image: `levels`, 0..255, (C, D, H, W), and `spacing_mm`, (3,)."""
    array, spacing = prepare_file(
        file.path, file.depth_axis, series=file.series, is_upright=is_upright
    )
    # An 8-bit step is a sixteenth of the noise of most scans, and takes a quarter of the memory.
    levels = np.rint(array * 255).astype(np.uint8)
    return {"levels": levels, "spacing_mm": np.asarray(spacing)}


def draw_crop(
    channels: Sequence[Pyramid],
    da0: int,
    shape: tuple[int, int, int],
    generator: torch.Generator,
    *,
    turned: float = TURNED,
) -> Tensor | None:
    """Draw a crop of one degree of anisotropy from an image.

    Voxels are scaled in-plane by 0.75 to 2, and some crops are rotated. Slices are averaged if the
    degree needs thicker ones; in-plane voxels are enlarged if it needs thinner ones.

    Args:
        channels: Channels of the image, 0..255. Three channels (colour) are kept together; of any
            other number one is drawn.
        shape: Voxels (d, h, w).

    Returns:
        (C, D, H, W) in [0, 1]; None if the image does not allow the crop, or if the crop is nearly
        empty (except for a share of crops).
    """
    where = _field(channels[0], da0, shape, generator)
    if where is None:
        return None
    rotation = _rotation(generator, is_isotropic=da0 == 0) if chance(generator, turned) else None
    if len(channels) not in (1, 3):
        channels = [channels[int(torch.randint(len(channels), (), generator=generator))]]
    crops = []
    for channel in channels:
        crop, inside = map(torch.from_numpy, channel.sample(where, rotation))
        crops.append((crop / 255 * (inside > 0)).clamp(0, 1))
    out = torch.stack(crops)
    # Accept some nearly empty crops, since windows of a whole scan may contain only air.
    least = 0.0 if chance(generator, ANYWHERE) else LEAST_FOREGROUND
    return out if float((out > EMPTY).float().mean()) >= least else None


def _field(
    pyramid: Pyramid, da0: int, shape: tuple[int, int, int], generator: torch.Generator
) -> Field | None:
    """Draw position and voxel size of a crop; None if it would be much wider than the image."""
    spacing = np.asarray(pyramid.spacing_mm, dtype=np.float64)
    size = np.asarray(pyramid.array.shape)
    # 1. In-plane voxel size, sometimes scaled, but only as far as the image fills the crop.
    fit = float(size[1:].min()) / shape[1]  # width of the image over that of the crop
    step = 1.0
    if chance(generator, 0.5):
        step = uniform(generator, SMALLEST_ZOOM, max(min(fit, LARGEST_ZOOM), SMALLEST_ZOOM))
    in_plane = float(np.sqrt(spacing[1] * spacing[2]))
    # 2. Slice spacing of the degree, not finer than that of the image.
    ratio = slice_ratio_for(da0, generator)
    wide = in_plane * step
    if da0 < MAX_DEGREE:
        wide = max(wide, float(spacing[0]) / ratio)
    if wide > in_plane * max(fit, 1.0) * WIDEST:
        return None
    steps = np.array([wide * ratio, wide, wide]) / spacing
    if da0 == MAX_DEGREE:
        steps[0] = 1.0
    # 3. Position anywhere in the image.
    room = np.maximum(size - np.asarray(shape) * steps, 0)
    centre = (size - 1) / 2 + [uniform(generator, -0.5, 0.5) * float(r) for r in room]
    if da0 == MAX_DEGREE:
        centre[0] = np.clip(np.round(centre[0]), 0, size[0] - 1)
    c, s = (tuple(float(v) for v in values) for values in (centre, steps))
    return Field((c[0], c[1], c[2]), (s[0], s[1], s[2]), shape, ratio, da0)


def _rotation(generator: torch.Generator, *, is_isotropic: bool) -> npt.NDArray[np.float64]:
    """Draw a rotation: up to 90 degrees about depth; if isotropic, up to 30 about other axes."""
    limits = (90.0, 30.0, 30.0) if is_isotropic else (90.0, 0.0, 0.0)
    return rotation_of([math.radians(uniform(generator, -limit, limit)) for limit in limits])
