"""Cut cuboids out of a crop: first filled with noise, then with what lies there in another crop."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pumit.training.synthesis.grid import integer, uniform

MOST = 0.3  # of the volume is cut out, each time
SHORTEST, LONGEST = 0.05, 0.25  # of a side of the crop, for that of a cuboid

Cuboid = tuple[slice, slice, slice]


def draw_cuboids(shape: tuple[int, int, int], generator: torch.Generator) -> list[Cuboid]:
    """Cuboids whose volumes, overlaps counted twice, sum to a random share of at most 30 %.

    Each side has 5 to 25 % of the crop's, one voxel at least, and all of it lies inside.

    Differs from the source: there the last cuboid may go beyond the share, and cuboids are cut off
    at the far ends of the crop, so that these are damaged more often and in smaller pieces.

    Args:
        shape: Shape of the crop (d, h, w).
    """
    most = uniform(generator, 0, MOST) * math.prod(shape)
    cuboids: list[Cuboid] = []
    total = 0
    while True:
        d, h, w = (_stretch(n, generator) for n in shape)
        total += math.prod(side.stop - side.start for side in (d, h, w))
        if total > most:
            return cuboids
        cuboids.append((d, h, w))


def _stretch(n: int, generator: torch.Generator) -> slice:
    length = integer(generator, max(1, round(SHORTEST * n)), max(1, int(LONGEST * n)))
    start = integer(generator, 0, n - length)
    return slice(start, start + length)


def damaged(images: Tensor, generator: torch.Generator) -> Tensor:
    """Cut cuboids out of every crop of a batch.

    1. Filled with noise of a normal distribution, scaled so that each cuboid spans 0 to 1.
    2. Others filled with the same place of another crop of the batch, drawn at random; where it
       is the crop itself, nothing is cut out.

    Differs from the source: the other crop is undamaged, whatever its number.

    Args:
        images: Intensities in [0, 1], (B, C, D, H, W); unchanged.

    Source:
        Tang et al., CVPR 2022, section 3.1 and its released code.
    """
    out = images.clone()
    d, h, w = images.shape[2:]
    for i in range(len(images)):
        for cuboid in draw_cuboids((d, h, w), generator):
            where = (i, slice(None), *cuboid)
            noise = torch.randn(out[where].shape, generator=generator)
            low, high = noise.aminmax()
            out[where] = (noise - low) / (high - low).clamp_min(1e-6)
        other = integer(generator, 0, len(images) - 1)
        if other != i:
            for cuboid in draw_cuboids((d, h, w), generator):
                out[(i, slice(None), *cuboid)] = images[(other, slice(None), *cuboid)]
    return out
