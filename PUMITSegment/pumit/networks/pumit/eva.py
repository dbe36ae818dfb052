"""EVA-02 transformer block: rotary attention and a SwiGLU feed-forward with a sub-norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.ba_attention import ba_attention
from pumit.networks.pumit.rope import AdditiveRotaryEmbedding3D, rotate


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

    def forward(
        self, x: Tensor, rope: AdditiveRotaryEmbedding3D, positions: Tensor, prefix: int
    ) -> Tensor:
        """Map tokens (B, N, C) to (B, N, C); the first `prefix` tokens have no position."""
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, heads, N, d)
            for layer in (self.q, self.k, self.v)
        )
        exact = torch.promote_types(q.dtype, torch.float32)
        rotations = rope.rotations(positions, exact, prefix=prefix)
        q, k = rotate(q, rotations), rotate(k, rotations)
        if self.train_tokens is None:
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            out = ba_attention(
                q,
                k,
                v,
                positions,
                penalising(self.slope),
                n_train=self.train_tokens,
                num_prefix_tokens=prefix,
            )
        return self.proj(out.transpose(1, 2).flatten(-2))


def penalising(slope: Tensor) -> Tensor:
    """Clamp slopes at 0 (negative ones would reward distance), with a straight-through gradient."""
    return slope + (slope.clamp_min(0) - slope).detach()


class SwiGLU(nn.Module):
    """w3(LN(SiLU(w1 x) * w2 x))."""

    def __init__(self, dim: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, hidden)
        self.w2 = nn.Linear(dim, hidden)
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.w3 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, C) to (B, N, C)."""
        return self.w3(self.norm(F.silu(self.w1(x)) * self.w2(x)))


class EvaBlock(nn.Module):
    """Pre-norm EVA-02 block.

    Args:
        train_tokens: See `EvaAttention`.
        eps: Layer norm epsilon; PUMIT's is 1e-5.

    Source:
        Fang et al., EVA-02, 2023; PUMIT, section "Universal Vision Transformer".
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        hidden: int,
        train_tokens: int | None = None,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attention = EvaAttention(dim, num_heads, train_tokens)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = SwiGLU(dim, hidden, eps)

    def forward(
        self, x: Tensor, rope: AdditiveRotaryEmbedding3D, positions: Tensor, prefix: int = 0
    ) -> Tensor:
        """Map tokens (B, N, C) to (B, N, C); positions (N - prefix, 3) are (z, h, w)."""
        x = x + self.attention(self.norm1(x), rope, positions, prefix)
        return x + self.mlp(self.norm2(x))
