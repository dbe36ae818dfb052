"""MedNeXt blocks: depthwise convolution, channel norm, and an inverted bottleneck."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.channel_norm import ChannelLayerNorm
from pumit.networks.mamba_mim.masking import hide

NORM_EPS = 1e-6


class MedNextBlock(nn.Module):
    """x + scale * contract(GELU(expand(norm(depthwise 3^3 convolution of x)))).

    Args:
        channels: Channels in and out.
        expansion: Width of the bottleneck, in multiples of `channels`.

    Source:
        Roy et al., MedNeXt, MICCAI 2023, figure 1. Differs from the source: layer norm over the
        channels, as in MambaMIM, for the group norm of one channel a group, which would see how
        much is hidden; and ConvNeXt's scale of each channel, begun at one, as inferred from
        MambaMIM's published number of parameters (see `build.py`).
    """

    def __init__(self, channels: int, *, expansion: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv3d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=NORM_EPS)
        self.expand = nn.Linear(channels, expansion * channels)
        self.contract = nn.Linear(expansion * channels, channels)
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Map features (B, C, D, H, W), zero where not visible (B, 1, D, H, W), to the same."""
        y = hide(self.depthwise(x), visible).movedim(1, -1)  # (B, D, H, W, C)
        y = self.contract(F.gelu(self.expand(self.norm(y))))
        y = y * self.scale.to(y.dtype)
        return hide(x + y.movedim(-1, 1), visible)


class MedNextStage(nn.Module):
    """Blocks one after the other.

    Args:
        channels: Channels in and out.
        depth: Blocks.
        expansion: Expansion of each block.
    """

    def __init__(self, channels: int, *, depth: int, expansion: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            MedNextBlock(channels, expansion=expansion) for _ in range(depth)
        )

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Map features (B, C, D, H, W), zero where not visible (B, 1, D, H, W), to the same."""
        for block in self.blocks:
            x = block(x, visible)
        return x


class ResidualConvBlock(nn.Module):
    """Two 3^3 convolutions with channel norms, and the features added to their result.

    MONAI's `UnetResBlock` of equal channels, with a norm that it does not offer.

    Args:
        channels: Channels in and out.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = ChannelLayerNorm(channels, eps=NORM_EPS)
        self.conv2 = nn.Conv3d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = ChannelLayerNorm(channels, eps=NORM_EPS)

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Map features (B, C, D, H, W), zero where not visible (B, 1, D, H, W), to the same."""
        y = hide(F.leaky_relu(self.norm1(self.conv1(x)), 0.01), visible)
        return hide(F.leaky_relu(x + self.norm2(self.conv2(y)), 0.01), visible)
