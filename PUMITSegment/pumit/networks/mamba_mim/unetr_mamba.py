"""Plain Mamba for segmentation: UNETR with Mamba layers instead of transformer layers."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from pumit.networks.mamba_mim.mamba_block import MambaLayer
from pumit.networks.mamba_mim.masking import (
    Encoding,
    require_mask,
    require_sincos_width,
    tokens_of,
    tokens_to_map,
    visible_index,
)
from pumit.networks.monai import UnetrBasicBlock, UnetResBlock, UnetrUpBlock
from pumit.networks.padding import padded, require_channels

Triple = tuple[int, int, int]
NAME = "UNETR with Mamba"
NUM_LEVELS = 4  # decoder levels, each up-sampling by up to 2


class VisionMambaEncoder(nn.Module):
    """Patch embedding, position embedding, and pre-norm residual Mamba layers.

    Args:
        patch: Voxels of a patch along (d, h, w).
        taps: Layers whose tokens are returned, counted from 1. The last one is the number of
            layers; its tokens are normalised.
        block: Sizes of each `MambaBlock`.

    Attributes:
        stride: Divisor of a field's size, (d, h, w): the patch.
        widths: Channels of the convolutional maps: none.
        poolings: The patch as a single pooling.

    Source:
        Tang et al., MambaMIM, 2024, figure 2: "Vision Mamba replaces ViT in UNETR"; Zhu et al.,
        Vision Mamba, 2024. Differs from the source: the scan is causal, as in MambaMIM's hybrid and
        as its token interpolation assumes, while Vision Mamba is bidirectional. Positions are fixed
        sines and cosines, which work for grids of any size.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        patch: Sequence[int],
        dim: int,
        taps: Sequence[int],
        **block: Any,
    ) -> None:
        super().__init__()
        if len(patch) != 3 or min(patch) < 1:
            raise ValueError(f"a patch must be three whole numbers from 1 on, got {tuple(patch)}")
        if not taps or list(taps) != sorted({*taps}) or taps[0] < 1:
            raise ValueError(f"taps must be ascending numbers of layers, got {tuple(taps)}")
        require_sincos_width(dim)
        d, h, w = patch
        self.stride: Triple = (d, h, w)
        self.poolings: tuple[Triple, ...] = (self.stride,)
        self.widths: tuple[int, ...] = ()
        self.dim = dim
        self._taps = tuple(taps)
        self.embedding = nn.Conv3d(in_channels, dim, self.stride, stride=self.stride)
        self.layers = nn.ModuleList(MambaLayer(dim, mlp_ratio=0, **block) for _ in range(taps[-1]))
        self.norm = nn.LayerNorm(dim)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, order: Tensor | None = None
    ) -> Encoding:
        """Encode a field, or its visible patches.

        Args:
            x: Intensities (B, in_channels, D, H, W), the size a multiple of the patch.
            mask: Boolean (B, 1, D / patch, ...), True for visible patches, the same number in each
                image.
            order: See `HyMambaEncoder.forward`.

        Returns:
            Encoding without maps; `taps` has the tokens at all taps, the last equal to `tokens`.

        Raises:
            ValueError: If the mask does not fit.
        """
        y = self.embedding(x)
        d, h, w = y.shape[2:]
        index = None
        if mask is not None:
            require_mask(mask, x.shape[0], (d, h, w))
            index = visible_index(mask) if order is None else order
        tokens = tokens_of(y, index, next(self.parameters()).dtype)
        taps = []
        for number, layer in enumerate(self.layers, start=1):
            tokens = layer(tokens)
            if number in self._taps[:-1]:
                taps.append(tokens)
        tokens = self.norm(tokens)
        return Encoding((), tokens, (d, h, w), index, (*taps, tokens))


class UnetrMamba(nn.Module):
    """Vision Mamba encoder with UNETR's convolutional decoder.

    Args:
        patch: Voxels of a patch along (d, h, w): 1, 2, 4, 8 or 16 each.
        taps: Four layers whose tokens the decoder uses, counted from 1; the last is the last layer.
        feature_size: Channels at full resolution; doubled at each of the three levels below.
        block: Sizes of each `MambaBlock`.

    Attributes:
        encoder: Encoder, which masked pre-training initialises.
        stride: Field sizes are padded to multiples of this, (d, h, w).

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
        **block: Any,
    ) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        if len(taps) != NUM_LEVELS:
            raise ValueError(f"taps must be {NUM_LEVELS} numbers of layers, got {tuple(taps)}")
        steps = halvings(patch, NUM_LEVELS)
        self.in_channels = in_channels
        self.encoder = VisionMambaEncoder(
            in_channels=in_channels, patch=patch, dim=dim, taps=taps, **block
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
        """Map intensities (B, in_channels, D, H, W) to logits (B, num_classes, D, H, W)."""
        require_channels(x, self.in_channels, name=NAME)
        field, cropped = padded(x, self.stride, name=NAME)
        encoding = self.encoder(field)
        *early, y = (tokens_to_map(tokens, encoding.grid) for tokens in encoding.taps)
        skips = [self.image_block(field)]
        skips += [project(tap) for project, tap in zip(self.projections, early, strict=True)]
        for up, skip in reversed(list(zip(self.ups, skips, strict=True))):
            y = up(y, skip)
        return cropped(self.head(y))


def halvings(patch: Sequence[int], count: int) -> list[Triple]:
    """Split a patch (d, h, w) into `count` steps of 1 or 2 per axis, the finest first.

    The finest steps keep an axis that is halved less often.

    Raises:
        ValueError: If a side of the patch is not a power of two up to 2^count.
    """
    sides = [2**n for n in range(count + 1)]
    if len(patch) != 3 or any(side not in sides for side in patch):
        raise ValueError(
            f"the sides of a patch must be three of {', '.join(map(str, sides))}, got "
            f"{tuple(patch)}"
        )
    steps = [[2 if side >> (count - k) else 1 for side in patch] for k in range(count)]
    return [(d, h, w) for d, h, w in steps]


def enlarging(dim: int, channels: int, steps: Sequence[Triple]) -> nn.Sequential:
    """Build transposed convolutions, the coarsest first, each but the first with a residual block.

    Like MONAI's `UnetrPrUpBlock`, but with different steps.

    Args:
        steps: Factors of each step along (d, h, w).
    """
    layers: list[nn.Module] = []
    for number, step in enumerate(steps):
        width = channels if number else dim
        layers.append(nn.ConvTranspose3d(width, channels, step, stride=step, bias=False))
        if number:
            layers.append(UnetResBlock(3, channels, channels, 3, 1, "instance"))
    return nn.Sequential(*layers)
