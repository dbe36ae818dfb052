"""Additive 3D rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AdditiveRotaryEmbedding3D(nn.Module):
    """Rotate queries and keys by in-plane angles to which the depth angle is added.

    Interleaved pairs (2i, 2i + 1). With m = head_dim / 4, pairs 0 .. m-1 turn with h, pairs
    m .. 2m-1 with w, at base^(-2i / 2m); every pair turns with z at base_z^(-(2i+1) / 2m). At
    z = 0 this is the 2D embedding of 2D vision transformers, so their weights carry over.

    Args:
        head_dim: Size of one attention head, divisible by 4.
        base: In-plane base b_x = b_y.
        base_z: Depth base b_z.

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
        """Rotation angles in radians, shape (N, head_dim / 2), for (z, h, w), shape (N, 3)."""
        # Computed, not buffers: those would lose digits in a half-precision network, and their
        # values in one that was built on the meta device.
        half = self.head_dim // 2
        i = torch.arange(self.head_dim // 4, dtype=dtype, device=positions.device)
        omega, omega_z = self.base ** (-2 * i / half), self.base_z ** (-(2 * i + 1) / half)
        z, h, w = positions.to(dtype).unbind(-1)
        depth = z[:, None] * omega_z
        return torch.cat((h[:, None] * omega + depth, w[:, None] * omega + depth), -1)

    def forward(self, q: Tensor, positions: Tensor) -> Tensor:
        """Rotate q, shape (B, heads, N, head_dim), by integer positions (N, 3) = (z, h, w)."""
        theta = self.angles(positions, torch.promote_types(q.dtype, torch.float32))
        cos, sin = theta.cos().to(q.dtype), theta.sin().to(q.dtype)  # (N, head_dim / 2)
        even, odd = q[..., 0::2], q[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
