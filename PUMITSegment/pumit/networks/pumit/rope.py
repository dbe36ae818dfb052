"""Additive 3D rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AdditiveRotaryEmbedding3D(nn.Module):
    """Additive 3D rotary embedding: in-plane angles plus a depth angle.

    Acts on interleaved pairs (2i, 2i + 1). With m = head_dim / 4, pairs 0 .. m-1 rotate with h and
    pairs m .. 2m-1 with w, at base^(-2i / 2m); every pair also rotates with z, at
    base_z^(-(2i+1) / 2m). At z = 0 this equals the rotary embedding of 2D vision transformers, so
    their weights carry over.

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
        """Return rotation angles, radians, (N, head_dim / 2), of positions (z, h, w), (N, 3)."""
        # Not stored as buffers: these would lose precision in a half-precision network, and their
        # values in a network built on the meta device.
        half = self.head_dim // 2
        i = torch.arange(self.head_dim // 4, dtype=dtype, device=positions.device)
        omega, omega_z = self.base ** (-2 * i / half), self.base_z ** (-(2 * i + 1) / half)
        z, h, w = positions.to(dtype).unbind(-1)
        depth = z[:, None] * omega_z
        return torch.cat((h[:, None] * omega + depth, w[:, None] * omega + depth), -1)

    def rotations(
        self, positions: Tensor, dtype: torch.dtype = torch.float32, *, prefix: int = 0
    ) -> Tensor:
        """Return cosine and sine of each angle, shape (prefix + N, head_dim / 2, 2).

        Args:
            positions: (z, h, w), shape (N, 3).
            dtype: float32 or float64.
            prefix: Number of leading tokens without a position, which are not rotated.
        """
        theta = self.angles(positions, dtype)
        theta = torch.cat((theta.new_zeros(prefix, theta.shape[1]), theta))
        return torch.stack((theta.cos(), theta.sin()), dim=-1)

    def forward(self, q: Tensor, positions: Tensor) -> Tensor:
        """Rotate q, shape (B, heads, N, head_dim), by integer positions (N, 3) = (z, h, w)."""
        dtype = torch.promote_types(q.dtype, torch.float32)
        return rotate(q, self.rotations(positions, dtype))


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
