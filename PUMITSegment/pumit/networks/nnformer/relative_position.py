"""Learned relative position bias within a window."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from pumit.networks.nnformer.windows import Grid


class RelativePositionBias(nn.Module):
    """Attention bias by relative position.

    Args:
        window: Largest window (d, h, w), tokens.
        official_index: Whether offsets share entries as in the authors' code, for comparison.

    Raises:
        ValueError: If the official index exceeds the table of such a window.

    Source:
        nnFormer, eq. 3 and the text below it; Swin Transformer, Liu et al., ICCV 2021, eq. 4.
        Differs from the source: each offset has its own entry. In the authors' code offsets
        along d and h count 3w-1 and 2w-1 entries instead of (2w-1)^2 and 2w-1, so that a window
        of 4^3 uses 115 of its 343 entries, many of them for several offsets.
    """

    def __init__(self, window: Grid, heads: int, *, official_index: bool) -> None:
        super().__init__()
        self.window = window
        self.official_index = official_index
        spans = [2 * n - 1 for n in window]
        largest = sum((n - 1) * step for n, step in zip(spans, self._steps(), strict=True))
        if largest >= math.prod(spans):
            raise ValueError(
                f"official_index needs {largest + 1} biases, more than the {math.prod(spans)} of "
                f"a window {window}"
            )
        self.table = nn.Parameter(torch.empty(math.prod(spans), heads))
        nn.init.trunc_normal_(self.table, std=0.02)

    def forward(self, window: Grid) -> Tensor:
        """Return the bias (heads, N, N) of a window (d, h, w) of N tokens."""
        index = relative_index(window, self.window, self._steps(), self.table.device)
        n = math.prod(window)
        return self.table.index_select(0, index).T.reshape(-1, n, n)

    def take(self, table: Tensor, window: Grid) -> None:
        """Initialise from the table (offsets, heads) of another window.

        Missing offsets are filled with the nearest available one.

        Raises:
            ValueError: If the table's shape does not fit, or offsets share entries.
        """
        spans = [2 * n - 1 for n in window]
        if self.official_index or table.shape != (math.prod(spans), self.table.shape[1]):
            raise ValueError(f"a table {tuple(table.shape)} cannot serve a window {self.window}")
        places = [
            (torch.arange(1 - n, n).clamp(1 - m, m - 1) + m - 1)
            for n, m in zip(self.window, window, strict=True)
        ]
        d, h, w = torch.meshgrid(*places, indexing="ij")
        taken = table.reshape(*spans, -1)[d, h, w].flatten(0, 2)
        with torch.no_grad():
            self.table.copy_(taken)

    def _steps(self) -> Grid:
        """Return the table's strides along the offsets (d, h, w)."""
        _, h, w = self.window
        if self.official_index:
            return (3 * h - 1, 2 * w - 1, 1)
        return ((2 * h - 1) * (2 * w - 1), 2 * w - 1, 1)


@lru_cache(maxsize=32)
def relative_index(window: Grid, largest: Grid, steps: Grid, device: torch.device) -> Tensor:
    """Return the table index of each pair of tokens.

    Args:
        window: Window (d, h, w) of N tokens in raster order.
        largest: Window of the table.
        steps: Strides of the table along the offsets (d, h, w).

    Returns:
        (N * N,), int64, query-major.
    """
    with torch.inference_mode(False):  # cached, and may be used in training later
        axes = [torch.arange(n, device=device) for n in window]
        places = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
        offsets = places[:, None] - places[None]  # (N, N, 3), query minus key
        index = torch.zeros(offsets.shape[:2], dtype=torch.int64, device=device)
        for axis, (n, step) in enumerate(zip(largest, steps, strict=True)):
            index += (offsets[..., axis] + n - 1) * step
        return index.flatten()
