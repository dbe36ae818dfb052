"""Encoder: embedding, and stages of volume attention with convolutions in between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.monai import DropPath
from pumit.networks.nnformer.attention import (
    AttentionSizes,
    Grid,
    SkipAttention,
    VolumeAttention,
    grid_of,
)


def _mlp(dim: int, ratio: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, ratio * dim), nn.GELU(), nn.Linear(ratio * dim, dim))


class VolumeBlock(nn.Module):
    """Transformer block with volume self-attention.

    Args:
        is_shifted: Whether local volumes are shifted by half their size.
        mlp_ratio: Hidden width of the MLP, in multiples of `dim`.

    Source:
        nnFormer, eq. 1.
    """

    def __init__(
        self,
        dim: int,
        sizes: AttentionSizes,
        *,
        is_shifted: bool,
        mlp_ratio: int,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = VolumeAttention(dim, sizes, is_shifted=is_shifted)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = _mlp(dim, mlp_ratio)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (B, D, H, W, C) to tokens of the same shape."""
        x = x + self.drop_path(self.attention(self.norm1(x)))
        out: Tensor = x + self.drop_path(self.mlp(self.norm2(x)))
        return out


class SkipBlock(nn.Module):
    """First block of a decoder stage, with attention to the encoder's tokens.

    Both inputs share one norm, and their sum is the residual.

    Args:
        mlp_ratio: Hidden width of the MLP, in multiples of `dim`.

    Source:
        nnFormer, section III-D, "Skip Attention"; norm and residual as in the authors' code.
    """

    def __init__(
        self, dim: int, sizes: AttentionSizes, *, mlp_ratio: int, drop_path: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = SkipAttention(dim, sizes)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = _mlp(dim, mlp_ratio)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Map up-sampled and encoder tokens, both (B, D, H, W, C), to tokens of that shape."""
        attended = self.attention(self.norm1(x), self.norm1(skip))
        x = x + skip + self.drop_path(attended)
        out: Tensor = x + self.drop_path(self.mlp(self.norm2(x)))
        return out


class ConvolutionalEmbedding(nn.Module):
    """Token embedding by four 3^3 convolutions, of which the first and third are strided.

    Args:
        patch: Voxels of a token along (d, h, w), each 1, 2 or 4.

    Source:
        nnFormer, section III-B, "The embedding layer".
    """

    def __init__(self, in_channels: int, dim: int, *, patch: Grid) -> None:
        super().__init__()
        if dim % 2 or any(n not in (1, 2, 4) for n in patch):
            raise ValueError(
                f"tokens need an even width and 1, 2 or 4 voxels along an axis, got {dim}, {patch}"
            )
        first = grid_of([min(n, 2) for n in patch])
        second = grid_of([n // f for n, f in zip(patch, first, strict=True)])
        widths = (in_channels, dim // 2, dim // 2, dim, dim)
        self.convolutions = nn.ModuleList(
            nn.Conv3d(widths[i], widths[i + 1], 3, stride=stride, padding=1)
            for i, stride in enumerate((first, (1, 1, 1), second, (1, 1, 1)))
        )
        self.norms = nn.ModuleList(nn.LayerNorm(n) for n in widths[1:])
        self.activation = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """Map an image (B, in_channels, D, H, W) to tokens (B, D / d, H / h, W / w, dim)."""
        last = len(self.convolutions) - 1
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = convolution(x)
            x = norm((x if i == last else self.activation(x)).movedim(1, -1)).movedim(-1, 1)
        return x.movedim(1, -1)


class Down(nn.Module):
    """Strided convolution that halves the grid and doubles the width.

    Args:
        factor: 1 or 2 along (d, h, w). The kernel is 3 along halved axes and 1 along others.
        rounds_down: Whether halving an odd number of at least 3 tokens rounds down, by omitting the
            padding along that axis, as in the authors' third down-sampling for ACDC.

    Source:
        nnFormer, section III-B, "The down-sampling layer"; activation and norm before the
        convolution as in the authors' code.
    """

    def __init__(self, dim: int, *, factor: Grid, rounds_down: bool) -> None:
        super().__init__()
        self.activation = nn.GELU()
        self.norm = nn.LayerNorm(dim)
        self.factor, self.rounds_down = factor, rounds_down
        kernel = grid_of([3 if n == 2 else 1 for n in factor])
        self.convolution = nn.Conv3d(dim, 2 * dim, kernel, stride=factor)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (B, D, H, W, C) to (B, D / d, H / h, W / w, 2 C), sizes rounded."""
        cut = [
            f == 1 or (self.rounds_down and n % 2 == 1 and n >= 3)
            for n, f in zip(x.shape[1:4], self.factor, strict=True)
        ]
        x = self.norm(self.activation(x)).movedim(-1, 1)
        layer = self.convolution
        x = F.conv3d(x, layer.weight, layer.bias, self.factor, [0 if c else 1 for c in cut])
        return x.movedim(1, -1)


class Up(nn.Module):
    """Transposed convolution that doubles the grid and halves the width.

    Args:
        factor: 1 or 2 along (d, h, w).

    Source:
        nnFormer, section III-D and figure 2d.
    """

    def __init__(self, dim: int, *, factor: Grid) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.convolution = nn.ConvTranspose3d(dim, dim // 2, factor, stride=factor)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """Map tokens (B, D, H, W, C) to (B, *grid, C / 2).

        A grid that was rounded up is cropped; one that was rounded down gets only the bias at its
        end.
        """
        d, h, w = grid
        x = self.norm(x).movedim(-1, 1)
        doubled = [n * f for n, f in zip(x.shape[2:], self.convolution.stride, strict=True)]
        size = [max(n, least) for n, least in zip(doubled, grid, strict=True)]
        out: Tensor = self.convolution(x, output_size=size).movedim(1, -1)
        return out[:, :d, :h, :w]


class EncoderStage(nn.Module):
    """Self-attention blocks on one grid, every second one shifted."""

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
