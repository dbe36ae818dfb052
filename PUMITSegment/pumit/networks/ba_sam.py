"""BA-SAM's length-dependent attention scale and distance-dependent bias.

For self-attention over N tokens of an image encoder (eq. 9 and 10):

    a_ij = softmax_j(lambda * (q_i . k_j + b_ij)),   lambda = log_{N_train}(N_test) / sqrt(d_k)

`pumit.networks.ba_attention` computes this attention without storing the whole mask. Token
distances come in chunks: on a raster grid they depend only on the offset between two tokens. A
table over all offsets has about 2^axes * N entries instead of N^2. Every chunk of the distance
matrix is a strided view of it, without index arithmetic or square roots.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def length_scale(n_test: int, n_train: int) -> float:
    """Return the scaling factor lambda_n = log_{n_train}(n_test), a multiplier of 1 / sqrt(d_k).

    It keeps the entropy of a token's attention about constant when the sequence grows from
    `n_train` to `n_test` tokens. Equal lengths give exactly 1. For n_train = 1, whose logarithm
    does not exist, base 2 is used.

    Args:
        n_test: Number of keys that each query attends to, at least 1. At 1 the factor is 0, which
            is harmless: the softmax over one key is always 1.
        n_train: Number of keys in training, at least 1.

    Returns:
        A finite factor, at least 0.

    Raises:
        ValueError: If a length is below 1.

    Source:
        Song et al., BA-SAM, CVPR 2024, eq. 8 and 9.
    """
    if n_test < 1 or n_train < 1:
        raise ValueError(
            f"Sequence lengths must be at least 1, got {n_test} (test) and {n_train} (train)."
        )
    if n_test == n_train:
        return 1.0
    return math.log(n_test) / math.log(max(n_train, 2))


def slopes_per_head(beta: Tensor | Sequence[float] | float) -> Tensor:
    """Return slopes as a floating tensor of shape (heads,); a single number is one head.

    Raises:
        ValueError: If `beta` has more than one axis.
    """
    slopes = torch.as_tensor(beta)
    if not slopes.is_floating_point():
        slopes = slopes.to(torch.get_default_dtype())
    if slopes.ndim > 1:
        raise ValueError(f"Slopes need shape (heads,), got {tuple(slopes.shape)}.")
    return slopes.reshape(-1)


def grid_distance(queries: Tensor, keys: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Compute Euclidean distances between grid positions.

    Args:
        queries: Positions, shape (Nq, 1..3), in tokens or any other unit.
        keys: Positions, shape (Nk, same), same unit.
        dtype: Floating dtype of the result; the computation uses at least float32.

    Returns:
        Distances, shape (Nq, Nk).
    """
    wide = torch.promote_types(dtype, torch.float32)
    # Not the matrix product form, which loses the exact zeros of the diagonal.
    distance = torch.cdist(
        queries.to(wide), keys.to(wide), compute_mode="donot_use_mm_for_euclid_dist"
    )
    return distance.to(dtype)


def bias_mode_mask(positions: Tensor, beta: Tensor | Sequence[float] | float) -> Tensor:
    """Compute the bias-mode mask b_ij = -beta_h * |p_i - p_j|, to be added to q_i . k_j.

    Differs from the source: the sign is negative, because the paper's +beta with positive slopes
    would reward distance, while its text asks for a penalty. The distance is that on the grid:
    with the paper's |i - j|, vertical neighbours on a grid of 128 columns would be 128 apart.
    Positions of one column give the paper's 1-D form: a Toeplitz matrix with a zero diagonal.

    Args:
        positions: Grid positions of the tokens, shape (N, 1), (N, 2) or (N, 3).
        beta: Slope per head, shape (heads,); positive slopes penalise distance.

    Returns:
        Bias, shape (heads, N, N), in the dtype of `beta`; differentiable in `beta`.

    Raises:
        ValueError: If a shape is wrong.

    Source:
        Song et al., BA-SAM, CVPR 2024, eq. 10.
    """
    check_positions(positions)
    slopes = slopes_per_head(beta).to(positions.device)
    distance = grid_distance(positions, positions, dtype=slopes.dtype)
    return -slopes[:, None, None] * distance  # (heads, N, N)


def check_positions(positions: Tensor) -> None:
    """Raise ValueError unless positions have shape (N, 1..3)."""
    if positions.ndim != 2 or not 1 <= positions.shape[1] <= 3:
        raise ValueError(
            f"Positions need shape (N, 1), (N, 2) or (N, 3), got {tuple(positions.shape)}."
        )


class TokenDistance(ABC):
    """Distances between tokens, with the queries in reversed order.

    With reversed queries, query and key indices add up instead of being subtracted, so a view with
    positive strides exists. Row r is token `length - 1 - r`, column c is token c.
    """

    length: int

    @abstractmethod
    def chunks(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) row ranges of about `rows` rows, at least that many if possible."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> Tensor:
        """Return distances of a range from `chunks`, any shape of (stop - start) * length."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> TokenDistance:
        """Return the same distances in another floating dtype."""


class RasterDistance(TokenDistance):
    """Distances on a full grid of 1 to 3 axes in raster order, last axis fastest.

    Args:
        steps: Distance between neighbours along each axis, any one unit.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        steps: Sequence[float],
        *,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.sizes = tuple(sizes)
        self.steps = tuple(steps)
        self.length = math.prod(self.sizes)
        squared: Tensor = torch.zeros((), device=device, dtype=torch.float64)
        for size, step in zip(self.sizes, self.steps, strict=True):
            offset = torch.arange(1 - size, size, device=device, dtype=torch.float64) * step
            squared = squared[..., None] + offset.square()
        self._table = squared.sqrt().to(dtype)  # (2 n - 1 per axis)

    def chunks(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield row ranges that are boxes of the grid: whole planes, or whole rows of a plane."""
        axis, inner = len(self.sizes) - 1, 1
        while axis > 0 and inner * self.sizes[axis] <= rows:
            inner *= self.sizes[axis]
            axis -= 1
        size = self.sizes[axis]
        count = max(1, size // max(1, rows // inner))
        edges = [inner * (size * i // count) for i in range(count + 1)]
        for base in range(0, self.length, inner * size):
            for start, stop in itertools.pairwise(edges):
                yield base + start, base + stop

    def rows(self, start: int, stop: int) -> Tensor:
        """Return distances of a box of queries to all keys, a view of shape (*box, *sizes)."""
        box, remaining = [], stop - start
        first, offset = start, 0
        inner = self.length
        for size, stride in zip(self.sizes, self._table.stride(), strict=True):
            inner //= size
            index, first = divmod(first, inner)
            offset += index * stride
            box.append(max(1, remaining // inner))
            remaining = min(remaining, inner)
        strides = self._table.stride()
        return self._table.as_strided((*box, *self.sizes), (*strides, *strides), offset)

    def to(self, dtype: torch.dtype) -> RasterDistance:
        """Return the same distances in another floating dtype."""
        if dtype == self._table.dtype:
            return self
        return RasterDistance(self.sizes, self.steps, device=self._table.device, dtype=dtype)


class ScatteredDistance(TokenDistance):
    """Distances between tokens at any positions, computed chunk by chunk.

    Args:
        positions: Shape (N, 1..3), any one unit.
    """

    def __init__(self, positions: Tensor, *, dtype: torch.dtype = torch.float32) -> None:
        self.length = len(positions)
        self._positions = positions
        self._dtype = dtype

    def chunks(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield row ranges of equal length."""
        count = max(1, self.length // rows)
        edges = [self.length * i // count for i in range(count + 1)]
        yield from itertools.pairwise(edges)

    def rows(self, start: int, stop: int) -> Tensor:
        """Return distances, shape (stop - start, length)."""
        queries = self._positions[self.length - stop : self.length - start].flip(0)
        return grid_distance(queries, self._positions, dtype=self._dtype)

    def to(self, dtype: torch.dtype) -> ScatteredDistance:
        """Return the same distances in another floating dtype."""
        return ScatteredDistance(self._positions, dtype=dtype)


def token_distance(positions: Tensor, *, dtype: torch.dtype = torch.float32) -> TokenDistance:
    """Create token distances, in the fast form if the positions are a full raster grid.

    Args:
        positions: Shape (N, 1..3), integers or any one unit.

    Raises:
        ValueError: If the shape is wrong or there are no tokens.
    """
    check_positions(positions)
    if len(positions) == 0:
        raise ValueError("Attention needs at least one token with a position, got none.")
    host = positions.detach().to("cpu", torch.float64)
    sizes = _raster_sizes(host)
    if math.prod(sizes) != len(host):
        return ScatteredDistance(positions, dtype=dtype)
    grid = host.reshape(*sizes, len(sizes))
    expected, steps = grid[(0,) * len(sizes)], []
    for axis, size in enumerate(sizes):
        line = grid.select(-1, axis)
        step = float((line.flatten()[-1] - line.flatten()[0]) / max(size - 1, 1))
        steps.append(abs(step))
        shape = [1] * (len(sizes) + 1)
        shape[axis] = size
        unit = torch.zeros(len(sizes), dtype=torch.float64)
        unit[axis] = step
        expected = expected + torch.arange(size, dtype=torch.float64).reshape(shape) * unit
    if (grid - expected).abs().max() > 1e-6 * max(*steps, 1e-300):
        return ScatteredDistance(positions, dtype=dtype)
    return RasterDistance(sizes, steps, device=positions.device, dtype=dtype)


def _raster_sizes(positions: Tensor) -> list[int]:
    """Return the grid sizes if the positions are a raster grid; arbitrary otherwise."""
    sizes: list[int] = []
    lines = positions
    for axis in range(positions.shape[1] - 1, 0, -1):
        changed = (lines[:, :axis] != lines[0, :axis]).any(1)
        size = int(changed.int().argmax()) or len(lines)
        sizes.insert(0, size)
        lines = lines[::size]
    return [len(lines), *sizes]
