"""Image encoder: a light adaptive convolutional stem followed by the universal ViT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.promptable.layers import ChannelNorm, ResidualBlock
from pumit.networks.pumit import (
    AdditiveRotaryEmbedding3D,
    Anisotropy,
    SACConv,
    SACDownsample,
    SACUpsample,
)
from pumit.networks.pumit.eva import EvaBlock


@dataclass
class ImageEmbedding:
    """Output of the image encoder, computed once per field.

    Attributes:
        image: The encoder's input, (B, C, D, H, W).
        full: Stem features at full resolution.
        half: Stem features at 1/2 in-plane.
        quarter: Stem features at 1/4 in-plane.
        tokens: ViT features at 1/8 in-plane.
        anisotropy: State of `full`.
        classes: Class vectors of length 1 at 1/2 in-plane, or None.
    """

    image: Tensor
    full: Tensor
    half: Tensor
    quarter: Tensor
    tokens: Tensor
    anisotropy: Anisotropy
    classes: Tensor | None = None

    def repeat(self, count: int) -> ImageEmbedding:
        """Return the same embedding for `count` prompts per image: batch (B count)."""
        return self.mapped(lambda tensor: tensor.repeat_interleave(count, 0))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> ImageEmbedding:
        """Apply a function to each tensor."""
        changed: dict[str, Any] = {name: change(t) for name, t in self._tensors.items()}
        return replace(self, **changed)

    @property
    def _tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @property
    def nbytes(self) -> int:
        """Memory used, bytes; tensors that share memory count once."""
        storages = (tensor.untyped_storage() for tensor in self._tensors.values())
        return sum({s.data_ptr(): s.nbytes() for s in storages}.values())

    @property
    def summary(self) -> npt.NDArray[np.float32]:
        """Mean of the transformer's features of the first image, (dim,)."""
        return self.tokens[0].float().mean((1, 2, 3)).cpu().numpy()


class ContextPath(nn.Module):
    """Up-sampling path of the ViT's context features to 1/2 resolution."""

    def __init__(self, widths: tuple[int, int, int], dim: int, class_channels: int) -> None:
        super().__init__()
        _, half, quarter = widths
        self.up_quarter = SACUpsample(dim, quarter, 1)
        self.quarter_block = ResidualBlock(quarter)
        self.up_half = SACUpsample(quarter, half, 1)
        self.half_block = ResidualBlock(half)
        self.norm = ChannelNorm(half)
        self.to_half = nn.Conv3d(half, half, 1)
        self.to_classes = nn.Conv3d(half, class_channels, 1)
        # Zero, so that adding this path to a trained network does not change its output.
        for parameter in self.to_half.parameters():
            nn.init.zeros_(parameter)

    def forward(
        self, tokens: Tensor, quarter: Tensor, half: Tensor, anisotropy: Anisotropy
    ) -> tuple[Tensor, Tensor]:
        """Return features at 1/2 resolution with context, and normalised class vectors.

        Args:
            tokens: ViT features (B, dim, d, h, w).
            quarter: Stem features at 1/4 in-plane.
            half: Stem features at 1/2 in-plane.
        """
        a = anisotropy
        x = self.up_quarter(tokens, a.down(3)) + quarter
        x = self.quarter_block(x, a.down(2))
        x = self.half_block(self.up_half(x, a.down(2)) + half, a.down(1))
        x = F.silu(self.norm(x))
        return half + self.to_half(x), F.normalize(self.to_classes(x).float(), dim=1)


class ImageEncoder(nn.Module):
    """Convolutional stem and universal ViT.

    The stem's adaptive down-samplings (early convolutions), 8^3 in total, serve as the ViT's patch
    embedding. BA-SAM's scaling factor and bias in the attention let it work on fields larger than
    in training.

    Args:
        widths: Channels at full, 1/2 and 1/4 resolution.
        class_channels: Channels of the class vectors, 0 for none.

    Source:
        PUMIT, "Universal Vision Transformer"; BA-SAM, eqs. 9-10. Differs from the source: a
        convolutional stem instead of one 16^3 patch embedding.
    """

    def __init__(
        self,
        in_channels: int,
        widths: tuple[int, int, int],
        dim: int,
        depth: int,
        num_heads: int,
        train_tokens: int,
        class_channels: int = 0,
    ) -> None:
        super().__init__()
        full, half, quarter = widths
        self.stem = SACConv(in_channels, full)
        self.full_norm, self.full_conv = ChannelNorm(full), SACConv(full, full)
        self.to_half = SACDownsample(full, half, 1)
        self.half_block = ResidualBlock(half)
        self.to_quarter = SACDownsample(half, quarter, 1)
        self.quarter_block = ResidualBlock(quarter)
        self.to_tokens = SACDownsample(quarter, dim, 1)
        self.rope = AdditiveRotaryEmbedding3D(dim // num_heads)
        hidden = dim * 8 // 3
        self.blocks = nn.ModuleList(
            EvaBlock(dim, num_heads, hidden, train_tokens) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim, eps=1e-5)
        self.context = ContextPath(widths, dim, class_channels) if class_channels else None

    def stem_features(self, image: Tensor, anisotropy: Anisotropy) -> tuple[Tensor, Tensor, Tensor]:
        """Return features at full, 1/2 and 1/4 in-plane resolution, without the ViT.

        Args:
            image: Shape (B, C, D, H, W); H and W divisible by 4, D by `anisotropy.depth_stride(2)`.
        """
        a = anisotropy
        full = self.stem(image, a)
        full = full + self.full_conv(F.silu(self.full_norm(full)), a)
        half = self.half_block(self.to_half(full, a), a.down(1))
        quarter = self.quarter_block(self.to_quarter(half, a.down(1)), a.down(2))
        return full, half, quarter

    def forward(self, image: Tensor, anisotropy: Anisotropy) -> ImageEmbedding:
        """Embed a field.

        Args:
            image: Shape (B, C, D, H, W); H and W divisible by 8, D by `anisotropy.depth_stride(3)`.
        """
        a = anisotropy
        full, half, quarter = self.stem_features(image, a)
        grid = self.to_tokens(quarter, a.down(2))  # (B, dim, d, h, w)
        rotations = self.rope.of_grid(grid.shape[2:], grid)
        tokens = grid.flatten(2).transpose(1, 2)  # (B, N, dim)
        for block in self.blocks:
            tokens = block(tokens, rotations, grid.shape[2:])
        tokens = self.norm(tokens).transpose(1, 2).unflatten(2, grid.shape[2:])
        if self.context is None:
            return ImageEmbedding(image, full, half, quarter, tokens, a)
        half, classes = self.context(tokens, quarter, half, a)
        return ImageEmbedding(image, full, half, quarter, tokens, a, classes)
