"""Degree of anisotropy: the number of in-plane halvings before depth is halved, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from pumit.errors import PumitError

MAX_DEGREE = 5  # PUMIT clips the spacing ratio to 32; a 2D image has this degree


@dataclass(frozen=True)
class Anisotropy:
    """Anisotropy and resolution level of a tensor, passed along through adaptive convolutions.

    Attributes:
        da0: Degree of anisotropy of the network's input, 0 (isotropic) to 5 (2D).
        level: In-plane halvings so far.

    Source:
        PUMIT, section "Spatially Adaptive Convolution": DA = floor(log2(s_z / s_xy)), ratio
        clipped to [1, 32].
    """

    da0: int
    level: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.da0 <= MAX_DEGREE:
            raise ValueError(f"The degree of anisotropy must be 0 to {MAX_DEGREE}, got {self.da0}.")
        if self.level < 0:
            raise ValueError(f"Cannot go above full resolution: level {self.level}.")

    @staticmethod
    def from_spacing(spacing_mm: Sequence[float]) -> Anisotropy:
        """Compute the degree for a voxel size (d, h, w) in mm, depth first.

        The in-plane spacing is the geometric mean of both axes.

        Raises:
            ValueError: If a spacing is not positive.
        """
        d, h, w = (float(s) for s in spacing_mm)
        if not all(s > 0 for s in (d, h, w)):  # NaN fails too
            raise ValueError(f"Spacing must be positive, got {tuple(spacing_mm)} mm.")
        ratio = min(max(d / math.sqrt(h * w), 1.0), 2.0**MAX_DEGREE)
        # Tolerance: 2.4 / 0.6 is 4 up to rounding and must give degree 2.
        return Anisotropy(math.floor(math.log2(ratio) + 1e-6))

    @property
    def pending(self) -> int:
        """In-plane halvings left before depth is halved, too."""
        return max(self.da0 - self.level, 0)

    @property
    def depth_halvings(self) -> int:
        """Number of depth halvings so far."""
        return max(self.level - self.da0, 0)

    def down(self, k: int) -> Anisotropy:
        """Return the state after in-plane down-sampling by 2^k."""
        return replace(self, level=self.level + k)

    def up(self, k: int) -> Anisotropy:
        """Return the state after in-plane up-sampling by 2^k."""
        return replace(self, level=self.level - k)

    def depth_stride(self, k: int) -> int:
        """Return the depth stride of in-plane down-sampling by 2^k: 2^max(k - pending, 0)."""
        return 1 << max(k - self.pending, 0)

    def depth_at(self, isotropic_depth: int) -> int:
        """Return the number of slices of a field whose isotropic counterpart has this many.

        max(n >> da0, 1), and 1 for a 2D image.
        """
        return 1 if self.da0 == MAX_DEGREE else max(isotropic_depth >> self.da0, 1)


def require_divisible(x: Tensor, steps: tuple[int, int, int]) -> None:
    """Raise PumitError unless x, shape (B, C, D, H, W), is divisible by the steps (d, h, w)."""
    if x.ndim != 5:
        raise PumitError(f"Expected an image (B, C, D, H, W), got shape {tuple(x.shape)}.")
    size = tuple(x.shape[2:])
    if any(n == 0 or n % step for n, step in zip(size, steps, strict=True)):
        raise PumitError(
            f"Image size {size} must be a multiple of {steps} along (D, H, W); crop or pad it."
        )


def require_reducible(x: Tensor, anisotropy: Anisotropy, k: int) -> None:
    """Raise PumitError unless x, shape (B, C, D, H, W), can be down-sampled by 2^k in-plane."""
    require_divisible(x, (anisotropy.depth_stride(k), 2**k, 2**k))
