"""HyMamba: MedNeXt stages, Mamba layers over the cells of the coarsest grid, UNETR's decoder."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.channel_norm import ChannelLayerNorm
from pumit.networks.mamba_mim.mamba_block import MambaLayer
from pumit.networks.mamba_mim.masking import (
    Encoding,
    hide,
    require_mask,
    require_sincos_width,
    stage_masks,
    tokens_of,
    tokens_to_map,
    visible_index,
)
from pumit.networks.monai import UnetResBlock, UnetrUpBlock
from pumit.networks.padding import padded, require_channels

Triple = tuple[int, int, int]
NAME = "HyMamba"
LAST_NORMS = ("layer", "instance")
NORM_EPS = 1e-6


class MedNextBlock(nn.Module):
    """x + contract(GELU(expand(norm(depthwise 3^3 convolution of x)))).

    Source:
        Roy et al., MedNeXt, MICCAI 2023, figure 1. Differs from the source: layer norm over the
        channels, as in MambaMIM's code, instead of group norm with one channel per group, whose
        statistics would depend on the share of hidden cells.
    """

    def __init__(self, channels: int, *, expansion: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv3d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=NORM_EPS)
        self.expand = nn.Linear(channels, expansion * channels)
        self.contract = nn.Linear(expansion * channels, channels)

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Map features (B, C, D, H, W), zero where not visible (B, 1, D, H, W), to the same."""
        y = hide(self.depthwise(x), visible).movedim(1, -1)  # (B, D, H, W, C)
        y = self.contract(F.gelu(self.expand(self.norm(y))))
        return hide(x + y.movedim(-1, 1), visible)


class MedNextStage(nn.Module):
    """Sequence of MedNeXt blocks."""

    def __init__(self, channels: int, *, depth: int, expansion: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            MedNextBlock(channels, expansion=expansion) for _ in range(depth)
        )

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Map features (B, C, D, H, W), zero where not visible (B, 1, D, H, W), to the same."""
        for block in self.blocks:
            x = block(x, visible)
        return x


class ResidualConvBlock(nn.Module):
    """Residual block of two 3^3 convolutions with channel norms.

    If the widths differ, the shortcut is a 1^3 convolution with a norm.

    Args:
        out_channels: Output channels; None for the same as the input.

    Source:
        `UnetResBlock` of MambaMIM's code: MONAI's with biases, and layer norm over the channels.
    """

    def __init__(self, channels: int, out_channels: int | None = None) -> None:
        super().__init__()
        out = channels if out_channels is None else out_channels
        self.conv1 = nn.Conv3d(channels, out, 3, padding=1)
        self.norm1 = ChannelLayerNorm(out, eps=NORM_EPS)
        self.conv2 = nn.Conv3d(out, out, 3, padding=1)
        self.norm2 = ChannelLayerNorm(out, eps=NORM_EPS)
        self.shortcut: nn.Sequential | None = None
        if out != channels:
            self.shortcut = nn.Sequential(
                nn.Conv3d(channels, out, 1), ChannelLayerNorm(out, eps=NORM_EPS)
            )

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Map features (B, C, D, H, W), zero where not visible, to (B, out_channels, D, H, W)."""
        y = hide(F.leaky_relu(self.norm1(self.conv1(x)), 0.01), visible)
        x = x if self.shortcut is None else self.shortcut(x)
        return hide(F.leaky_relu(x + self.norm2(self.conv2(y)), 0.01), visible)


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
        if not len(widths) == len(depths) == len(expansions) == len(poolings) > 0:
            raise ValueError(
                f"widths, depths, expansions and poolings must be as many, got {len(widths)}, "
                f"{len(depths)}, {len(expansions)} and {len(poolings)}"
            )
        for steps in poolings:
            if len(steps) != 3 or min(steps) < 1:
                raise ValueError(
                    f"a pooling must be three whole numbers from 1 on, got {tuple(steps)}"
                )
        require_sincos_width(widths[-1])
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
            ResidualConvBlock(width) if number > 0 or reads_finest else nn.Identity()
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
            skip = self.skips[number]
            maps.append(skip(y, masks[number]) if isinstance(skip, ResidualConvBlock) else y)
            y = stage(F.max_pool3d(y, steps, steps), visible)
            if number < len(self.widenings):
                y = hide(self.widenings[number](y), visible)
        tokens = tokens_of(y, index, next(self.parameters()).dtype)
        for layer in self.layers:
            tokens = layer(tokens)
        return Encoding(tuple(maps), tokens, grid, index)


def _conv(in_channels: int, out_channels: int) -> nn.Conv3d:
    return nn.Conv3d(in_channels, out_channels, 3, padding=1)


class HyMamba(nn.Module):
    """Hybrid of MedNeXt and Mamba.

    Args:
        last_norm: Norm of the last block: "layer" over the channels, or "instance" as in models of
            PUMIT 0.2 and before.
        encoder: Further sizes of the `HyMambaEncoder`.

    Attributes:
        encoder: Encoder, which masked pre-training initialises.
        stride: Field sizes are padded to multiples of this, (d, h, w).

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
        """Map intensities (B, in_channels, D, H, W) to logits (B, num_classes, D, H, W)."""
        require_channels(x, self.in_channels, name=NAME)
        field, cropped = padded(x, self.stride, name=NAME)
        encoding = self.encoder(field)
        y = tokens_to_map(encoding.tokens, encoding.grid)
        for up, features in reversed(list(zip(self.ups, encoding.maps, strict=True))):
            y = up(y, features)
        return cropped(self.head(self.last(y)))


def renewed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert weights of PUMIT 0.2 and before to equivalent weights of the current network.

    Earlier, each MedNeXt block had a channel scale, which is now folded into its last projection;
    stem and skips had no biases; and there were unused parameters.

    Args:
        state: Weights by name of `HyMamba` or `HyMambaMim`, in the old or current layout.
    """
    new = {k: v for k, v in state.items() if not k.startswith("unused.")}
    if "state_matrix" in new:  # pre-training does not use the finest map
        new = {k: v for k, v in new.items() if not k.startswith("encoder.skips.0.")}
    for key in [k for k in new if k.endswith(".scale")]:
        block, scale = key.removesuffix(".scale"), new.pop(key).float()
        for kind in ("weight", "bias"):
            projection = new[f"{block}.contract.{kind}"]
            wide = scale[:, None] if kind == "weight" else scale
            new[f"{block}.contract.{kind}"] = (wide * projection.float()).to(projection.dtype)
    for key in [k for k in new if k.startswith(("encoder.stem.", "encoder.skips."))]:
        is_convolution = key.endswith(".weight") and new[key].ndim == 5
        bias = key.removesuffix("weight") + "bias"
        if is_convolution and bias not in new:
            new[bias] = torch.zeros_like(new[key][:, 0, 0, 0, 0])
    return new
