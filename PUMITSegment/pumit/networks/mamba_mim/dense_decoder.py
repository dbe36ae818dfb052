"""From sparse features of several scales back to a dense image."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Triple = tuple[int, int, int]


class DenseDecoder(nn.Module):
    """Reconstruct an image from dense tokens and from maps that are empty where hidden.

    Empty places of each map are filled with a learned token, and the map is densified by a
    convolution to the decoder's width at that scale. From the coarsest scale on, each block takes
    in the densified map of its scale, enlarges, and convolves.

    Args:
        map_widths: Channels of the maps, the finest first; empty where the encoder has none. The
            finest map is not read: the last block ends at its scale.
        widths: The decoder's channels, the coarsest first: one more than there are poolings.
        poolings: Factors of each pooling of the encoder along (d, h, w), the finest first.

    Raises:
        ValueError: If the numbers of scales do not fit together.

    Source:
        Tang et al., MambaMIM, 2024, section 2.2 and algorithm 2.

    Differs from the source: the finest map is not read, as in the published code; algorithm 2 takes
    it in. What the published decoder holds but never uses is not built (a fusion in
    the first block, the finest densification, the learned tokens of the finest and the coarsest
    scale), nor are biases of convolutions that a batch norm follows, which takes them off again.
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
            bottom: Tokens on their grid, all places filled, (B, token_width, d, h, w).
            maps: The encoder's, the finest first, (B, C_i, *grid_i), zero where hidden.
            visible: Visible places of each, Boolean (B, 1, *grid_i).

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
    """Take in a map of the same scale, enlarge by a transposed convolution, and convolve.

    Args:
        channels: Channels of the input; the map has as many.
        steps: Factors of (d, h, w).
        is_fusing: Whether there is a map to take in.
    """

    def __init__(self, channels: int, out_channels: int, steps: Triple, *, is_fusing: bool) -> None:
        super().__init__()
        self.fuse = _convolutions(2 * channels, channels) if is_fusing else None
        self.enlarge = nn.ConvTranspose3d(channels, channels, steps, stride=steps)
        self.convolve = _convolutions(channels, out_channels)

    def forward(self, x: Tensor, features: Tensor | None = None) -> Tensor:
        """Map (B, channels, d, h, w), and a map alike, to (B, out_channels, d', h', w')."""
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
