"""HyMamba: MedNeXt stages, Mamba layers over the cells of the coarsest grid, UNETR's decoder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.mamba_mim.encoding import Encoding, require_sincos_width, sincos_positions
from pumit.networks.mamba_mim.mamba_block import MambaLayer
from pumit.networks.mamba_mim.masking import (
    hide,
    require_mask,
    stage_masks,
    take_tokens,
    visible_index,
)
from pumit.networks.mamba_mim.mednext import MedNextStage, ResidualConvBlock
from pumit.networks.monai import UnetResBlock, UnetrUpBlock
from pumit.networks.padding import padded, require_channels

Triple = tuple[int, int, int]
NAME = "HyMamba"
LAST_NORMS = ("layer", "instance")


class HyMambaEncoder(nn.Module):
    """Encoder with convolutions for local context and selective state spaces for global context.

    Args:
        stem_width: Channels between the two convolutions of the stem.
        widths: Channels of the maps, the finest first; tokens have the last width.
        expansions: Bottleneck expansion of the blocks after each pooling.
        poolings: Factors of each pooling along (d, h, w); 1 keeps an axis.
        reads_finest: Whether a decoder uses the finest map; otherwise it has no skip block.
        layer: Sizes of each `MambaLayer`.

    Attributes:
        stride: Divisor of a field's size, (d, h, w).

    Raises:
        ValueError: If the sizes do not fit together.

    Source:
        Tang et al., MambaMIM, 2024, section 2.1 and algorithm 1.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        stem_width: int,
        widths: Sequence[int],
        depths: Sequence[int],
        expansions: Sequence[int],
        poolings: Sequence[Sequence[int]],
        num_layers: int,
        reads_finest: bool = True,
        **layer: Any,
    ) -> None:
        super().__init__()
        _require_stages(widths, depths, expansions, poolings)
        self.widths = tuple(widths)
        self.dim = self.widths[-1]
        self.poolings: tuple[Triple, ...] = tuple((d, h, w) for d, h, w in poolings)
        d, h, w = (math.prod(steps) for steps in zip(*self.poolings, strict=True))
        self.stride: Triple = (d, h, w)
        self.stem = nn.ModuleList((_conv(in_channels, stem_width), _conv(stem_width, widths[0])))
        self.stages = nn.ModuleList(
            MedNextStage(width, depth=depth, expansion=expansion)
            for width, depth, expansion in zip(widths, depths, expansions, strict=True)
        )
        # The features of stage i become map i + 1; those of the last stage become tokens.
        self.widenings = nn.ModuleList(
            _conv(narrow, wide) for narrow, wide in itertools.pairwise(widths)
        )
        # Skip blocks for decoders; as published, they are part of the pre-trained encoder.
        self.skips = nn.ModuleList(
            ResidualConvBlock(width) if number > 0 or reads_finest else _Unread()
            for number, width in enumerate(widths)
        )
        self.layers = nn.ModuleList(MambaLayer(self.dim, **layer) for _ in range(num_layers))

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        order: Tensor | None = None,
    ) -> Encoding:
        """Encode a field, or its visible cells.

        Args:
            x: Intensities (B, in_channels, D, H, W), the size a multiple of the stride.
            mask: Boolean (B, 1, D / stride, ...), True for visible cells, the same number in each
                image. Hidden cells do not affect the output; only visible ones become tokens.
            order: Raster positions (B, K) of the cells that pass through Mamba, in this order; None
                for the visible ones in raster order.

        Raises:
            ValueError: If the mask does not fit.
        """
        d, h, w = (n // step for n, step in zip(x.shape[2:], self.stride, strict=True))
        grid = (d, h, w)
        masks: list[Tensor | None] = [None] * (len(self.poolings) + 1)
        index = None
        if mask is not None:
            require_mask(mask, x.shape[0], grid)
            masks = [*stage_masks(mask, self.poolings)]
            index = visible_index(mask) if order is None else order
        maps = []
        y = hide(x, masks[0])
        for conv in self.stem:
            y = hide(conv(y), masks[0])
        for number, (stage, steps) in enumerate(zip(self.stages, self.poolings, strict=True)):
            visible = masks[number + 1]
            maps.append(self.skips[number](y, masks[number]))
            y = stage(F.max_pool3d(y, steps, steps), visible)
            if number < len(self.widenings):
                y = hide(self.widenings[number](y), visible)
        tokens = y.flatten(2).transpose(1, 2)  # (B, N, C)
        positions = sincos_positions(grid, self.dim, device=x.device)
        # In the parameters' precision, so that autocast does not round the residual sums.
        tokens = tokens + positions.to(next(self.parameters()).dtype)
        if index is not None:
            tokens = take_tokens(tokens, index)
        for layer in self.layers:
            tokens = layer(tokens)
        return Encoding(tuple(maps), tokens, grid, index)


class _Unread(nn.Module):
    """Placeholder for the skip block of an unused map."""

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        return x


def _conv(in_channels: int, out_channels: int) -> nn.Conv3d:
    return nn.Conv3d(in_channels, out_channels, 3, padding=1)


def _require_stages(
    widths: Sequence[int],
    depths: Sequence[int],
    expansions: Sequence[int],
    poolings: Sequence[Sequence[int]],
) -> None:
    if not len(widths) == len(depths) == len(expansions) == len(poolings) > 0:
        raise ValueError(
            f"widths, depths, expansions and poolings must be as many, got {len(widths)}, "
            f"{len(depths)}, {len(expansions)} and {len(poolings)}"
        )
    for steps in poolings:
        if len(steps) != 3 or min(steps) < 1:
            raise ValueError(f"a pooling must be three whole numbers from 1 on, got {tuple(steps)}")
    require_sincos_width(widths[-1])


class HyMamba(nn.Module):
    """Hybrid of MedNeXt and Mamba.

    Args:
        last_norm: Norm of the last block: "layer" over the channels, or "instance" as in models of
            PUMIT 0.2 and before.
        encoder: Further sizes of the `HyMambaEncoder`.

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
        widths: Sequence[int],
        last_width: int,
        last_norm: str,
        **encoder: Any,
    ) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        self.in_channels = in_channels
        self.encoder = HyMambaEncoder(in_channels=in_channels, widths=widths, **encoder)
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
