"""Checks that an image size is divisible by a network's strides, which would crop silently."""

from __future__ import annotations

from torch import Tensor

from pumit.errors import PumitError
from pumit.networks.pumit.anisotropy import Anisotropy


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
