"""Plain Mamba for segmentation: UNETR with Mamba layers instead of transformer layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from pumit.networks.mamba_mim.encoding import tokens_to_map
from pumit.networks.mamba_mim.unetr_mamba_encoder import VisionMambaEncoder
from pumit.networks.monai import UnetrBasicBlock, UnetResBlock, UnetrUpBlock
from pumit.networks.padding import padded, require_channels

NAME = "UNETR with Mamba"
NUM_LEVELS = 4  # decoder levels, each up-sampling by up to 2
Triple = tuple[int, int, int]


class UnetrMamba(nn.Module):
    """Vision Mamba encoder with UNETR's convolutional decoder.

    Args:
        num_classes: Output channels, including the background.
        patch: Voxels of a patch along (d, h, w): 1, 2, 4, 8 or 16 each.
        taps: Four layers whose tokens the decoder uses, counted from 1; the last is the last layer.
        feature_size: Channels at full resolution; doubled at each of the three levels below.
        state: See `MambaBlock`, also for `conv`, `expand` and `dt_rank`.

    Attributes:
        encoder: Encoder, which masked pre-training initialises.
        stride: Field sizes are padded to multiples of this, (d, h, w).

    Raises:
        ValueError: If the sizes do not fit together.

    Source:
        Tang et al., MambaMIM, 2024, figure 2 and table 1, "vanilla Mamba", whose code is not
        public; Hatamizadeh et al., UNETR, WACV 2022, figure 2. Differs from the source: see
        `VisionMambaEncoder`; if a patch is shallower than wide, the finest levels keep depth.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        num_classes: int,
        patch: Sequence[int],
        dim: int,
        taps: Sequence[int],
        feature_size: int,
        state: int,
        conv: int,
        expand: int,
        dt_rank: int,
    ) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        if len(taps) != NUM_LEVELS:
            raise ValueError(f"taps must be {NUM_LEVELS} numbers of layers, got {tuple(taps)}")
        steps = up_steps(patch)
        self.in_channels = in_channels
        self.encoder = VisionMambaEncoder(
            in_channels=in_channels,
            patch=patch,
            dim=dim,
            taps=taps,
            state=state,
            conv=conv,
            expand=expand,
            dt_rank=dt_rank,
        )
        self.stride = self.encoder.stride
        widths = [feature_size * 2**level for level in range(NUM_LEVELS)]
        self.image_block = UnetrBasicBlock(
            3, in_channels, feature_size, 3, 1, "instance", res_block=True
        )
        self.projections = nn.ModuleList(
            enlarging(dim, widths[level], steps[: level - 1 : -1]) for level in range(1, NUM_LEVELS)
        )
        self.ups = nn.ModuleList(
            UnetrUpBlock(3, below, width, 3, step, "instance", res_block=True)
            for below, width, step in zip((*widths[1:], dim), widths, steps, strict=True)
        )
        self.head = nn.Conv3d(feature_size, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map intensities (B, in_channels, D, H, W) to logits (B, num_classes, D, H, W).

        Raises:
            PumitError: If the channels do not match, or the field is smaller than a patch.
        """
        require_channels(x, self.in_channels, name=NAME)
        field, cropped = padded(x, self.stride, name=NAME)
        encoding = self.encoder(field)
        *early, y = (tokens_to_map(tokens, encoding.grid) for tokens in encoding.taps)
        skips = [self.image_block(field)]
        skips += [project(tap) for project, tap in zip(self.projections, early, strict=True)]
        for up, skip in reversed(list(zip(self.ups, skips, strict=True))):
            y = up(y, skip)
        return cropped(self.head(y))


def up_steps(patch: Sequence[int]) -> list[Triple]:
    """Return each decoder level's up-sampling factors (d, h, w), the finest first.

    Together they undo the patch; along short sides only the coarsest levels up-sample.

    Raises:
        ValueError: If a side of the patch is not a power of two from 1 to 16.
    """
    sides = [2**halvings for halvings in range(NUM_LEVELS + 1)]
    if len(patch) != 3 or any(side not in sides for side in patch):
        raise ValueError(
            f"the sides of a patch must be three of {', '.join(map(str, sides))}, got "
            f"{tuple(patch)}"
        )
    steps = []
    for level in range(NUM_LEVELS):
        d, h, w = (2 if side >> (NUM_LEVELS - 1 - level) > 1 else 1 for side in patch)
        steps.append((d, h, w))
    return steps


def enlarging(dim: int, channels: int, steps: Sequence[Triple]) -> nn.Sequential:
    """Build transposed convolutions, the coarsest first, each but the first with a residual block.

    Like MONAI's `UnetrPrUpBlock`, but with different steps.

    Args:
        steps: Factors of each step along (d, h, w).
    """
    layers: list[nn.Module] = [_transposed(dim, channels, steps[0])]
    for step in steps[1:]:
        layers += [
            _transposed(channels, channels, step),
            UnetResBlock(3, channels, channels, 3, 1, "instance"),
        ]
    return nn.Sequential(*layers)


def _transposed(in_channels: int, out_channels: int, step: Triple) -> nn.ConvTranspose3d:
    return nn.ConvTranspose3d(in_channels, out_channels, step, stride=step, bias=False)
