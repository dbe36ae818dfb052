"""Decoder from sparse multi-scale features to a dense image."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Triple = tuple[int, int, int]


class DenseDecoder(nn.Module):
    """Decoder that reconstructs an image from dense tokens and sparse feature maps.

    Hidden cells of each map are filled with a learned token, and a convolution maps the result to
    the decoder's width at that scale. From the coarsest scale on, each block fuses the densified
    map of its scale, up-samples, and convolves.

    Args:
        map_widths: Channels of the maps, the finest first; empty if the encoder has none. The
            finest map is not used: the last block ends at its scale.
        widths: The decoder's channels, the coarsest first: one more than there are poolings.
        poolings: Factors of each pooling of the encoder along (d, h, w), the finest first.

    Raises:
        ValueError: If the numbers of scales do not fit together.

    Source:
        Tang et al., MambaMIM, 2024, section 2.2 and algorithm 2.

    Differs from the source: the finest map is not used, as in the published code; algorithm 2 uses
    it. Unused modules of the published decoder are left out (a fusion in the first block, the
    finest densification, the learned tokens of the finest and the coarsest scale), as are biases
    cancelled by a following batch norm.
    """

    def __init__(
        self,
        *,
        token_width: int,
        map_widths: Sequence[int],
        widths: Sequence[int],
        poolings: Sequence[Triple],
        out_channels: int,
    ) -> None:
        super().__init__()
        if len(widths) != len(poolings) + 1 or len(map_widths) not in (0, len(poolings)):
            raise ValueError(
                f"a decoder after {len(poolings)} poolings needs {len(poolings) + 1} widths, and "
                f"as many maps as poolings or none; got {len(widths)} and {len(map_widths)}"
            )
        self.project = nn.Conv3d(token_width, widths[0], 1)
        read = list(reversed(map_widths))[:-1]  # coarsest first, without the finest
        self.fill = nn.ParameterList(
            nn.Parameter(0.02 * torch.randn(1, channels, 1, 1, 1)) for channels in read
        )
        self.densify = nn.ModuleList(
            nn.Conv3d(channels, width, 3, padding=1)
            for channels, width in zip(read, widths[1:], strict=False)
        )
        self.blocks = nn.ModuleList(
            EnlargingBlock(width, narrower, steps, is_fusing=0 < k <= len(read))
            for k, (width, narrower, steps) in enumerate(
                zip(widths[:-1], widths[1:], reversed(poolings), strict=True)
            )
        )
        self.head = nn.Conv3d(widths[-1], out_channels, 1)

    def forward(self, bottom: Tensor, maps: Sequence[Tensor], visible: Sequence[Tensor]) -> Tensor:
        """Reconstruct.

        Args:
            bottom: Tokens on their grid, without gaps, (B, token_width, d, h, w).
            maps: Encoder maps, the finest first, (B, C_i, *grid_i), zero where hidden.
            visible: Visible cells of each map, boolean (B, 1, *grid_i).

        Returns:
            (B, out_channels, D, H, W).
        """
        coarsest_first = list(zip(maps, visible, strict=False))[::-1]
        densified = [
            densify(torch.where(seen, features, fill.to(features.dtype)))
            for densify, fill, (features, seen) in zip(
                self.densify, self.fill, coarsest_first, strict=False
            )
        ]
        y = self.project(bottom)
        for k, block in enumerate(self.blocks):
            y = block(y, densified[k - 1] if 0 < k <= len(densified) else None)
        return self.head(y)


class EnlargingBlock(nn.Module):
    """Fusion with a map of the same scale, transposed convolution, and convolutions.

    Args:
        channels: Channels of the input and of the map.
        steps: Up-sampling factors (d, h, w).
        is_fusing: Whether there is a map to fuse.
    """

    def __init__(self, channels: int, out_channels: int, steps: Triple, *, is_fusing: bool) -> None:
        super().__init__()
        self.fuse = _convolutions(2 * channels, channels) if is_fusing else None
        self.enlarge = nn.ConvTranspose3d(channels, channels, steps, stride=steps)
        self.convolve = _convolutions(channels, out_channels)

    def forward(self, x: Tensor, features: Tensor | None = None) -> Tensor:
        """Map (B, channels, d, h, w), and a map of that shape, to (B, out_channels, d', h', w')."""
        if self.fuse is not None and features is not None:
            x = self.fuse(torch.cat((features, x), dim=1))
        return self.convolve(self.enlarge(x))


def _convolutions(channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm3d(out_channels),
        nn.ReLU(),
        nn.Conv3d(out_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm3d(out_channels),
        nn.ReLU(),
    )
