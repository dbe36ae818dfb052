"""MedNeXt blocks: depthwise convolution, channel norm, and an inverted bottleneck."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.channel_norm import ChannelLayerNorm
from pumit.networks.mamba_mim.masking import hide

NORM_EPS = 1e-6


class MedNextBlock(nn.Module):
    """x + contract(GELU(expand(norm(depthwise 3^3 convolution of x)))).

    Source:
        Roy et al., MedNeXt, MICCAI 2023, figure 1. Differs from the source: layer norm over the
        channels, as in MambaMIM's code, instead of group norm with one channel per group, whose
        statistics would depend on the share of hidden cells.
    """

    def __init__(self, channels: int, *, expansion: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv3d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=NORM_EPS)
        self.expand = nn.Linear(channels, expansion * channels)
        self.contract = nn.Linear(expansion * channels, channels)

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Map features (B, C, D, H, W), zero where not visible (B, 1, D, H, W), to the same."""
        y = hide(self.depthwise(x), visible).movedim(1, -1)  # (B, D, H, W, C)
        y = self.contract(F.gelu(self.expand(self.norm(y))))
        return hide(x + y.movedim(-1, 1), visible)


class MedNextStage(nn.Module):
    """Sequence of MedNeXt blocks."""

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
    """Residual block of two 3^3 convolutions with channel norms.

    If the widths differ, the shortcut is a 1^3 convolution with a norm.

    Args:
        out_channels: Output channels; None for the same as the input.

    Source:
        `UnetResBlock` of MambaMIM's code: MONAI's with biases, and layer norm over the channels.
    """

    def __init__(self, channels: int, out_channels: int | None = None) -> None:
        super().__init__()
        out = channels if out_channels is None else out_channels
        self.conv1 = nn.Conv3d(channels, out, 3, padding=1)
        self.norm1 = ChannelLayerNorm(out, eps=NORM_EPS)
        self.conv2 = nn.Conv3d(out, out, 3, padding=1)
        self.norm2 = ChannelLayerNorm(out, eps=NORM_EPS)
        self.shortcut: nn.Sequential | None = None
        if out != channels:
            self.shortcut = nn.Sequential(
                nn.Conv3d(channels, out, 1), ChannelLayerNorm(out, eps=NORM_EPS)
            )

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Map features (B, C, D, H, W), zero where not visible, to (B, out_channels, D, H, W)."""
        y = hide(F.leaky_relu(self.norm1(self.conv1(x)), 0.01), visible)
        x = x if self.shortcut is None else self.shortcut(x)
        return hide(F.leaky_relu(x + self.norm2(self.conv2(y)), 0.01), visible)
