"""MONAI's plain U-Net, which any other network has to beat."""

from __future__ import annotations

from collections.abc import Sequence

from monai.networks.nets.basic_unet import BasicUNet
from torch import Tensor, nn

from pumit.networks.pumit.grid import require_divisible

STRIDE = 16  # four halvings


class PlainUnet(nn.Module):
    """Convolutions, instance norms and skips; five levels.

    Args:
        in_channels: Image channels.
        num_classes: Output channels, the background counted in.
        features: Channels of the five levels, and of the last convolution.

    Source:
        Falk et al., U-Net, Nature Methods 2019; `monai.networks.nets.BasicUNet`.
    """

    def __init__(self, *, in_channels: int, num_classes: int, features: Sequence[int]) -> None:
        super().__init__()
        self.network = BasicUNet(
            in_channels=in_channels, out_channels=num_classes, features=tuple(features)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map intensities (B, in_channels, D, H, W), divisible by 16, to logits of that grid.

        Raises:
            PumitError: If the size is not divisible.
        """
        require_divisible(x, (STRIDE,) * 3)
        logits: Tensor = self.network(x)
        return logits
