"""Automatic segmentation: the universal ViT, a feature pyramid and a plain U-Net decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pumit.networks.pumit.grid import require_divisible
from pumit.networks.pumit.vit import UniversalViT, to_grid

IN_PLANE = (1, 3, 3)
SPATIAL = (3, 3, 3)


def conv_norm_act(
    in_channels: int,
    out_channels: int,
    kernel: tuple[int, int, int],
    stride: tuple[int, int, int] = (1, 1, 1),
) -> nn.Sequential:
    """Convolution without bias, instance norm without weights, leaky ReLU."""
    d, h, w = (k // 2 for k in kernel)
    return nn.Sequential(
        nn.Conv3d(in_channels, out_channels, kernel, stride, padding=(d, h, w), bias=False),
        nn.InstanceNorm3d(out_channels),
        nn.LeakyReLU(0.01, inplace=True),
    )


class UpBlock(nn.Module):
    """Enlarge, join a skip, two convolutions; no residual.

    Args:
        in_channels: Channels from below.
        out_channels: Channels of the skip and of the result.
        scale: Enlargement along (D, H, W).
        kernel: Kernel of the two convolutions.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        scale: tuple[int, int, int],
        kernel: tuple[int, int, int],
    ) -> None:
        super().__init__()
        self.up = nn.ConvTranspose3d(in_channels, out_channels, scale, stride=scale)
        self.convs = nn.Sequential(
            conv_norm_act(2 * out_channels, out_channels, kernel),
            conv_norm_act(out_channels, out_channels, kernel),
        )

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Map (B, C, D, H, W) and the skip at `scale` times that size to the skip's size."""
        return self.convs(torch.cat((self.up(x), skip), dim=1))


class VitPyramid(nn.Module):
    """Bring four taps of the ViT to in-plane scales 1/4, 1/8, 1/16 and 1/32.

    Args:
        dim: Width of the ViT.
        widths: Channels of the four levels, finest first.
    """

    def __init__(self, dim: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.InstanceNorm3d(dim, affine=True) for _ in widths)
        self.scales = nn.ModuleList(
            (
                nn.Sequential(
                    nn.ConvTranspose3d(dim, dim, 2, stride=2),
                    nn.InstanceNorm3d(dim, affine=True),
                    nn.GELU(),
                    nn.ConvTranspose3d(dim, dim, 2, stride=2),
                ),
                nn.ConvTranspose3d(dim, dim, 2, stride=2),
                nn.Identity(),
                nn.MaxPool3d(2),
            )
        )
        self.laterals = nn.ModuleList(conv_norm_act(dim, w, (1, 1, 1)) for w in widths)

    def forward(self, taps: Sequence[Tensor]) -> list[Tensor]:
        """Map four feature maps (B, dim, d, h, w) to the levels, finest first."""
        layers = zip(taps, self.norms, self.scales, self.laterals, strict=True)
        return [lateral(scale(norm(x))) for x, norm, scale, lateral in layers]


class SegmentationNetwork(nn.Module):
    """Multi-class segmentation at one fixed spacing.

    Args:
        in_channels: Image channels.
        num_classes: Classes with the background.
        detail_widths: Channels of the raw-image branch at full and 1/2 in-plane scale.
        pyramid_widths: Channels at 1/4, 1/8, 1/16 and 1/32 in-plane scale.
        taps: Four blocks of the ViT, counted from 1, for those scales.
        num_supervised_levels: Decoder levels with a segmentation head, from the finest.
        vit: Sizes of the `UniversalViT`, whose patch embedding is fixed to (4, 16, 16).

    Source:
        PUMIT, section "Segmentation Experiments". The raw-image branch, which the paper does not
        mention, is part of the published networks; so are some biases that the instance norm
        after them cancels.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        num_classes: int,
        detail_widths: Sequence[int],
        pyramid_widths: Sequence[int],
        taps: Sequence[int],
        num_supervised_levels: int,
        **vit: Any,
    ) -> None:
        super().__init__()
        self.vit = UniversalViT(in_channels=in_channels, **vit)
        if len(taps) != 4 or list(taps) != sorted(set(taps)):
            raise ValueError(f"Expected four ascending blocks of the ViT, got {tuple(taps)}.")
        if not 1 <= taps[0] <= taps[-1] <= len(self.vit.blocks):
            raise ValueError(f"Taps {tuple(taps)} are not among {len(self.vit.blocks)} blocks.")
        self.taps = tuple(taps)
        self.pyramid = VitPyramid(self.vit.dim, pyramid_widths)
        full, half = detail_widths
        self.detail_full = nn.Sequential(
            conv_norm_act(in_channels, full, IN_PLANE), conv_norm_act(full, full, IN_PLANE)
        )
        self.detail_half = nn.Sequential(
            conv_norm_act(full, half, IN_PLANE, stride=(1, 2, 2)),
            conv_norm_act(half, half, IN_PLANE),
        )
        widths = (full, half, *pyramid_widths)
        self.up_blocks = nn.ModuleList(  # coarsest first
            UpBlock(
                widths[level + 1],
                widths[level],
                (1, 2, 2) if level < 2 else (2, 2, 2),
                IN_PLANE if level < 2 else SPATIAL,
            )
            for level in reversed(range(5))
        )
        self.heads = nn.ModuleList(  # finest first
            nn.Conv3d(w, num_classes, 1) for w in widths[:num_supervised_levels]
        )

    def forward(self, x: Tensor, *, deep_supervision: bool = False) -> Tensor | list[Tensor]:
        """Segment an image.

        Args:
            x: Intensities, shape (B, in_channels, D, H, W), D divisible by 8 and H and W by 32.
            deep_supervision: Whether to return the logits of every head.

        Returns:
            Logits (B, num_classes, D, H, W); with deep supervision those at full, 1/2, 1/4 and
            1/8 in-plane scale, each on its own grid, the finest first.

        Raises:
            PumitError: If the size is not divisible.
        """
        d, h, w = self.vit.fixed_patch or (1, 1, 1)
        require_divisible(x, (2 * d, 2 * h, 2 * w))
        tokens, grid = self.vit.embed(x, None)
        _, taps = self.vit.transform(tokens, grid, self.taps)
        full = self.detail_full(x)
        pyramid = self.pyramid([to_grid(t, grid) for t in taps])
        features: Tensor = pyramid[-1]
        skips = [full, self.detail_half(full), *pyramid[:-1]]
        levels = []
        for up, skip in zip(self.up_blocks, reversed(skips), strict=True):
            features = up(features, skip)
            levels.append(features)
        if not deep_supervision:
            return self.heads[0](features)
        finest_first = levels[::-1][: len(self.heads)]
        return [head(level) for head, level in zip(self.heads, finest_first, strict=True)]
