"""Residual layer around a Mamba block."""

from __future__ import annotations

from torch import Tensor, nn

from pumit.networks.mamba_mim.mamba_block import MambaBlock


class MambaLayer(nn.Module):
    """x + Mamba(norm(x)), then optionally x + MLP(norm(x)).

    Args:
        mlp_ratio: Inner width of the MLP, in multiples of `dim`; 0 for no MLP.
        state: See `MambaBlock`, also for `conv`, `expand` and `dt_rank`.
    """

    def __init__(
        self, dim: int, *, mlp_ratio: int, state: int, conv: int, expand: int, dt_rank: int
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mamba = MambaBlock(dim, state=state, conv=conv, expand=expand, dt_rank=dt_rank)
        self.mlp: nn.Sequential | None = None
        if mlp_ratio:
            self.mlp = nn.Sequential(
                nn.LayerNorm(dim),
                nn.Linear(dim, mlp_ratio * dim),
                nn.GELU(),
                nn.Linear(mlp_ratio * dim, dim),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (B, N, dim) to the same shape."""
        x = x + self.mamba(self.norm(x))
        return x if self.mlp is None else x + self.mlp(x)
