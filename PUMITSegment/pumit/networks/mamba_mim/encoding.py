"""Output of the Mamba encoders, for masked or complete fields."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
