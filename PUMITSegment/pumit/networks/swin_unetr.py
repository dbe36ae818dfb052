"""Swin UNETR: MONAI's network as one of ours, with sizes that our checkpoints can name."""

from __future__ import annotations

from collections.abc import Sequence

from monai.networks.nets.swin_unetr import SwinUNETR
from torch import Tensor, nn

from pumit.networks.pumit.grid import require_divisible

STRIDE = 32  # two for the patches and for each of four stages


class SwinUnetr(nn.Module):
    """Swin transformer encoder with a convolutional decoder.

    Args:
        in_channels: Image channels.
        num_classes: Output channels, the background counted in.
        feature_size: Width of the first stage, divisible by 12.
        depths: Blocks of the four stages.
        num_heads: Attention heads of the four stages.
        window_size: Side of an attention window, tokens.
        drop_path: Rate of stochastic depth at the last block.

    Source:
        Hatamizadeh et al., Swin UNETR, BrainLes 2021; `monai.networks.nets.SwinUNETR`.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        num_classes: int,
        feature_size: int,
        depths: Sequence[int],
        num_heads: Sequence[int],
        window_size: int,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.network = SwinUNETR(
            in_channels=in_channels,
            out_channels=num_classes,
            feature_size=feature_size,
            depths=tuple(depths),
            num_heads=tuple(num_heads),
            window_size=window_size,
            dropout_path_rate=drop_path,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map intensities (B, in_channels, D, H, W), divisible by 32, to logits of that grid.

        Raises:
            PumitError: If the size is not divisible.
        """
        require_divisible(x, (STRIDE,) * 3)
        logits: Tensor = self.network(x)
        return logits
