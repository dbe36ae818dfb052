"""BA-SAM's length-dependent attention scale and distance-dependent bias.

For self-attention over N tokens of an image encoder (eq. 9 and 10):

    a_ij = softmax_j(lambda * (q_i . k_j + b_ij)),   lambda = log_{N_train}(N_test) / sqrt(d_k)

`ba_attention` computes it in chunks of queries, without a heads x N x N tensor in memory.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, scaled_dot_product_attention

# torch's CPU kernel processes 256 queries at a time from 768 queries on; below, fewer and slower.
_CHUNK_QUERIES = 1024
# Bias entries held at once: 16 MiB if that is enough work for all cores ...
_CHUNK_ENTRIES = 1 << 22
# ... and at most 256 MiB.
_MAX_CHUNK_ENTRIES = 1 << 26


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


def ba_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grid: Sequence[int],
    slopes: Tensor,
    *,
    n_train: int,
    num_prefix_tokens: int = 0,
    axis_scores: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Compute attention with BA-SAM's scaling factor and bias-mode mask.

    Computes softmax(lambda * (q k^T - slope_h * distance) + axis scores) v with
    lambda = log_{n_train}(N) / sqrt(d). As in the paper, lambda multiplies the bias, too. About a
    thousand queries are processed at a time, and the backward pass recomputes each chunk, so memory
    is bounded in training as well.

    Differs from the source: the sign is negative, because the paper's +beta with positive slopes
    would reward distance, while its text asks for a penalty. The distance is that on the grid:
    with the paper's |i - j|, vertical neighbours on a grid of 128 columns would be 128 apart.

    Args:
        q: Queries, shape (B, heads, N, d); keys and values have the same.
        grid: Sizes of the grid of the N - num_prefix_tokens other tokens, 1 to 3 axes, in raster
            order.
        slopes: Slope per head, shape (heads,).
        n_train: Number of training tokens, prefix tokens included; N = n_train gives the plain
            1 / sqrt(d).
        num_prefix_tokens: Leading tokens without a position, such as a class token; their bias is
            0 in both directions.
        axis_scores: SAM's decomposed relative positions for the two axes of the grid, outside
            lambda: shapes (B, heads, N, H) and (B, heads, N, W), added for the key at (h, w).
            Requires that there are no prefix tokens.

    Returns:
        Shape (B, heads, N, d).

    Raises:
        ValueError: If the grid has another number of tokens.

    Source:
        Song et al., BA-SAM, CVPR 2024, eq. 9 and 10.
    """
    # 1. Score scale; plain attention if there is no bias.
    length = q.shape[2]
    if math.prod(grid) + num_prefix_tokens != length:
        raise ValueError(
            f"{num_prefix_tokens} tokens and a grid {tuple(grid)} are not the {length} given."
        )
    scale = length_scale(length, n_train) / math.sqrt(q.shape[-1])
    if axis_scores is None and not slopes.requires_grad and not slopes.any():
        return scaled_dot_product_attention(q, k, v, scale=scale)
    if torch.is_autocast_enabled(q.device.type):
        low = torch.get_autocast_dtype(q.device.type)
        q, k, v = q.to(low), k.to(low), v.to(low)
        if axis_scores is not None:
            axis_scores = (axis_scores[0].to(low), axis_scores[1].to(low))
    is_traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if is_traced and axis_scores is None:
        bias = -scale * slopes.reshape(-1, 1, 1) * _traced_distance(q, grid)  # (heads, N, N)
        bias = pad(bias, (num_prefix_tokens, 0, num_prefix_tokens, 0))
        return scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
    # 2. Biased attention in chunks, (B, heads, N - prefix, d); plain attention for the prefix.
    scores_h, scores_w = axis_scores or (None, None)
    with torch.autocast(q.device.type, enabled=False):
        # Queries reversed: see GridDistance.
        out = _BiasedAttention.apply(  # type: ignore[no-untyped-call]
            q[:, :, num_prefix_tokens:].flip(2),
            k,
            v,
            slopes,
            None if scores_h is None else scores_h.flip(2),
            None if scores_w is None else scores_w.flip(2),
            GridDistance(grid, device=q.device, dtype=_bias_dtype(q)),
            scale,
        ).flip(2)
        if num_prefix_tokens == 0:
            return out
        prefix = scaled_dot_product_attention(q[:, :, :num_prefix_tokens], k, v, scale=scale)
        return torch.cat([prefix, out], dim=2)


def _traced_distance(q: Tensor, grid: Sequence[int]) -> Tensor:
    """Return the distances between the tokens of a grid, (N, N), in operations for a tracer."""
    # Begun from an input, so that a compiler does not store heads * N^2 constants per layer.
    squared = q[0, 0, :1, :1] * 0
    for size in grid:
        index = torch.arange(int(size), dtype=q.dtype, device=q.device)
        gaps = (index[:, None] - index).square()
        squared = squared[:, None, :, None] + gaps[:, None]  # (n, size, n, size)
        squared = squared.flatten(0, 1).flatten(1)
    return squared.sqrt()


def _bias_dtype(q: Tensor) -> torch.dtype:
    # The CPU kernel accepts a float32 bias with low-precision scores; others need equal dtypes.
    if q.device.type == "cpu":
        return torch.promote_types(q.dtype, torch.float32)
    return q.dtype


class GridDistance:
    """Distances between the tokens of a grid of 1 to 3 axes, with the queries in reversed order.

    They depend only on the offset between two tokens, so a table over all offsets, with about
    2^axes * N entries, replaces N^2. With reversed queries, query and key indices add up instead of
    being subtracted: every chunk of the distance matrix is a strided view of the table. Row r is
    token N - 1 - r, column c is token c.
    """

    def __init__(self, sizes: Sequence[int], *, device: torch.device, dtype: torch.dtype) -> None:
        self.sizes = tuple(sizes)
        exact = torch.promote_types(dtype, torch.float32)
        squared = torch.zeros((), device=device, dtype=exact)
        for size in self.sizes:
            offset = torch.arange(1 - size, size, device=device, dtype=exact)
            squared = squared[..., None] + offset.square()
        self._table = squared.sqrt().to(dtype)  # (2 n - 1 per axis)

    def chunks(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of about `rows` rows, at least that many if possible.

        They are boxes of the grid: whole planes, or whole rows of a plane.
        """
        axis, inner = len(self.sizes) - 1, 1
        while axis > 0 and inner * self.sizes[axis] <= rows:
            inner *= self.sizes[axis]
            axis -= 1
        size = self.sizes[axis]
        count = max(1, size // max(1, rows // inner))
        edges = [inner * (size * i // count) for i in range(count + 1)]
        for base in range(0, math.prod(self.sizes), inner * size):
            for start, stop in itertools.pairwise(edges):
                yield base + start, base + stop

    def rows(self, start: int, stop: int) -> Tensor:
        """Return distances of a box of queries to all keys, a view of shape (*box, *sizes)."""
        box, remaining = [], stop - start
        first, offset = start, 0
        inner, strides = math.prod(self.sizes), self._table.stride()
        for size, stride in zip(self.sizes, strides, strict=True):
            inner //= size
            index, first = divmod(first, inner)
            offset += index * stride
            box.append(max(1, remaining // inner))
            remaining = min(remaining, inner)
        return self._table.as_strided((*box, *self.sizes), (*strides, *strides), offset)


@dataclass
class _Chunk:
    """A part of the score matrix: some (reversed) queries of some heads, every key.

    Attributes:
        distance: Distances, any shape with rows * tokens entries.
        bias: Scratch for the bias, shape (B or 1, heads or 1, rows, N).
    """

    rows: slice
    heads: slice
    distance: Tensor
    bias: Tensor


def _head_groups(batch: int, heads: int, entries: int, blocks: int, threads: int) -> int:
    """Return how many heads to process at once: work for every thread, within bounded memory."""
    target = max(_CHUNK_ENTRIES // entries, math.ceil(threads / (blocks * batch)), 1)
    return min(heads, target, max(_MAX_CHUNK_ENTRIES // entries, 1))


def _chunks(
    q: Tensor, distance: GridDistance, keys: int, bias_shape: tuple[int, int]
) -> Iterator[_Chunk]:
    """Split the score matrix of `q` into chunks; `bias_shape` is the bias's (batch, heads).

    All chunks share one scratch tensor: allocating one each time would cost page faults.
    """
    batch, heads = q.shape[:2]
    threads = torch.get_num_threads() if q.device.type == "cpu" else batch * heads * 64
    scratch = q.new_empty(0, dtype=_bias_dtype(q))
    for start, stop in distance.chunks(_CHUNK_QUERIES):
        rows = stop - start
        entries = bias_shape[0] * rows * keys
        group = heads
        if bias_shape[1] > 1:
            group = _head_groups(batch, heads, entries, math.ceil(rows / 256), threads)
        part = distance.rows(start, stop)
        for first in range(0, heads, group):
            count = min(group, heads - first)
            shape = (bias_shape[0], min(count, bias_shape[1]), rows, keys)
            if scratch.numel() < math.prod(shape):
                scratch = scratch.new_empty(math.prod(shape))
            bias = scratch[: math.prod(shape)].view(shape)
            yield _Chunk(slice(start, stop), slice(first, first + count), part, bias)


def _fill_bias(
    chunk: _Chunk, slopes: Tensor, scores_h: Tensor | None, scores_w: Tensor | None, scale: float
) -> Tensor:
    """Write -lambda * beta * distance plus the axis scores into the chunk's scratch."""
    bias, distance = chunk.bias, chunk.distance
    prefix = bias.shape[-1] - distance.numel() // bias.shape[-2]
    bias[..., :prefix] = 0
    grid = bias[..., prefix:].view(*bias.shape[:2], *distance.shape)
    factor = (-scale * slopes[chunk.heads][: bias.shape[1]]).to(bias.dtype)
    factor = factor.reshape(1, -1, *[1] * distance.ndim)
    if scores_h is None or scores_w is None:
        torch.mul(distance, factor, out=grid)
        return bias
    height = scores_h[:, chunk.heads, chunk.rows, :, None]  # (B, heads, rows, H, 1)
    width = scores_w[:, chunk.heads, chunk.rows, None, :]
    torch.add(height, width, out=bias.view(*bias.shape[:3], height.shape[3], width.shape[4]))
    grid.addcmul_(distance, factor)
    return bias


class _BiasedAttention(torch.autograd.Function):
    """softmax(scale * (q k^T - slope * distance) + axis scores) v, with the queries reversed."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        slopes: Tensor,
        scores_h: Tensor | None,
        scores_w: Tensor | None,
        distance: GridDistance,
        scale: float,
    ) -> Tensor:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        # Heads with equal slopes share one bias.
        is_shared = scores_h is None and bool((slopes == slopes[0]).all())
        shape = (1 if scores_h is None else len(q), 1 if is_shared else q.shape[1])
        for chunk in _chunks(q, distance, k.shape[2], shape):
            bias = _fill_bias(chunk, slopes, scores_h, scores_w, scale)
            heads, rows = chunk.heads, chunk.rows
            out[:, heads, rows] = scaled_dot_product_attention(
                q[:, heads, rows], k[:, heads], v[:, heads], attn_mask=bias, scale=scale
            )
        ctx.save_for_backward(q, k, v, slopes, scores_h, scores_w, out)
        ctx.distance, ctx.scale = distance, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, slopes, scores_h, scores_w, out = ctx.saved_tensors
        wide = torch.promote_types(q.dtype, torch.float32)
        grads = [torch.zeros_like(t, dtype=wide) for t in (q, k, v, slopes)]
        axis_grads: list[Tensor | None] = [None, None]
        if scores_h is not None:
            axis_grads = [torch.empty_like(scores_h), torch.empty_like(scores_w)]
        shape = (1 if scores_h is None else len(q), q.shape[1])
        for chunk in _chunks(q, ctx.distance, k.shape[2], shape):
            bias = _fill_bias(chunk, slopes, scores_h, scores_w, ctx.scale)
            grad_scores = _chunk_gradients(chunk, bias, (q, k, v, out), grad_out, grads, ctx.scale)
            if ctx.needs_input_grad[3]:
                grads[3][chunk.heads] -= ctx.scale * _distance_moment(chunk, grad_scores)
            if axis_grads[0] is not None and axis_grads[1] is not None:
                where = (slice(None), chunk.heads, chunk.rows)
                sizes = (scores_h.shape[-1], scores_w.shape[-1])
                grid = grad_scores.view(*grad_scores.shape[:3], *sizes)
                axis_grads[0][where] = grid.sum(-1).to(scores_h.dtype)
                axis_grads[1][where] = grid.sum(-2).to(scores_w.dtype)
        inputs = (q, k, v, slopes)
        typed = [g.to(t.dtype) for g, t in zip(grads, inputs, strict=True)]
        return (*typed, *axis_grads, None, None)


def _chunk_gradients(
    chunk: _Chunk,
    bias: Tensor,
    tensors: tuple[Tensor, Tensor, Tensor, Tensor],
    grad_out: Tensor,
    grads: list[Tensor],
    scale: float,
) -> Tensor:
    """Add a chunk's part to the gradients of q, k and v; return the gradient of its scores.

    The softmax is recomputed from whole rows: FlashAttention's backward pass (Dao et al., NeurIPS
    2022, algorithm 4) without tiling over keys.
    """
    heads, rows = chunk.heads, chunk.rows
    wide = grads[0].dtype
    q, out, d_out = (t[:, heads, rows].to(wide) for t in (tensors[0], tensors[3], grad_out))
    k, v = (t[:, heads].to(wide) for t in tensors[1:3])
    scores = torch.matmul(q, k.transpose(-1, -2)).mul_(scale).add_(bias)  # (B, heads, rows, N)
    weights = scores.softmax(-1)
    grads[2][:, heads] += weights.transpose(-1, -2) @ d_out
    delta = (d_out * out).sum(-1, keepdim=True)
    grad_scores = torch.matmul(d_out, v.transpose(-1, -2), out=scores).sub_(delta).mul_(weights)
    grads[0][:, heads, rows] = (grad_scores @ k).mul_(scale)
    grads[1][:, heads] += (grad_scores.transpose(-1, -2) @ q).mul_(scale)
    return grad_scores


def _distance_moment(chunk: _Chunk, grad_scores: Tensor) -> Tensor:
    """Sum score gradient times distance over batch, queries and keys; shape (heads,)."""
    total = grad_scores.sum(0)  # (heads, rows, N)
    tokens = chunk.distance.numel() // total.shape[1]
    distance = chunk.distance.reshape(total.shape[1], tokens).to(total.dtype)
    return torch.einsum("hqk,qk->h", total[..., total.shape[2] - tokens :], distance)
