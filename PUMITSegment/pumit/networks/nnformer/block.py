"""Pre-norm transformer blocks."""

from __future__ import annotations

from torch import Tensor, nn

from pumit.networks.monai import DropPath
from pumit.networks.nnformer.attention import AttentionSizes, SkipAttention, VolumeAttention


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
