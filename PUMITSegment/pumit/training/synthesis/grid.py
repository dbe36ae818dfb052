"""Grid of a generated scene: coordinates in in-plane voxels, and smooth random fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor
from torch.nn import functional as F

T = TypeVar("T")


def uniform(generator: torch.Generator, low: float, high: float) -> float:
    """Draw a number from U(low, high)."""
    return low + (high - low) * float(torch.rand((), generator=generator))


def log_uniform(generator: torch.Generator, low: float, high: float) -> float:
    """Draw a log-uniform number between `low` and `high`."""
    return math.exp(uniform(generator, math.log(low), math.log(high)))


def integer(generator: torch.Generator, low: int, high: int) -> int:
    """Draw an integer from `low` to `high`, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def chance(generator: torch.Generator, probability: float) -> bool:
    """Return True with the given probability."""
    return bool(torch.rand((), generator=generator) < probability)


def pick(generator: torch.Generator, shares: Mapping[T, float]) -> T:
    """Draw a key with the probability of its share."""
    weights = torch.tensor(list(shares.values()))
    return list(shares)[int(torch.multinomial(weights, 1, generator=generator))]


def flip_and_turn(stack: Tensor, generator: torch.Generator) -> Tensor:
    """Apply the same random flips and in-plane quarter turns to all channels of (C, D, H, W)."""
    flips = [axis for axis in (1, 2, 3) if chance(generator, 0.5)]
    turns = int(torch.randint(4, (), generator=generator))
    return torch.rot90(stack.flip(flips), turns, dims=(2, 3))


def rotation_of(angles: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the matrix (3, 3) of rotations about the axes d, h and w in turn, radians."""
    return np.asarray(Rotation.from_euler("xyz"[: len(angles)], angles).as_matrix()).reshape(3, 3)


@dataclass
class Grid:
    """Voxel grid of a scene, over-sampled along depth if slices are thick.

    Attributes:
        depth: Slices of the final field.
        slice_ratio: Slice spacing over in-plane spacing.
        oversampling: Sub-slices drawn per slice.
        generator: CPU generator. Numbers that decide sizes and branches are drawn on the CPU, to
            avoid synchronisation with a GPU.
        device: Device of the grid's maps. Points and matrices stay on the CPU; `on` moves them.
        source: Generator of noise maps on other devices, seeded from `generator`.
    """

    depth: int
    size: int
    slice_ratio: float
    oversampling: int
    generator: torch.Generator
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    source: torch.Generator | None = None

    def __post_init__(self) -> None:
        if self.source is None and self.device.type != "cpu":
            seed = integer(self.generator, 0, 2**31 - 1)
            self.source = torch.Generator(self.device).manual_seed(seed)

    @classmethod
    def for_field(
        cls, shape: Sequence[int], ratio: float, generator: torch.Generator, device: torch.device
    ) -> Grid:
        """Return the grid of a field, over-sampled along depth where slices are thick.

        Args:
            shape: Voxels of the field; the first two are its depth and in-plane size.
            ratio: Slice spacing over in-plane spacing; 1 in 2D, where one slice of isotropic
                voxels is drawn.
        """
        oversampling = 1 if ratio < 1.5 else min(3, round(ratio))
        return cls(shape[0], shape[1], ratio, oversampling, generator, device)

    @property
    def middles(self) -> slice:
        """Slices of the scene in the middle of each slice of the field."""
        return slice(self.oversampling // 2, None, self.oversampling)

    def on(self, tensor: Tensor) -> Tensor:
        """Move a tensor to the device of the grid."""
        return tensor.to(self.device, non_blocking=True)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Draw numbers from N(0, 1) on the device of the grid."""
        source = self.generator if self.source is None else self.source
        return torch.randn(shape, generator=source, device=self.device)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (D * oversampling, H, W) that the scene is drawn at."""
        return (self.depth * self.oversampling, self.size, self.size)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Physical size (z, h, w) in in-plane voxels."""
        return (self.depth * self.slice_ratio, float(self.size), float(self.size))

    def coordinates(self) -> Tensor:
        """Return positions relative to the centre, in in-plane voxels, shape (3, D', H, W)."""
        return torch.stack(torch.meshgrid(*self.axes(), indexing="ij"))

    def axes(self) -> list[Tensor]:
        """Return positions along each axis relative to the centre, in in-plane voxels."""
        return [
            (torch.arange(n, dtype=torch.float32, device=self.device) - (n - 1) / 2) * (extent / n)
            for n, extent in zip(self.shape, self.extent, strict=True)
        ]

    def window(self, centre: Tensor, radius: float) -> tuple[slice, slice, slice] | None:
        """Return the bounding box of a ball, or None if it lies outside the grid.

        Args:
            centre: (z, h, w) in in-plane voxels from the centre of the field, on the CPU.
            radius: In-plane voxels.
        """
        slices = []
        for n, extent, c in zip(self.shape, self.extent, centre.tolist(), strict=True):
            middle, reach = c * n / extent + (n - 1) / 2, radius * n / extent
            start, stop = max(math.floor(middle - reach), 0), min(math.ceil(middle + reach) + 1, n)
            if start >= stop:
                return None
            slices.append(slice(start, stop))
        return (slices[0], slices[1], slices[2])

    def noise(self, length: float, channels: int = 1) -> Tensor:
        """Draw smooth noise (channels, D', H, W), unit variance, length in in-plane voxels."""
        cells = [
            max(2, min(n, math.ceil(e / length) + 1))
            for n, e in zip(self.shape, self.extent, strict=True)
        ]
        if self.shape[0] == 1:
            cells[0] = 1
        coarse = self.normal((1, channels, *cells))
        smooth = F.interpolate(coarse, size=self.shape, mode="trilinear", align_corners=True)[0]
        # Interpolation reduces the variance between the nodes.
        return smooth / smooth.std().clamp_min(1e-3)

    def fractal(self, length: float, octaves: int = 2) -> Tensor:
        """Sum noise at length, length / 2, ..., each half as strong; shape (D', H, W)."""
        total = self.noise(length)[0]
        for octave in range(1, octaves):
            total = total + self.noise(max(length / 2**octave, 1.0))[0] * 0.5**octave
        return total
