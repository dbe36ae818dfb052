"""Slice-wise application of 2D networks to volumes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def by_slices(network: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Wrap a 2D network so that it processes volumes slice by slice.

    Args:
        network: Maps (B, C, H, W) to (B, K, h, w).

    Returns:
        Function that maps (B, C, D, H, W) to (B, K, D, h, w).
    """

    def answer(x: Tensor) -> Tensor:
        out = network(x.movedim(2, 1).flatten(0, 1))  # (B * D, K, h, w)
        return out.reshape(x.shape[0], x.shape[2], *out.shape[1:]).movedim(1, 2)

    return answer
