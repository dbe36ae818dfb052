"""Decoder: transposed convolutions, and stages with skip attention."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from pumit.networks.nnformer.attention import AttentionSizes
from pumit.networks.nnformer.block import SkipBlock, VolumeBlock
from pumit.networks.nnformer.encoder import shared_out
from pumit.networks.nnformer.resampling import Up
from pumit.networks.nnformer.windows import Grid


class DecoderStage(nn.Module):
    """A skip attention block, then self-attention blocks, every second of which is shifted.

    Args:
        mlp_ratio: Hidden width of the MLPs, in multiples of `dim`.
        drop_path: Stochastic depth rate of each block.
    """

    def __init__(
        self, dim: int, sizes: AttentionSizes, *, mlp_ratio: int, drop_path: Sequence[float]
    ) -> None:
        super().__init__()
        first, *others = drop_path
        self.blocks = nn.ModuleList([SkipBlock(dim, sizes, mlp_ratio=mlp_ratio, drop_path=first)])
        for i, rate in enumerate(others):
            self.blocks.append(
                VolumeBlock(dim, sizes, is_shifted=i % 2 == 0, mlp_ratio=mlp_ratio, drop_path=rate)
            )

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Map up-sampled and encoder tokens, both (B, D, H, W, C), to tokens of that shape."""
        for i, block in enumerate(self.blocks):
            x = block(x) if i else block(x, skip)
        return x


class Decoder(nn.Module):
    """Decoder of all stages but the coarsest.

    Args:
        merges: Down-sampling factors between stages, the finest first, (d, h, w) each.
        depths: Blocks of each stage, the finest first.
        sizes: Attention settings of each stage, the finest first.
        mlp_ratio: Hidden width of the MLPs, in multiples of the stage's width.
        drop_path: Stochastic depth rate of the last block, rising linearly from 0 at the first, the
            coarsest.

    Source:
        nnFormer, section III-D and figure 2.
    """

    def __init__(
        self,
        dim: int,
        *,
        merges: Sequence[Grid],
        depths: Sequence[int],
        sizes: Sequence[AttentionSizes],
        mlp_ratio: int,
        drop_path: float,
    ) -> None:
        super().__init__()
        rates = shared_out(drop_path, depths[::-1])[::-1]
        widths = [dim << i for i in range(len(depths))]
        self.ups = nn.ModuleList(
            Up(2 * width, factor=factor) for width, factor in zip(widths, merges, strict=True)
        )
        self.stages = nn.ModuleList(
            DecoderStage(width, size, mlp_ratio=mlp_ratio, drop_path=rate)
            for width, size, rate in zip(widths, sizes, rates, strict=True)
        )

    def forward(self, tokens: Sequence[Tensor]) -> list[Tensor]:
        """Map encoder tokens (B, d, h, w, C) to the decoder stages' tokens, both finest first."""
        *skips, x = tokens
        outputs = []
        for i in reversed(range(len(skips))):
            d, h, w = skips[i].shape[1:4]
            x = self.stages[i](self.ups[i](x, (d, h, w)), skips[i])
            outputs.append(x)
        return outputs[::-1]
