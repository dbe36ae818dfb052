"""Fixed sine-cosine position embedding for grids of any size."""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 10_000.0


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
