"""Mamba block: gated token mixer with a causal convolution and the selective scan."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.mamba_mim.selective_scan import selective_scan

# Range of the initial steps, drawn log-uniformly.
LEAST_STEP, MOST_STEP = 1e-3, 1e-1


class MambaBlock(nn.Module):
    """Selective state space model with convolution and gate, without norm or residual.

    Causal: a token sees only itself and earlier tokens.

    Raises:
        ValueError: If a size is not positive.

    Source:
        Gu and Dao, Mamba: Linear-Time Sequence Modeling with Selective State Spaces, 2023,
        figure 3 and section 3.6.
    """

    def __init__(self, dim: int, *, state: int, conv: int, expand: int, dt_rank: int) -> None:
        super().__init__()
        sizes = {"dim": dim, "state": state, "conv": conv, "expand": expand, "dt_rank": dt_rank}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        inner = expand * dim
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, conv, groups=inner)
        self.x_proj = nn.Linear(inner, dt_rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(dt_rank, inner)
        self.A_log = nn.Parameter(torch.arange(1.0, state + 1).log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, dim, bias=False)
        self._widths = [dt_rank, state, state]
        # Steps are log-uniformly distributed; the bias is the inverse of softplus.
        nn.init.uniform_(self.dt_proj.weight, -(dt_rank**-0.5), dt_rank**-0.5)
        least, most = math.log(LEAST_STEP), math.log(MOST_STEP)
        step = torch.empty_like(self.dt_proj.bias).uniform_(least, most).exp()
        with torch.no_grad():
            self.dt_proj.bias.copy_(step + torch.log(-torch.expm1(-step)))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, N, dim) to (B, N, dim)."""
        x, gate = self.in_proj(tokens).chunk(2, dim=-1)  # (B, N, E) each
        x = F.silu(self._convolved(x))
        steps, B, C = self.x_proj(x).split(self._widths, dim=-1)
        delta = F.softplus(self.dt_proj(steps))  # (B, N, E)
        y = selective_scan(
            x.transpose(1, 2),
            delta.transpose(1, 2),
            -self.A_log.exp(),
            B.transpose(1, 2),
            C.transpose(1, 2),
            self.D,
        )
        return self.out_proj(y.transpose(1, 2) * F.silu(gate))

    def _convolved(self, x: Tensor) -> Tensor:
        """Apply the causal depthwise convolution to (B, N, E), in channels-last memory format."""
        conv = self.conv1d
        x = F.pad(x, (0, 0, conv.kernel_size[0] - 1, 0))
        image = x.transpose(1, 2).unsqueeze(2)  # (B, E, 1, N), channels last
        image = F.conv2d(image, conv.weight.unsqueeze(2), conv.bias, groups=conv.groups)
        return image.squeeze(2).transpose(1, 2)

    def draw_linear_layers(self) -> None:
        """Re-initialise all linear layers as MambaMIM's published code: Xavier, zero biases.

        Initial steps are then near softplus(0) = 0.69 instead of between 0.001 and 0.1.
        """
        for layer in (self.in_proj, self.x_proj, self.dt_proj, self.out_proj):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.dt_proj.bias)


class MambaLayer(nn.Module):
    """x + Mamba(norm(x)), then optionally x + MLP(norm(x)).

    Args:
        mlp_ratio: Inner width of the MLP, in multiples of `dim`; 0 for no MLP.
        block: Sizes of the `MambaBlock`.
    """

    def __init__(self, dim: int, *, mlp_ratio: int, **block: Any) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mamba = MambaBlock(dim, **block)
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
