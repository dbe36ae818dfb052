"""How often a network halves the depth of what it sees, where slices are few or far apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, int, int]
ROUNDING = 1e-6  # a ratio of exactly two is one halving


@dataclass(frozen=True)
class SeenField:
    """The patch of a network, as far as it is known before its sizes.

    Attributes:
        depth: Slices of a usual case at that spacing; None where it is unknown.
        patch: Size of its patch (d, h, w), where the recipe says it.
        most_voxels: Largest number of voxels of a patch, where the recipe does not say its size.
    """

    spacing_mm: tuple[float, float, float]
    depth: int | None = None
    patch: tuple[Any, ...] = ()
    most_voxels: int | None = None

    @property
    def ratio(self) -> float:
        """Distance of the slices over that of the pixels."""
        d, h, w = self.spacing_mm
        return d / math.sqrt(h * w)

    @property
    def given_patch(self) -> Shape | None:
        """The recipe's patch, where it is one."""
        if len(self.patch) != 3 or not all(isinstance(n, int) and n > 0 for n in self.patch):
            return None
        return (self.patch[0], self.patch[1], self.patch[2])

    def has_room(self, stride: Shape) -> bool:
        """Return whether a patch holds more than one step of this stride, and a case its depth.

        Args:
            stride: Divisor of a patch (d, h, w).
        """
        patch = self.given_patch
        if patch is not None:
            steps = math.prod(n // s for n, s in zip(patch, stride, strict=True))
            return patch[0] % stride[0] == 0 and steps > 1
        if self.depth is not None and self.depth < stride[0]:
            return False
        return self.most_voxels is None or 2 * math.prod(stride) <= self.most_voxels


def depth_halvings(plane: Shape, field: SeenField) -> int:
    """How many of the halvings in the plane the depth takes too.

    As many fewer as slices lie more often twice as far apart as pixels, so that a cell of the
    coarsest level is about as deep as it is wide; none for a single slice.

    Args:
        plane: The stride of a network that leaves the depth alone, (1, h, w), powers of two.
        field: Field that it is to see.

    Source:
        PUMIT, section "Spatially Adaptive Convolution": depth is halved last.
    """
    most = int(math.log2(plane[1]))
    spared = math.floor(math.log2(max(field.ratio, 1.0)) + ROUNDING)
    count = max(most - spared, 0)
    while count > 0 and not field.has_room((1 << count, plane[1], plane[2])):
        count -= 1
    return count


def depth_factors(plane: Sequence[int], halvings: int) -> list[int]:
    """By how much each stage reduces the depth: the first leave it alone.

    Args:
        plane: Factor by which each stage reduces the plane, a power of two.
        halvings: Halvings of the depth, all stages together; see `depth_halvings`.
    """
    each = [int(math.log2(n)) for n in plane]
    spared = sum(each) - halvings
    factors = []
    for count in each:
        kept = max(count - spared, 0)
        spared -= count - kept
        factors.append(1 << kept)
    return factors
