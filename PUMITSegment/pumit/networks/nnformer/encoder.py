"""Encoder: embedding, and stages of volume attention with convolutions in between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from pumit.networks.nnformer.attention import AttentionSizes
from pumit.networks.nnformer.block import VolumeBlock
from pumit.networks.nnformer.resampling import ConvolutionalEmbedding, Down
from pumit.networks.nnformer.windows import Grid


class EncoderStage(nn.Module):
    """Self-attention blocks on one grid, every second one shifted.

    Args:
        mlp_ratio: Hidden width of the MLPs, in multiples of `dim`.
        drop_path: Stochastic depth rate of each block.
    """

    def __init__(
        self, dim: int, sizes: AttentionSizes, *, mlp_ratio: int, drop_path: Sequence[float]
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            VolumeBlock(
                dim, sizes, is_shifted=i % 2 == 1, mlp_ratio=mlp_ratio, drop_path=drop_path[i]
            )
            for i in range(len(drop_path))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (B, D, H, W, C) to tokens of the same shape."""
        for block in self.blocks:
            x = block(x)
        return x


class Encoder(nn.Module):
    """Encoder that returns the normalised tokens of every stage.

    Args:
        dim: Width of the first stage; doubles with each stage.
        patch: Voxels of a first-stage token, (d, h, w).
        merges: Down-sampling factors between stages, (d, h, w) each.
        rounds_down: Whether halving an odd grid rounds down.
        depths: Blocks of each stage.
        mlp_ratio: Hidden width of the MLPs, in multiples of the stage's width.
        drop_path: Stochastic depth rate of the last block, rising linearly from 0 at the first.

    Source:
        nnFormer, sections III-B and III-C and figure 2.
    """

    def __init__(
        self,
        in_channels: int,
        dim: int,
        *,
        patch: Grid,
        merges: Sequence[Grid],
        rounds_down: bool,
        depths: Sequence[int],
        sizes: Sequence[AttentionSizes],
        mlp_ratio: int,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.embedding = ConvolutionalEmbedding(in_channels, dim, patch=patch)
        rates = shared_out(drop_path, depths)
        widths = [dim << i for i in range(len(depths))]
        self.stages = nn.ModuleList(
            EncoderStage(width, size, mlp_ratio=mlp_ratio, drop_path=rate)
            for width, size, rate in zip(widths, sizes, rates, strict=True)
        )
        self.downs = nn.ModuleList(
            Down(width, factor=factor, rounds_down=rounds_down)
            for width, factor in zip(widths[:-1], merges, strict=True)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Map an image (B, in_channels, D, H, W) to tokens (B, d, h, w, C), the finest first."""
        x = self.embedding(x)
        outputs = []
        for i, (stage, norm) in enumerate(zip(self.stages, self.norms, strict=True)):
            x = stage(self.downs[i - 1](x) if i else x)
            outputs.append(norm(x))
        return outputs


def shared_out(drop_path: float, depths: Sequence[int]) -> list[list[float]]:
    """Return each stage's stochastic depth rates, rising linearly from 0 to `drop_path`."""
    rates = np.linspace(0.0, drop_path, sum(depths)).tolist()
    ends = np.cumsum(depths).tolist()
    return [rates[end - n : end] for end, n in zip(ends, depths, strict=True)]
