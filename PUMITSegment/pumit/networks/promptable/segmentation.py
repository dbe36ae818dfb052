"""Automatic segmentation initialised from the image encoder of the promptable network."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.padding import padded, require_channels
from pumit.networks.promptable.image_encoder import ImageEncoder
from pumit.networks.promptable.layers import ResidualBlock
from pumit.networks.promptable.network import IMAGE_CHANNELS
from pumit.networks.pumit import Anisotropy, SACConv, SACUpsample
from pumit.networks.pumit.segmentation_network import SegmentationHead

NAME = "PUMIT's encoder"
LOW, HIGH = 0.005, 0.995  # quantiles of a field mapped to 0 and 1
HALVINGS = 3  # in-plane, from voxels to tokens
BINS, CLIP = 128, 4.0  # as in `preprocessing.fields`
SAMPLED = 1 << 18  # approximate number of voxels sampled for the quantiles


class EncodedSegmentation(nn.Module):
    """Multi-class segmentation on the stem, ViT and class vectors of the promptable network.

    The encoder gets the same equalised channels as for clicks. The normalised intensities, which
    are absolute in CT, are added at full resolution.

    Args:
        num_supervised_levels: Levels with a head, from the finest.
        head_width: See `SegmentationHead`.

    Attributes:
        encoder: Image encoder, which may be initialised from the promptable network.
        stride: Field sizes are padded to multiples of this, (d, h, w).

    Source:
        PUMIT, "Universal Vision Transformer" and "Spatially Adaptive Convolution"; BA-SAM, eq. 9
        and 10. The decoder is ours.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        num_classes: int,
        widths: tuple[int, int, int],
        dim: int,
        depth: int,
        num_heads: int,
        train_tokens: int,
        class_channels: int,
        da0: int,
        num_supervised_levels: int,
        head_width: int,
    ) -> None:
        super().__init__()
        if num_classes < 1 or class_channels < 1 or not 1 <= num_supervised_levels <= len(widths):
            raise ValueError(
                "num_classes and class_channels must be at least 1, num_supervised_levels 1 to "
                f"{len(widths)}; got {num_classes}, {class_channels} and {num_supervised_levels}"
            )
        self.in_channels = in_channels
        self.anisotropy = Anisotropy(da0)
        self.stride = encoded_stride(da0)
        full, half, quarter = widths
        self.mix: nn.Conv3d | None = None
        if in_channels > 1:  # the encoder sees one image: initially the mean of all
            self.mix = nn.Conv3d(IMAGE_CHANNELS * in_channels, IMAGE_CHANNELS, 1, bias=False)
            with torch.no_grad():
                mean = torch.eye(IMAGE_CHANNELS).repeat(1, in_channels) / in_channels
                self.mix.weight.copy_(mean[..., None, None, None])
        self.encoder = ImageEncoder(
            IMAGE_CHANNELS, widths, dim, depth, num_heads, train_tokens, class_channels
        )
        self.up_quarter = SACUpsample(dim, quarter, 1)
        self.quarter_block = ResidualBlock(quarter)
        self.up_half = SACUpsample(quarter, half, 1)
        self.from_classes = nn.Conv3d(class_channels, half, 1)
        self.half_block = ResidualBlock(half)
        self.up_full = SACUpsample(half, full, 1)
        self.detail = SACConv(in_channels, full)
        self.full_block = ResidualBlock(full)
        self.heads = nn.ModuleList(
            SegmentationHead(width, num_classes, head_width)
            for width in widths[:num_supervised_levels]
        )

    def forward(self, x: Tensor, *, deep_supervision: bool = False) -> Tensor | list[Tensor]:
        """Segment an image.

        Args:
            x: Normalised intensities, shape (B, in_channels, D, H, W).
            deep_supervision: Whether to return the logits of every head.

        Returns:
            Logits (B, num_classes, D, H, W); with deep supervision those at full, 1/2 and 1/4
            in-plane scale, the finest first.
        """
        require_channels(x, self.in_channels, name=NAME)
        field, cropped = padded(x, self.stride, name=NAME)
        a = self.anisotropy
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            seen = torch.cat(
                [encoder_channels(c) for c in torch.unbind(field.float()[:, :, None], 1)], dim=1
            )
        image = seen if self.mix is None else self.mix(seen)
        found = self.encoder(image, a)
        assert found.classes is not None
        y = self.up_quarter(found.tokens, a.down(3)) + found.quarter
        quarter = self.quarter_block(y, a.down(2))
        classes = self.from_classes(found.classes.to(y.dtype))
        half = self.half_block(self.up_half(quarter, a.down(2)) + found.half + classes, a.down(1))
        y = self.up_full(half, a.down(1)) + found.full + self.detail(field, a)
        levels = [self.full_block(y, a), half, quarter]
        used = len(self.heads) if deep_supervision else 1
        logits = [
            cropped(head(F.silu(level)))
            for head, level in zip(self.heads, levels[:used], strict=False)
        ]
        return logits if deep_supervision else logits[0]


def encoded_stride(da0: int) -> tuple[int, int, int]:
    """Return the encoder's stride (d, h, w) at a degree of anisotropy."""
    side = 1 << HALVINGS
    return (max(side >> da0, 1), side, side)


def encoder_channels(x: Tensor) -> Tensor:
    """Compute the promptable network's input channels, (B, 1, D, H, W) to (B, 3, D, H, W).

    Like `preprocessing.fields.field_channels`, but on the fields' device and with quantiles of
    every n-th voxel.
    """
    flat = x.flatten(1)  # (B, N)
    sample = flat[:, :: max(1, flat.shape[1] // SAMPLED)]
    # As `torch.quantile` with the nearest values, which OpenVINO cannot convert.
    ends = torch.tensor([LOW, HIGH], dtype=flat.dtype, device=flat.device)
    ranks = (ends * (sample.shape[1] - 1)).round().long()
    low, high = sample.sort(dim=1).values[:, ranks].chunk(2, dim=1)
    linear = ((flat - low) / (high - low).clamp_min(1e-12)).clamp(0, 1)
    # Contrast-limited histogram equalisation, linear within a bin.
    bins = (linear * BINS).long().clamp_max(BINS - 1)
    counts = torch.zeros(len(flat), BINS, dtype=flat.dtype, device=flat.device)
    counts.scatter_add_(1, bins, torch.ones_like(linear))
    counts = counts.minimum(CLIP * counts.mean(1, keepdim=True))
    steps = F.pad(counts.cumsum(1), (1, 0))
    steps = steps / steps[:, -1:].clamp_min(1e-12)
    lower, upper = steps.gather(1, bins), steps.gather(1, bins + 1)
    equal = lower + (upper - lower) * (linear * BINS - bins)
    return torch.stack((linear, equal, torch.ones_like(linear)), 1).reshape(
        len(x), IMAGE_CHANNELS, *x.shape[2:]
    )
