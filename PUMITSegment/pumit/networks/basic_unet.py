"""MONAI's plain U-Net, the baseline."""

from collections.abc import Sequence

from torch import Tensor, nn

from pumit.networks.monai import BasicUNet
from pumit.networks.padding import by_slices, padded, require_channels

STRIDE = 16  # four halvings


class PlainUnet(nn.Module):
    """Plain U-Net with five levels and instance norms.

    Args:
        features: Channels of the five levels, and of the last convolution.
        spatial_dims: 3, or 2 to process each slice as an image.

    Attributes:
        stride: Field sizes are padded to multiples of this, (d, h, w).

    Raises:
        ValueError: If `num_classes` or `spatial_dims` is invalid.

    Source:
        Falk et al., U-Net, Nature Methods 2019; `monai.networks.nets.BasicUNet`.
    """

    def __init__(
        self, *, in_channels: int, num_classes: int, features: Sequence[int], spatial_dims: int
    ) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        if spatial_dims not in (2, 3):
            raise ValueError(f"spatial_dims must be 2 or 3, got {spatial_dims}")
        self.in_channels = in_channels
        self.spatial_dims = spatial_dims
        self.stride = (STRIDE if spatial_dims == 3 else 1, STRIDE, STRIDE)
        self.network = BasicUNet(
            spatial_dims=spatial_dims,
            in_channels=in_channels,
            out_channels=num_classes,
            features=tuple(features),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map intensities (B, in_channels, D, H, W) to logits (B, num_classes, D, H, W)."""
        require_channels(x, self.in_channels, name="U-Net")
        field, cropped = padded(x, self.stride, name="U-Net", cells=2)
        network = self.network if self.spatial_dims == 3 else by_slices(self.network)
        return cropped(network(field))
