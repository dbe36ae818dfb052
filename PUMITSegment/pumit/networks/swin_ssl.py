"""Swin UNETR's encoder with the three heads of self-supervised pre-training."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from pumit.errors import PumitError
from pumit.networks.monai import SwinTransformer
from pumit.networks.padding import require_channels
from pumit.networks.pumit.anisotropy import require_divisible
from pumit.networks.swin_merging import merging_layer
from pumit.networks.swin_unetr import STRIDE, NumbersOnCpu, check_stages

NAME = "Swin UNETR's pre-training"
TURNS = 4  # rotations by 0, 90, 180 and 270 degrees


@dataclass(frozen=True)
class SwinSslAnswer:
    """Outputs of the three heads for a view.

    Attributes:
        turns: Rotation logits, (B, 4).
        contrast: Contrastive embedding, (B, contrast_size); should be equal for views of one crop.
        image: Reconstructed view, (B, C, D, H, W).
    """

    turns: Tensor
    contrast: Tensor
    image: Tensor


class SwinSsl(nn.Module):
    """Swin transformer encoder with heads for rotation, contrastive coding and inpainting.

    Args:
        official_tokens: Whether the rotation and contrastive heads read the first and second
            bottleneck token, as published. These are two neighbouring corners of the crop, often
            air. Otherwise each head reads the mean over all tokens; parameters are the same.

    Attributes:
        stride: Divisor of a field's size, (d, h, w).

    Source:
        Tang et al., Self-Supervised Pre-Training of Swin Transformers for 3D Medical Image
        Analysis, CVPR 2022. The encoder `swinViT` has the names of `monai.networks.nets.SwinUNETR`.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        feature_size: int,
        depths: Sequence[int],
        num_heads: Sequence[int],
        window_size: int,
        drop_path: float,
        merging: str,
        contrast_size: int,
        official_tokens: bool,
    ) -> None:
        super().__init__()
        check_stages(feature_size, depths, num_heads)
        self.in_channels = in_channels
        self.official_tokens = official_tokens
        self.stride = (STRIDE, STRIDE, STRIDE)
        with NumbersOnCpu():
            self.swinViT = SwinTransformer(
                in_chans=in_channels,
                embed_dim=feature_size,
                window_size=(window_size,) * 3,
                patch_size=(2, 2, 2),
                depths=tuple(depths),
                num_heads=tuple(num_heads),
                drop_path_rate=drop_path,
                downsample=merging_layer(merging),
            )
        width = 16 * feature_size
        self.turns = nn.Linear(width, TURNS)
        self.contrast = nn.Linear(width, contrast_size)
        self.decoder = _decoder(width, in_channels)

    def forward(self, x: Tensor) -> SwinSslAnswer:
        """Run all heads on views (B, in_channels, D, H, W), sides multiples of 32, not all 32.

        Raises:
            PumitError: If the channels or the size do not fit.
        """
        require_channels(x, self.in_channels, name=NAME)
        require_divisible(x, self.stride)
        bottom: Tensor = self.swinViT(x)[-1]  # (B, 16 f, D/32, H/32, W/32)
        tokens = bottom.flatten(2)
        if tokens.shape[2] < 2:
            raise PumitError(f"{NAME} needs crops of two cells of 32 x 32 x 32 voxels at least.")
        mean = tokens.mean(2)
        first, second = (tokens[:, :, 0], tokens[:, :, 1]) if self.official_tokens else (mean, mean)
        return SwinSslAnswer(self.turns(first), self.contrast(second), self.decoder(bottom))


def _decoder(width: int, channels: int) -> nn.Sequential:
    """Build the decoder from the bottleneck to the image: five convolutions with up-sampling.

    Widths fall from 16f to 8f, 4f, 2f, f, f; each step is a 3^3 convolution, instance norm, leaky
    ReLU and up-sampling by two. A 1^3 convolution returns the image.
    """
    layers: list[nn.Module] = []
    for into in (width // 2, width // 4, width // 8, width // 16, width // 16):
        layers += [nn.Conv3d(width, into, 3, padding=1), nn.InstanceNorm3d(into)]
        layers += [nn.LeakyReLU(), nn.Upsample(scale_factor=2, mode="trilinear")]
        width = into
    return nn.Sequential(*layers, nn.Conv3d(width, channels, 1))
