"""Building blocks shared by the image encoder and the mask decoder."""

from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.pumit import Anisotropy, SACConv


def pooled(x: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Average (B, C, D, H, W) over the cells of a coarser grid (d, h, w).

    Uses plain pooling if the cells are equal: adaptive pooling is far slower on GPUs.
    """
    sizes = list(zip(x.shape[2:], shape, strict=True))
    if any(n % m for n, m in sizes):
        return F.adaptive_avg_pool3d(x, shape)
    return F.avg_pool3d(x, [n // m for n, m in sizes])


class ChannelNorm(nn.GroupNorm):
    """Group norm with groups of eight channels."""

    def __init__(self, channels: int) -> None:
        super().__init__(max(channels // 8, 1), channels)


class ResidualBlock(nn.Module):
    """Pre-activation residual block of two adaptive 3^3 convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = ChannelNorm(channels), SACConv(channels, channels)
        self.norm2, self.conv2 = ChannelNorm(channels), SACConv(channels, channels)

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:
        """Map (B, C, D, H, W) to the same shape."""
        y = self.conv1(F.silu(self.norm1(x)), anisotropy)
        return x + self.conv2(F.silu(self.norm2(y)), anisotropy)
