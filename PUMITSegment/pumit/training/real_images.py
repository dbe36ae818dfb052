"""Crops of real images at the degree of anisotropy that is asked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pumit.errors import PumitError
from pumit.networks.pumit.anisotropy import MAX_DEGREE
from pumit.preprocessing.fields import Field, Pyramid, depth_first
from pumit.preprocessing.normalization import Normalization
from pumit.training.synthesis.grid import chance, uniform
from pumit.training.synthesis.scene import slice_ratio_for
from pumit.volume import Volume

logger = logging.getLogger(__name__)

TRIES = 8
LARGEST_ZOOM, SMALLEST_ZOOM = 2.0, 0.75
WIDEST = 1.25  # a crop may be so much wider than its image; the rest is air
EMPTY = 0.02  # of the range: below it is air
LEAST_FOREGROUND = 0.15


@dataclass
class RealImage:
    """An image with its depth axis first.

    Attributes:
        name: For messages.
        pyramid: Intensities in [0, 1], stored as bytes.
    """

    name: str
    pyramid: Pyramid

    @property
    def is_flat(self) -> bool:
        """Whether it is one slice."""
        return self.pyramid.array.shape[0] == 1


def load_image(path: Path, name: str) -> RealImage:
    """Read an image, its intensities between the percentiles 0.5 and 99.5 as 0..255."""
    volume = Volume.read(path)
    array = volume.array if volume.array.ndim == 3 else volume.array[0]
    order = depth_first(volume.spacing_mm, array.shape)
    array = np.asarray(array.transpose(order), dtype=np.float32)
    scaling = Normalization().scaling(array)
    unit = np.clip(array * scaling.factor + scaling.offset, 0, 1)
    spacing = [volume.spacing_mm[a] for a in order]
    # Eight bits are a sixteenth of the noise of most scans, and a quarter of the memory.
    levels = np.rint(unit * 255).astype(np.uint8)
    return RealImage(name, Pyramid(levels, (spacing[0], spacing[1], spacing[2])))


class RealImages:
    """Draw crops from image files.

    Args:
        files: Images with their names.
    """

    def __init__(self, files: Sequence[tuple[Path, str]]) -> None:
        if not files:
            raise PumitError("There are no images to train on; check the recipe's patterns.")
        self.images = [load_image(path, name) for path, name in files]
        for image in self.images:
            _ = image.pyramid.levels  # once, and not in every worker process
        logger.info("%d real images", len(self.images))

    def draw(
        self, da0: int, shape: tuple[int, int, int], generator: torch.Generator
    ) -> tuple[Tensor, str] | None:
        """A crop (1, D, H, W) in [0, 1] and its name; None where no try gave one."""
        for _ in range(TRIES):
            image = self.images[int(torch.randint(len(self.images), (), generator=generator))]
            if image.is_flat and da0 < MAX_DEGREE:
                continue
            crop = draw_crop(image.pyramid, da0, shape, generator)
            if crop is not None:
                return crop[None], image.name
        return None


def draw_crop(
    pyramid: Pyramid, da0: int, shape: tuple[int, int, int], generator: torch.Generator
) -> Tensor | None:
    """Draw a crop of one degree of anisotropy from an image, (D, H, W) in [0, 1].

    In-plane the image is zoomed by 0.75 to 2; slices are joined where the degree asks for thicker
    ones, and voxels are widened where it asks for thinner ones.

    Returns:
        The crop, or None where the image cannot give one, or the drawn place is nearly empty.
    """
    spacing = np.asarray(pyramid.spacing_mm, dtype=np.float64)
    size = np.asarray(pyramid.array.shape)
    fit = float(size[1:].min()) / shape[1]  # how much wider than the crop the image is
    widest = max(min(fit * WIDEST, 8.0), 1.0)
    step = 1.0
    if chance(generator, 0.5):
        step = uniform(generator, SMALLEST_ZOOM, max(min(fit, LARGEST_ZOOM), SMALLEST_ZOOM))
    in_plane = float(np.sqrt(spacing[1] * spacing[2])) * step
    ratio = slice_ratio_for(da0, generator)
    if da0 < MAX_DEGREE:
        in_plane = max(in_plane, float(spacing[0]) / ratio)
    steps = np.array([in_plane * ratio, in_plane, in_plane]) / spacing
    if da0 == MAX_DEGREE:
        steps[0] = 1.0
    if steps[1] > widest * LARGEST_ZOOM:
        return None
    room = size - np.asarray(shape) * steps
    centre = size / 2 + np.array([uniform(generator, -0.5, 0.5) * max(r, 0.0) for r in room]) - 0.5
    if da0 == MAX_DEGREE:
        centre[0] = float(np.clip(np.round(centre[0]), 0, size[0] - 1))
    where = Field(
        (float(centre[0]), float(centre[1]), float(centre[2])),
        (float(steps[0]), float(steps[1]), float(steps[2])),
        shape,
        ratio,
        da0,
    )
    crop, inside = pyramid.sample(where)
    crop = (crop / 255 * (inside > 0)).clamp(0, 1)
    if float((crop > EMPTY).float().mean()) < LEAST_FOREGROUND:
        return None
    return crop
