"""Output of the Mamba encoders, and their fixed sine-cosine position embedding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BASE = 10_000.0


@dataclass(frozen=True)
class Encoding:
    """Features of a field, or of its visible cells.

    Attributes:
        maps: Maps of each convolutional stage for decoders, (B, C_i, *grid_i), the finest first,
            zero where hidden; empty if the encoder has no such stages.
        tokens: Tokens after the Mamba layers in raster order, (B, N, C), or only the visible ones,
            (B, K, C).
        grid: Cells of the coarsest grid along (d, h, w); N is their product.
        visible_index: Raster positions (B, K) of the visible cells; None without a mask.
        taps: Tokens (B, N or K, C) at the encoder's taps, if any.
    """

    maps: tuple[Tensor, ...]
    tokens: Tensor
    grid: tuple[int, int, int]
    visible_index: Tensor | None = None
    taps: tuple[Tensor, ...] = ()

    def bottom_map(self) -> Tensor:
        """Return the tokens on their grid, (B, C, d, h, w), zero where hidden."""
        return tokens_to_map(self.tokens, self.grid, self.visible_index)


def tokens_to_map(
    tokens: Tensor, grid: tuple[int, int, int], visible_index: Tensor | None = None
) -> Tensor:
    """Arrange tokens (B, N, C), or visible ones (B, K, C), on their grid: (B, C, d, h, w)."""
    if visible_index is not None:
        d, h, w = grid
        whole = tokens.new_zeros(tokens.shape[0], d * h * w, tokens.shape[2])
        index = visible_index[..., None].expand(-1, -1, tokens.shape[2])
        tokens = torch.scatter(whole, 1, index, tokens)
    return tokens.transpose(1, 2).reshape(tokens.shape[0], -1, *grid)


def sincos_positions(
    grid: tuple[int, int, int], dim: int, *, device: torch.device | str | None = None
) -> Tensor:
    """Compute the position embedding of a grid's cells.

    A third of the channels encodes each of (d, h, w): sines, then cosines of the cell's index along
    that axis, at geometrically falling frequencies.

    Args:
        grid: Cells along (d, h, w).
        dim: Width, divisible by 6.

    Returns:
        Float (d * h * w, dim), cells in raster order.

    Source:
        Vaswani et al., Attention Is All You Need, 2017, section 3.5, for each axis.
    """
    pairs = dim // 6
    frequency = BASE ** (-torch.arange(pairs, device=device) / pairs)
    axes = [torch.arange(n, device=device, dtype=torch.float32) for n in grid]
    cells = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)  # (d, h, w, 3)
    angles = cells.reshape(-1, 3, 1) * frequency  # (N, 3, pairs)
    return torch.cat((angles.sin(), angles.cos()), dim=-1).flatten(1)


def require_sincos_width(dim: int) -> None:
    """Raise ValueError unless `sincos_positions` supports this width."""
    if dim < 6 or dim % 6:
        raise ValueError(f"the width of the tokens must be divisible by 6, got {dim}")
