"""Crops of real images at a given degree of anisotropy."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pumit.errors import PumitError, VolumeError
from pumit.networks.pumit.anisotropy import MAX_DEGREE
from pumit.preprocessing.fields import Field, Pyramid
from pumit.preprocessing.pretraining_image import prepare_file
from pumit.training.data.volume_cache import VolumeCache
from pumit.training.synthesis.grid import chance, rotation_of, uniform
from pumit.training.synthesis.scene import slice_ratio_for

logger = logging.getLogger(__name__)

TRIES = 8
SMALLEST_ZOOM, LARGEST_ZOOM = 0.75, 2.0
WIDEST = 2.5  # largest width of a crop over that of its image; the rest is air
EMPTY = 0.02  # upper intensity limit of air, for a range of 0 to 1
# Smallest share of foreground in a crop, and share of crops without that limit.
LEAST_FOREGROUND, ANYWHERE = 0.15, 0.15
TURNED = 0.3  # share of rotated crops
LEAST_TO_SHARE = 16  # files per process below which all processes draw from all files
CACHE_SETTINGS: Mapping[str, Any] = {"images": "prepared for pre-training, 8 bits"}


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
        self.cache = cache
        self.in_memory = in_memory
        self.is_upright = is_upright
        self._images: OrderedDict[int, list[Pyramid]] = OrderedDict()
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
