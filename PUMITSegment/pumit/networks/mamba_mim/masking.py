"""Cells of the coarsest grid: which are visible, and their tokens with fixed positions.

Masking is bottom-up: cells hidden on the coarsest grid are hidden on all finer grids.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Triple = tuple[int, int, int]
BASE = 10_000.0  # of the positions' frequencies


def random_cells(
    batch: int, grid: Sequence[int], *, ratio: float, generator: torch.Generator | None = None
) -> Tensor:
    """Draw visible cells uniformly, the same number in each image.

    Args:
        grid: Cells along (d, h, w) of the coarsest grid.
        ratio: Share of the cells to hide; 0.75 of 6^3 leaves 54.

    Returns:
        Boolean (batch, 1, d, h, w) on the generator's device, True where visible:
        max(1, round((1 - ratio) * d * h * w)) cells of each image.

    Raises:
        ValueError: If the ratio is not in [0, 1).

    Source:
        Tang et al., MambaMIM, 2024, section 2.1, the mask M_n.
    """
    if not 0 <= ratio < 1:
        raise ValueError(f"The mask ratio must be 0 to below 1, got {ratio}.")
    d, h, w = grid
    cells = d * h * w
    kept = max(1, round((1 - ratio) * cells))
    device = "cpu" if generator is None else generator.device
    noise = torch.rand(batch, cells, generator=generator, device=device)
    visible = torch.zeros(batch, cells, dtype=torch.bool, device=device)
    visible.scatter_(1, noise.argsort(dim=1)[:, :kept], True)
    return visible.view(batch, 1, d, h, w)


def stage_masks(visible: Tensor, poolings: Sequence[Triple]) -> list[Tensor]:
    """Up-sample the coarsest mask (B, 1, d, h, w) to every finer grid, the finest first.

    Args:
        poolings: Factors of each pooling along (d, h, w), the finest first.

    Source:
        MambaMIM, algorithm 1, line 1.
    """
    masks = [visible]
    for steps in reversed(poolings):
        finer = masks[0]
        for axis, step in enumerate(steps, start=2):
            finer = finer.repeat_interleave(step, dim=axis)
        masks.insert(0, finer)
    return masks


def hide(x: Tensor, visible: Tensor | None) -> Tensor:
    """Zero features (B, C, *grid) where not visible (B, 1, *grid); None hides nothing.

    A dense operator on zeroed features, with its output zeroed again, acts as a sparse operator:
    nothing leaks from or through hidden cells.
    """
    return x if visible is None else x.masked_fill(~visible, 0)


def visible_index(visible: Tensor) -> Tensor:
    """Return ascending raster positions (B, K) of the visible cells, boolean (B, 1, d, h, w).

    Raises:
        ValueError: If images have different numbers of visible cells, or none.
    """
    flat = visible.flatten(1)
    counts = flat.sum(1)
    kept = int(counts[0])
    if kept == 0 or bool((counts != kept).any()):
        raise ValueError(
            f"Every image of a batch needs as many visible cells, and one at least; got "
            f"{counts.tolist()}."
        )
    return flat.nonzero()[:, 1].view(flat.shape[0], kept)


def take_tokens(tokens: Tensor, index: Tensor) -> Tensor:
    """Gather tokens (B, K, C) from (B, N, C) at positions (B, K)."""
    return tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[2]))


def require_mask(visible: Tensor, batch: int, grid: Triple) -> None:
    """Raise ValueError unless a mask is boolean (batch, 1, *grid)."""
    expected = (batch, 1, *grid)
    if visible.dtype != torch.bool or tuple(visible.shape) != expected:
        raise ValueError(
            f"The mask must be boolean {expected}, True where visible, got {visible.dtype} "
            f"{tuple(visible.shape)}."
        )


def tokens_of(features: Tensor, index: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the cells of a map (B, C, d, h, w) as tokens with positions, (B, N, C).

    Args:
        index: Raster positions (B, K) of the tokens to return; None for all.
        dtype: That of the parameters, so that autocast does not round the residual sums.
    """
    _, dim, d, h, w = features.shape
    positions = sincos_positions((d, h, w), dim, device=features.device)
    tokens = features.flatten(2).transpose(1, 2) + positions.to(dtype)
    return tokens if index is None else take_tokens(tokens, index)


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
    """Compute the position embedding of a grid's cells in raster order, float (d * h * w, dim).

    A third of the channels (divisible by 6) encodes each of (d, h, w): sines, then cosines
    of the cell's index along that axis, at geometrically falling frequencies.

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
