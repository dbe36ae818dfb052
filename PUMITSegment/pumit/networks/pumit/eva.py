"""EVA-02 transformer block: rotary attention and a SwiGLU feed-forward with a sub-norm."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.ba_sam import ba_attention

LAYER_NORM_EPS = 1e-5  # PUMIT's; EVA-02's is 1e-6


class AdditiveRotaryEmbedding3D(nn.Module):
    """Additive 3D rotary embedding: in-plane angles plus a depth angle.

    Acts on interleaved pairs (2i, 2i + 1). With m = head_dim / 4, pairs 0 .. m-1 rotate with h and
    pairs m .. 2m-1 with w, at base^(-2i / 2m); every pair also rotates with z, at
    base_z^(-(2i+1) / 2m). At z = 0 this equals the rotary embedding of 2D vision transformers, so
    their weights carry over.

    Args:
        head_dim: Size of one attention head, divisible by 4.
        base: In-plane base b_x = b_y.

    Source:
        PUMIT, appendix "Additive 3D RoPE", eqs. 13-14. Differs from the source: the printed
        exponent of omega_z divides by d; the published weights divide by d / 2, as here.
    """

    def __init__(self, head_dim: int = 64, base: float = 10000.0, base_z: float = 2333.0) -> None:
        super().__init__()
        if head_dim % 4:
            raise ValueError(f"head_dim must be divisible by 4, got {head_dim}.")
        self.head_dim = head_dim
        self.base = base
        self.base_z = base_z

    def angles(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return rotation angles, radians, (N, head_dim / 2), of positions (z, h, w), (N, 3)."""
        # Not stored as buffers: these would lose precision in a half-precision network, and their
        # values in a network built on the meta device.
        half = self.head_dim // 2
        i = torch.arange(self.head_dim // 4, dtype=dtype, device=positions.device)
        omega, omega_z = self.base ** (-2 * i / half), self.base_z ** (-(2 * i + 1) / half)
        z, h, w = positions.to(dtype).unbind(-1)
        depth = z[:, None] * omega_z
        return torch.cat((h[:, None] * omega + depth, w[:, None] * omega + depth), -1)

    def of_grid(self, grid: Sequence[int], like: Tensor, *, prefix: int = 0) -> Tensor:
        """Return rotations of a grid's tokens, cosine and sine, (prefix + N, head_dim / 2, 2).

        Args:
            grid: Tokens along (z, h, w), in raster order.
            like: Tensor whose device, and dtype if it is more than float32, to use.
            prefix: Number of leading tokens without a position, which are not rotated.
        """
        axes = [torch.arange(n, device=like.device) for n in grid]
        positions = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, 3)
        theta = self.angles(positions, torch.promote_types(like.dtype, torch.float32))
        return _cos_sin(torch.cat((theta.new_zeros(prefix, theta.shape[1]), theta)))

    def forward(self, q: Tensor, positions: Tensor) -> Tensor:
        """Rotate q, shape (B, heads, N, head_dim), by integer positions (N, 3) = (z, h, w)."""
        dtype = torch.promote_types(q.dtype, torch.float32)
        return rotate(q, _cos_sin(self.angles(positions, dtype)))


def _cos_sin(theta: Tensor) -> Tensor:
    return torch.stack((theta.cos(), theta.sin()), dim=-1)


def rotate(q: Tensor, rotations: Tensor) -> Tensor:
    """Rotate q, shape (..., N, head_dim), by cosines and sines (N, head_dim / 2, 2).

    The rotation is computed in the dtype of `rotations`; the result has the dtype of q.
    """
    pairs = q.to(rotations.dtype).reshape(*q.shape[:-1], -1, 2)
    # Other devices support few complex operations.
    product = _complex_product if q.device.type in ("cpu", "cuda") else _real_product
    return product(pairs, rotations).flatten(-2).to(q.dtype)


def _complex_product(pairs: Tensor, rotations: Tensor) -> Tensor:
    """Multiply as complex numbers: a single pass over the pairs, forward and backward."""
    if pairs.stride(-1) != 1 or any(step % 2 for step in pairs.stride()[:-1]):
        pairs = pairs.contiguous()
    return torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(rotations))


def _real_product(pairs: Tensor, rotations: Tensor) -> Tensor:
    (even, odd), (cos, sin) = pairs.unbind(-1), rotations.unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)


class EvaAttention(nn.Module):
    """Self-attention with rotary positions and optionally BA-SAM's scale and distance bias.

    q and v have a bias, k has none; there is no inner norm.

    Args:
        num_heads: Number of heads; the head size must be divisible by 4.
        train_tokens: Training sequence length, for BA-SAM's scaling factor; None disables BA-SAM.
    """

    def __init__(self, dim: int, num_heads: int, train_tokens: int | None = None) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.train_tokens = train_tokens
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)
        if train_tokens is not None:  # applied through `penalising`
            self.slope = nn.Parameter(torch.full((num_heads,), 0.1))

    def forward(self, x: Tensor, rotations: Tensor, grid: Sequence[int]) -> Tensor:
        """Map tokens (B, N, C) to (B, N, C); see `EvaBlock.forward`."""
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, heads, N, d)
            for layer in (self.q, self.k, self.v)
        )
        q, k = rotate(q, rotations), rotate(k, rotations)
        if self.train_tokens is None:
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            out = ba_attention(
                q,
                k,
                v,
                grid,
                penalising(self.slope),
                n_train=self.train_tokens,
                num_prefix_tokens=q.shape[2] - math.prod(grid),
            )
        return self.proj(out.transpose(1, 2).flatten(-2))


def penalising(slope: Tensor) -> Tensor:
    """Clamp slopes at 0 (negative ones would reward distance), with a straight-through gradient."""
    return slope + (slope.clamp_min(0) - slope).detach()


class SwiGLU(nn.Module):
    """w3(LN(SiLU(w1 x) * w2 x))."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, hidden)
        self.w2 = nn.Linear(dim, hidden)
        self.norm = nn.LayerNorm(hidden, eps=LAYER_NORM_EPS)
        self.w3 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, C) to (B, N, C)."""
        return self.w3(self.norm(F.silu(self.w1(x)) * self.w2(x)))


class EvaBlock(nn.Module):
    """Pre-norm EVA-02 block.

    Args:
        train_tokens: See `EvaAttention`.

    Source:
        Fang et al., EVA-02, 2023; PUMIT, section "Universal Vision Transformer".
    """

    def __init__(
        self, dim: int, num_heads: int, hidden: int, train_tokens: int | None = None
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.attention = EvaAttention(dim, num_heads, train_tokens)
        self.norm2 = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.mlp = SwiGLU(dim, hidden)

    def forward(self, x: Tensor, rotations: Tensor, grid: Sequence[int]) -> Tensor:
        """Map tokens (B, N, C) to (B, N, C).

        Args:
            rotations: Output of `AdditiveRotaryEmbedding3D.of_grid`.
            grid: Patches along (D, H, W), the last of the N tokens in raster order; those before
                have no position.
        """
        x = x + self.attention(self.norm1(x), rotations, grid)
        return x + self.mlp(self.norm2(x))
