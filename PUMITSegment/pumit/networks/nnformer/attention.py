"""Volume attention: local, shifted, global, and skip attention, with learned position bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
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

        A shift is half the largest window, rounded down, along axes with several windows.
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
        axes = [
            torch.arange(full, device=device) + s
            for full, s in zip(layout.padded, layout.shift, strict=True)
        ]
        origin = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)[None]  # (1, D, H, W, 3)
        full, grid = (torch.tensor(n, device=device) for n in (layout.padded, layout.grid))
        is_real = (origin % full < grid).all(-1, keepdim=True)
        seen = unrolled.split(is_real).transpose(1, 2)  # (windows, 1, N)
        if not wraps:
            sides = unrolled.split(origin >= full)  # wrapped around, (windows, N, 3)
            seen = seen & (sides[:, :, None] == sides[:, None]).all(-1)
        return seen | torch.eye(math.prod(layout.window), dtype=torch.bool, device=device)


def grid_of(numbers: Sequence[int]) -> Grid:
    """Convert three numbers (d, h, w) to a tuple."""
    d, h, w = (int(n) for n in numbers)
    return (d, h, w)


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


@dataclass(frozen=True)
class AttentionSizes:
    """Attention settings of a stage.

    Attributes:
        window: Largest local volume (d, h, w), tokens.
        official_index: Whether relative positions share biases as in the authors' code.
        official_unmasked_shift: Whether opposite ends of the grid see each other in shifted
            volumes, as in the authors' ACDC network.
    """

    heads: int
    window: Grid
    official_index: bool
    official_unmasked_shift: bool


class _WindowedAttention(nn.Module):
    """Base class: local volumes, relative position bias, and output projection."""

    def __init__(self, dim: int, sizes: AttentionSizes, *, is_shifted: bool) -> None:
        super().__init__()
        if dim % sizes.heads:
            raise ValueError(f"{sizes.heads} heads do not divide a width of {dim}")
        self.sizes = sizes
        self.is_shifted = is_shifted
        self.bias = RelativePositionBias(
            sizes.window, sizes.heads, official_index=sizes.official_index
        )
        self.projection = nn.Linear(dim, dim)

    def layout(self, x: Tensor) -> WindowLayout:
        """Return the volumes of tokens (B, D, H, W, C)."""
        return WindowLayout.fitting(x.shape[1:4], self.sizes.window, is_shifted=self.is_shifted)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, layout: WindowLayout) -> Tensor:
        """Apply softmax attention to volumes (B * windows, N, C); return (B, D, H, W, C)."""
        heads = self.sizes.heads
        q, k, v = (x.reshape(*x.shape[:2], heads, -1).transpose(1, 2) for x in (q, k, v))
        mask = self.bias(layout.window).to(q.dtype)[None]  # (1, heads, N, N)
        allowed = layout.allowed(q.device, wraps=self.sizes.official_unmasked_shift)
        if allowed is not None:
            mask = mask.masked_fill(~allowed[:, None], -torch.inf)  # (windows, heads, N, N)
            mask = mask.repeat(len(q) // len(mask), 1, 1, 1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        # out: (B * windows, heads, N, head_dim)
        return self.projection(layout.join(out.transpose(1, 2).flatten(2)))


class VolumeAttention(_WindowedAttention):
    """Self-attention within local volumes (LV-MSA) or shifted ones (SLV-MSA).

    If one volume covers the grid, attention is global (GV-MSA).

    Source:
        nnFormer, sections III-B and III-C, eq. 1 and 3. Differs from the source: a grid that is not
        a multiple of the volume is padded, with the padding masked; a volume larger than the grid
        is cropped to it.
    """

    def __init__(self, dim: int, sizes: AttentionSizes, *, is_shifted: bool) -> None:
        super().__init__(dim, sizes, is_shifted=is_shifted)
        self.query_key_value = nn.Linear(dim, 3 * dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (B, D, H, W, C) to tokens of the same shape."""
        layout = self.layout(x)
        q, k, v = self.query_key_value(layout.split(x)).chunk(3, -1)
        return self.attend(q, k, v, layout=layout)


class SkipAttention(_WindowedAttention):
    """Attention of up-sampled tokens to the encoder's tokens, volume by volume.

    Source:
        nnFormer, section III-D, "Skip Attention", eq. 5 and 6: keys and values are projections of
        the encoder's output; queries are the up-sampled tokens without projection.
    """

    def __init__(self, dim: int, sizes: AttentionSizes) -> None:
        super().__init__(dim, sizes, is_shifted=False)
        self.key_value = nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Map up-sampled and encoder tokens, both (B, D, H, W, C), to tokens of that shape."""
        layout = self.layout(x)
        k, v = self.key_value(layout.split(skip)).chunk(2, -1)
        q = layout.split(x).to(k.dtype)  # under autocast a norm's output is float32
        return self.attend(q, k, v, layout=layout)
