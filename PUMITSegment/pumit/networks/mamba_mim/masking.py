"""Bottom-up masking: cells hidden on the coarsest grid are hidden on all finer grids."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Triple = tuple[int, int, int]


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
    """Up-sample the coarsest mask to every finer grid.

    Args:
        visible: Boolean (B, 1, d, h, w) on the coarsest grid.
        poolings: Factors of each pooling along (d, h, w), the finest first.

    Returns:
        One mask more than there are poolings, the finest first: M_1 ... M_n.

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
    """Return ascending raster positions of the visible cells.

    Args:
        visible: Boolean (B, 1, d, h, w).

    Returns:
        Integers (B, K).

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
