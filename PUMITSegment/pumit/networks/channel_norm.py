"""Layer norm over channels."""

from torch import Tensor, nn


class ChannelLayerNorm(nn.LayerNorm):
    """Layer norm over the channels of each voxel."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, D, H, W) to the same shape."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)
