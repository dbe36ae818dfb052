"""Partition of a token grid into local volumes, optionally shifted, with attention masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class WindowLayout:
    """Windows of equal size over a grid of tokens.

    A grid that is not a multiple of the window is padded at its far ends. For a shifted layout, the
    grid is rolled back by the shift first, so that windows cross the borders of the unshifted ones;
    tokens wrap around.

    Attributes:
        window: Tokens of a window (d, h, w), no larger than the grid.
        shift: Shift of the windows in tokens (d, h, w), less than a window.
    """

    grid: Grid
    window: Grid
    shift: Grid

    @staticmethod
    def fitting(grid: Sequence[int], window: Sequence[int], *, is_shifted: bool) -> WindowLayout:
        """Return the layout of a grid; attention is global along axes that one window covers.

        Args:
            window: Largest window (d, h, w).
            is_shifted: Whether to shift by half the window, rounded down, along axes with several
                windows.
        """
        sizes = [min(n, w) for n, w in zip(grid, window, strict=True)]
        shifts = [w // 2 if is_shifted and n > w else 0 for n, w in zip(grid, window, strict=True)]
        return WindowLayout(grid_of(grid), grid_of(sizes), grid_of(shifts))

    @property
    def padded(self) -> Grid:
        """The grid padded to whole windows."""
        return grid_of([-(-n // w) * w for n, w in zip(self.grid, self.window, strict=True)])

    @property
    def counts(self) -> Grid:
        """Number of windows along (d, h, w)."""
        return grid_of([n // w for n, w in zip(self.padded, self.window, strict=True)])

    def split(self, x: Tensor) -> Tensor:
        """Split tokens (B, D, H, W, C) into windows (B * windows, tokens of a window, C)."""
        if self.padded != self.grid:
            d, h, w = (p - n for p, n in zip(self.padded, self.grid, strict=True))
            x = F.pad(x, (0, 0, 0, w, 0, h, 0, d))
        if any(self.shift):
            x = x.roll([-s for s in self.shift], (1, 2, 3))
        (i, j, k), (d, h, w) = self.counts, self.window
        x = x.reshape(-1, i, d, j, h, k, w, x.shape[-1])
        x = x.permute(0, 1, 3, 5, 2, 4, 6, 7)  # (B, windows d, h, w, tokens d, h, w, C)
        return x.reshape(-1, d * h * w, x.shape[-1])

    def join(self, windows: Tensor) -> Tensor:
        """Join windows (B * windows, tokens of a window, C) to tokens (B, D, H, W, C)."""
        (i, j, k), (d, h, w) = self.counts, self.window
        x = windows.reshape(-1, i, j, k, d, h, w, windows.shape[-1])
        x = x.permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(-1, *self.padded, windows.shape[-1])
        if any(self.shift):
            x = x.roll(self.shift, (1, 2, 3))
        d, h, w = self.grid
        return x[:, :d, :h, :w]

    def allowed(self, device: torch.device, *, wraps: bool) -> Tensor | None:
        """Return the attention mask within windows.

        Tokens from opposite ends of the grid, brought together by the roll, do not see each other.
        Padding is masked, but sees itself, so that no softmax is empty.

        Args:
            wraps: Whether opposite ends of the grid see each other anyway.

        Returns:
            Bool (windows, queries, keys), True where allowed; None if everything is.
        """
        if self.padded == self.grid and (wraps or not any(self.shift)):
            return None
        return _allowed(self, wraps, device)


@lru_cache(maxsize=32)
def _allowed(layout: WindowLayout, wraps: bool, device: torch.device) -> Tensor:
    # Cached, and may be used in training later: must not be an inference tensor.
    with torch.inference_mode(False):
        unrolled = WindowLayout(layout.padded, layout.window, (0, 0, 0))
        is_real, side = [], []
        for n, full, s in zip(layout.grid, layout.padded, layout.shift, strict=True):
            origin = torch.arange(full, device=device) + s
            side.append(origin >= full)  # wrapped around
            is_real.append(origin % full < n)
        real = _windows_of(unrolled, _at_each(is_real).all(-1, keepdim=True))  # (windows, N, 1)
        seen = real.transpose(1, 2)
        if not wraps:
            sides = _windows_of(unrolled, _at_each(side))  # (windows, N, 3)
            seen = seen & (sides[:, :, None] == sides[:, None]).all(-1)
        return seen | torch.eye(math.prod(layout.window), dtype=torch.bool, device=device)


def _at_each(axes: Sequence[Tensor]) -> Tensor:
    """Combine (D,), (H,) and (W,) to a grid (D, H, W, 3)."""
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)


def _windows_of(layout: WindowLayout, x: Tensor) -> Tensor:
    return layout.split(x[None])


def grid_of(numbers: Sequence[int]) -> Grid:
    """Convert three numbers (d, h, w) to a tuple."""
    d, h, w = (int(n) for n in numbers)
    return (d, h, w)
