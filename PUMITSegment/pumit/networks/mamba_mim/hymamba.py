"""HyMamba for segmentation: HyMamba's encoder and UNETR's decoder."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from pumit.networks.mamba_mim.hymamba_encoder import HyMambaEncoder
from pumit.networks.mamba_mim.mednext import ResidualConvBlock
from pumit.networks.monai import UnetResBlock, UnetrUpBlock
from pumit.networks.padding import padded, require_channels

NAME = "HyMamba"
LAST_NORMS = ("layer", "instance")


class HyMamba(nn.Module):
    """Hybrid of MedNeXt and Mamba.

    Args:
        num_classes: Output channels, including the background.
        stem_width: See `HyMambaEncoder`, also for the other encoder sizes.
        last_width: Input channels of the head.
        last_norm: Norm of the last block: "layer" over the channels, or "instance" as in models of
            PUMIT 0.2 and before.

    Attributes:
        encoder: Encoder, which masked pre-training initialises.
        stride: Field sizes are padded to multiples of this, (d, h, w).

    Raises:
        ValueError: If the sizes do not fit together.

    Source:
        Tang et al., MambaMIM, 2024, section 2; the decoder as in Hatamizadeh et al., UNETR, 2022.
        Differs from the source: positions are computed; poolings may keep depth; fields may have
        any size.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        num_classes: int,
        stem_width: int,
        widths: Sequence[int],
        depths: Sequence[int],
        expansions: Sequence[int],
        poolings: Sequence[Sequence[int]],
        num_layers: int,
        mlp_ratio: int,
        state: int,
        conv: int,
        expand: int,
        dt_rank: int,
        last_width: int,
        last_norm: str,
    ) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        self.in_channels = in_channels
        self.encoder = HyMambaEncoder(
            in_channels=in_channels,
            stem_width=stem_width,
            widths=widths,
            depths=depths,
            expansions=expansions,
            poolings=poolings,
            num_layers=num_layers,
            mlp_ratio=mlp_ratio,
            state=state,
            conv=conv,
            expand=expand,
            dt_rank=dt_rank,
        )
        self.stride = self.encoder.stride
        self.ups = nn.ModuleList(
            UnetrUpBlock(3, below, width, 3, steps, "instance", res_block=True)
            for below, width, steps in zip(
                (*widths[1:], widths[-1]), widths, self.encoder.poolings, strict=True
            )
        )
        if last_norm not in LAST_NORMS:
            raise ValueError(f"last_norm must be one of {', '.join(LAST_NORMS)}, got {last_norm!r}")
        self.last: nn.Module = (
            ResidualConvBlock(widths[0], last_width)
            if last_norm == "layer"
            else UnetResBlock(3, widths[0], last_width, 3, 1, "instance")
        )
        self.head = nn.Conv3d(last_width, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map intensities (B, in_channels, D, H, W) to logits (B, num_classes, D, H, W).

        Raises:
            PumitError: If the channels do not match, or the field is smaller than the stride.
        """
        require_channels(x, self.in_channels, name=NAME)
        field, cropped = padded(x, self.stride, name=NAME)
        encoding = self.encoder(field)
        y = encoding.bottom_map()
        for up, features in reversed(list(zip(self.ups, encoding.maps, strict=True))):
            y = up(y, features)
        return cropped(self.head(self.last(y)))
