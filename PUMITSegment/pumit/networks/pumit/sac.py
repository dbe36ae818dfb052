"""Spatially adaptive convolution (SAC) in its three variants.

Each layer owns one isotropic kernel and sums it along depth to the size that the input's
anisotropy calls for: depth is down-sampled last and up-sampled first. The kernel sum keeps the
response to an image that does not change along depth.

Source:
    PUMIT, section "Spatially Adaptive Convolution".
    Differs from the source: the paper's up-sampling exponent min{k, DA0 - DA} restores the depth
    only at DA0 = 1; min{k, max(level - DA0, 0)} restores it always and is used here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.pumit.anisotropy import Anisotropy


def sum_depth_groups(weight: Tensor, depth: int) -> Tensor:
    """Sum a kernel (a, b, K, h, w) along K in contiguous groups to (a, b, depth, h, w)."""
    a, b, k, h, w = weight.shape
    if depth == k:
        return weight
    return weight.reshape(a, b, depth, k // depth, h, w).sum(dim=3)


class SACDownsample(nn.Conv3d):
    """Strided convolution, kernel = stride = 2^k in-plane, adapted along depth.

    Args:
        in_channels: Input channels.
        out_channels: Output channels.
        k: In-plane halvings; the isotropic kernel is (2^k)^3.
    """

    def __init__(self, in_channels: int, out_channels: int, k: int, bias: bool = True) -> None:
        super().__init__(in_channels, out_channels, 2**k, stride=2**k, bias=bias)
        self.k = k

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:  # type: ignore[override]
        """Map (B, C, D, H, W) to (B, C', D / d, H / 2^k, W / 2^k), d = anisotropy.depth_stride."""
        d, s = anisotropy.depth_stride(self.k), 2**self.k
        return F.conv3d(x, sum_depth_groups(self.weight, d), self.bias, stride=(d, s, s))


class SACConv(nn.Conv3d):
    """3^3 convolution, in-plane padding 1; a 1 x 3 x 3 one while depth halvings are pending.

    Args:
        in_channels: Input channels.
        out_channels: Output channels.
        stride: In-plane stride, a power of two; depth follows the anisotropy.
    """

    def __init__(
        self, in_channels: int, out_channels: int, stride: int = 1, bias: bool = True
    ) -> None:
        super().__init__(in_channels, out_channels, 3, stride=stride, padding=1, bias=bias)

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:  # type: ignore[override]
        """Map (B, C, D, H, W) to (B, C', D', H', W'); the same grid at stride 1."""
        s = self.stride[1]
        if anisotropy.pending == 0:
            return F.conv3d(x, self.weight, self.bias, stride=s, padding=1)
        d = max(s >> anisotropy.pending, 1)
        weight = self.weight.sum(dim=2, keepdim=True)
        return F.conv3d(x, weight, self.bias, stride=(d, s, s), padding=(0, 1, 1))


class SACUpsample(nn.ConvTranspose3d):
    """Transposed convolution, kernel = stride = 2^k in-plane, adapted along depth.

    Args:
        in_channels: Input channels.
        out_channels: Output channels.
        k: In-plane doublings; the isotropic kernel is (2^k)^3.
    """

    def __init__(self, in_channels: int, out_channels: int, k: int, bias: bool = True) -> None:
        super().__init__(in_channels, out_channels, 2**k, stride=2**k, bias=bias)
        self.k = k

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:  # type: ignore[override]
        """Map (B, C, D, H, W) to (B, C', D d, H 2^k, W 2^k); `anisotropy` is the input's."""
        s = 2**self.k
        d = min(2**anisotropy.depth_halvings, s)
        return F.conv_transpose3d(x, sum_depth_groups(self.weight, d), self.bias, stride=(d, s, s))


def token_positions(depth: int, height: int, width: int, *, device: torch.device) -> Tensor:
    """Integer grid positions (z, h, w) of tokens in raster order, shape (depth h w, 3)."""
    axes = (torch.arange(n, device=device) for n in (depth, height, width))
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, 3)
