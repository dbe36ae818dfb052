"""Automatic segmentation: universal ViT, feature pyramid and plain U-Net decoder."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pumit.networks.pumit.anisotropy import require_divisible
from pumit.networks.pumit.vit import UniversalViT

IN_PLANE = (1, 3, 3)
SPATIAL = (3, 3, 3)


def conv_norm_act(
    in_channels: int,
    out_channels: int,
    kernel: tuple[int, int, int],
    stride: tuple[int, int, int] = (1, 1, 1),
) -> nn.Sequential:
    """Build a convolution without bias, instance norm without weights, and leaky ReLU."""
    d, h, w = (k // 2 for k in kernel)
    return nn.Sequential(
        nn.Conv3d(in_channels, out_channels, kernel, stride, padding=(d, h, w), bias=False),
        nn.InstanceNorm3d(out_channels),
        nn.LeakyReLU(0.01, inplace=True),
    )


class UpBlock(nn.Module):
    """Up-sampling, concatenation with a skip, and two convolutions; no residual.

    Args:
        scale: Up-sampling factors along (D, H, W).
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
    """Feature pyramid from ViT taps, with cells of a quarter, half, one and two patches.

    Args:
        widths: Channels of the levels, three or four, finest first.
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
                *([nn.MaxPool3d(2)] if len(widths) == 4 else []),
            )
        )
        self.laterals = nn.ModuleList(conv_norm_act(dim, w, (1, 1, 1)) for w in widths)

    def forward(self, taps: Sequence[Tensor]) -> list[Tensor]:
        """Map feature maps (B, dim, d, h, w) to the levels, finest first."""
        layers = zip(taps, self.norms, self.scales, self.laterals, strict=True)
        return [lateral(scale(norm(x))) for x, norm, scale, lateral in layers]


class SegmentationHead(nn.Conv3d):
    """1^3 convolution to logits, with a gain that lets few channels learn as fast as many.

    With Adam-like optimisers every weight moves by about the same step, so a logit's change is
    proportional to its number of input channels. Without the gain, a head of eight channels needed
    hundreds of steps for a class that its features separated within the first dozens.

    Args:
        as_wide_as: The gain emulates this many input channels if there are fewer; 0 disables it.
    """

    def __init__(self, in_channels: int, num_classes: int, as_wide_as: int) -> None:
        super().__init__(in_channels, num_classes, 1)
        self.gain = max(1.0, as_wide_as / in_channels)
        with torch.no_grad():  # keep the initial function
            self.weight /= self.gain
            if self.bias is not None:
                self.bias /= self.gain

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, C, D, H, W) to logits (B, K, D, H, W)."""
        return super().forward(x) * self.gain


class SegmentationNetwork(nn.Module):
    """Multi-class segmentation at one fixed spacing.

    Args:
        detail_widths: Channels of the raw-image branch at full in-plane resolution, half of it and
            so on. Required for the scales finer than a quarter of a patch, where the ViT has no
            features. At further scales, with the widths of the pyramid, the branch is added to the
            ViT's features.
        pyramid_widths: Channels at a quarter, half, one and two patches in-plane. The last may be
            left out for small images, where that level has too few voxels for the instance norm.
        taps: Blocks of the ViT that feed these scales, one per scale, counted from 1.
        num_supervised_levels: Decoder levels with a segmentation head, from the finest.
        head_width: See `SegmentationHead`; 0 for the published networks.
        vit: Sizes of the `UniversalViT`, with a fixed patch embedding. The published patch is
            (4, 16, 16), for slices four times as far apart as pixels. For thinner slices its depth
            is a larger power of two. Levels above the isotropic one halve only the image plane,
            with flat kernels.

    Source:
        PUMIT, section "Segmentation Experiments". The raw-image branch is not in the paper but in
        the published networks; so are some biases that the following instance norm cancels.
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
        head_width: int = 0,
        **vit: Any,
    ) -> None:
        super().__init__()
        self.vit = UniversalViT(in_channels=in_channels, **vit)
        if len(pyramid_widths) not in (3, 4):
            raise ValueError(f"Expected three or four pyramid_widths, got {tuple(pyramid_widths)}.")
        if len(taps) != len(pyramid_widths) or list(taps) != sorted(set(taps)):
            raise ValueError(
                f"Expected {len(pyramid_widths)} ascending blocks of the ViT, got {tuple(taps)}."
            )
        if not 1 <= taps[0] <= taps[-1] <= len(self.vit.blocks):
            raise ValueError(f"Taps {tuple(taps)} are not among {len(self.vit.blocks)} blocks.")
        self.taps = tuple(taps)
        self.pyramid = VitPyramid(self.vit.dim, pyramid_widths)
        details, planar = _levels(self.vit.fixed_patch)
        both = tuple(detail_widths[details:])
        if len(detail_widths) < details or both != tuple(pyramid_widths[: len(both)]):
            raise ValueError(
                f"A patch of {self.vit.fixed_patch} needs {details} detail_widths, and further "
                f"ones that begin pyramid_widths, got {(*detail_widths,)}, {(*pyramid_widths,)}."
            )
        widths = (*detail_widths[:details], *pyramid_widths)
        kernels = [IN_PLANE if level < planar else SPATIAL for level in range(len(widths))]
        scales = [(1, 2, 2) if level < planar else (2, 2, 2) for level in range(len(widths))]
        self.detail_full = nn.Sequential(
            conv_norm_act(in_channels, widths[0], kernels[0]),
            conv_norm_act(widths[0], widths[0], kernels[0]),
        )
        self.detail_half = nn.ModuleList(  # and below
            nn.Sequential(
                conv_norm_act(widths[i - 1], widths[i], kernels[i - 1], stride=scales[i - 1]),
                conv_norm_act(widths[i], widths[i], kernels[i]),
            )
            for i in range(1, len(detail_widths))
        )
        self.up_blocks = nn.ModuleList(  # coarsest first
            UpBlock(widths[level + 1], widths[level], scales[level], kernels[level])
            for level in reversed(range(len(widths) - 1))
        )
        self.heads = nn.ModuleList(  # finest first
            SegmentationHead(w, num_classes, head_width) for w in widths[:num_supervised_levels]
        )

    def forward(self, x: Tensor, *, deep_supervision: bool = False) -> Tensor | list[Tensor]:
        """Segment an image.

        Args:
            x: Intensities, shape (B, in_channels, D, H, W), a multiple of two patches, or of one
                with a pyramid of three levels.
            deep_supervision: Whether to return the logits of every head.

        Returns:
            Logits (B, num_classes, D, H, W); with deep supervision those of all heads, at full,
            1/2, 1/4 and 1/8 in-plane resolution, the finest first.

        Raises:
            PumitError: If the size is not divisible.
        """
        d, h, w = self.vit.fixed_patch or (1, 1, 1)
        step = 2 if len(self.taps) == 4 else 1
        require_divisible(x, (step * d, step * h, step * w))
        tokens, grid = self.vit.embed(x, None)
        _, taps = self.vit.transform(tokens, grid, self.taps)
        details = [self.detail_full(x)]
        for shrink in self.detail_half:
            details.append(shrink(details[-1]))
        pyramid = self.pyramid([tap.transpose(1, 2).reshape(len(tap), -1, *grid) for tap in taps])
        fine = len(self.up_blocks) + 1 - len(self.taps)  # scales of only the raw-image branch
        for i, detail in enumerate(details[fine:]):
            pyramid[i] = pyramid[i] + detail
        features = pyramid[-1]
        skips = [*details[:fine], *pyramid[:-1]]
        levels = []
        for up, skip in zip(self.up_blocks, reversed(skips), strict=True):
            features = up(features, skip)
            levels.append(features)
        if not deep_supervision:
            return self.heads[0](features)
        finest_first = levels[::-1][: len(self.heads)]
        return [head(level) for head, level in zip(self.heads, finest_first, strict=True)]


def _levels(patch: tuple[int, int, int] | None) -> tuple[int, int]:
    """Return the number of raw-image levels, and of levels that halve only the image plane.

    Raises:
        ValueError: If the patch is not (d, n, n) with n 8 or 16 and d a power of two, 4 to n.
    """
    d, h, w = patch or (0, 0, 0)
    if h != w or h not in (8, 16) or d not in (4, 8, 16) or d > h:
        raise ValueError(
            f"fixed_patch must be (d, n, n) with n 8 or 16 and d 4, 8 or 16 up to n, got {patch}."
        )
    return int(math.log2(h)) - 2, int(math.log2(h // d))
