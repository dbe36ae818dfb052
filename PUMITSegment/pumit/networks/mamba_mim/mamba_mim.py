"""MambaMIM: reconstruct hidden cells of an image from what a Mamba encoder makes of the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pumit.networks.mamba_mim.dense_decoder import DenseDecoder
from pumit.networks.mamba_mim.encoding import Encoding, tokens_to_map
from pumit.networks.mamba_mim.hymamba_encoder import HyMambaEncoder
from pumit.networks.mamba_mim.mamba_block import MambaBlock
from pumit.networks.mamba_mim.masking import require_mask, stage_masks, take_tokens, visible_index
from pumit.networks.mamba_mim.token_interpolation import (
    QUIRKS,
    quirks_of,
    state_space_token_interpolation,
)
from pumit.networks.mamba_mim.unetr_mamba_encoder import VisionMambaEncoder
from pumit.networks.padding import require_channels
from pumit.system.wording import times

Triple = tuple[int, int, int]

MASKING_QUIRKS = {
    "batch_length": "as many tokens of each image pass through Mamba as the whole batch has "
    "visible ones, at most all: hidden ones too, after the visible ones. Mamba is causal, so this "
    "costs time and changes nothing that is used",
    "unstable_order": "tokens are sorted into visible and hidden ones by a sort that need not keep "
    "the raster order among either",
}
"""What the published code does otherwise than the paper, in choosing the tokens."""

START_QUIRKS = {
    "start": "Mamba's linear layers are drawn anew after its own start; see `MambaBlock`",
}
"""What it does otherwise before training."""


class MambaMim(nn.Module):
    """A Mamba encoder on visible cells, S6T, and a decoder of the whole image.

    Args:
        decoder_widths: The decoder's channels, the coarsest first.
        official_compat: True for all quirks of the published code that are named here
            (`MASKING_QUIRKS`, `START_QUIRKS`) and for the interpolation (`QUIRKS`); False for none;
            or the names of some.

    Attributes:
        encoder: Encoder that fine-tuning begins with.
        state_matrix: A of the interpolation, zero at first as published.
        stride: Voxels of a cell, (d, h, w).

    Raises:
        ValueError: If the sizes do not fit together.

    Source:
        Tang et al., MambaMIM, 2024, section 2.
    """

    def __init__(
        self,
        encoder: HyMambaEncoder | VisionMambaEncoder,
        *,
        in_channels: int,
        decoder_widths: Sequence[int],
        official_compat: bool | Collection[str],
    ) -> None:
        super().__init__()
        self.quirks = quirks_of(official_compat, {**QUIRKS, **MASKING_QUIRKS, **START_QUIRKS})
        self.encoder = encoder
        if "start" in self.quirks:
            for block in encoder.modules():
                if isinstance(block, MambaBlock):
                    block.draw_linear_layers()
        self.in_channels = in_channels
        self.stride: Triple = encoder.stride
        self.state_matrix = nn.Parameter(torch.zeros(encoder.dim, encoder.dim))
        self.decoder = DenseDecoder(
            token_width=encoder.dim,
            map_widths=encoder.widths,
            widths=decoder_widths,
            poolings=encoder.poolings if encoder.widths else halvings(encoder.stride),
            out_channels=in_channels,
        )

    def grid(self, size: Sequence[int]) -> tuple[int, int, int]:
        """Cells of a field of (D, H, W) voxels along (d, h, w).

        Raises:
            ValueError: If the field is not made of whole cells.
        """
        if any(n % step or n < step for n, step in zip(size, self.stride, strict=True)):
            raise ValueError(
                f"MambaMIM hides whole cells of {times(self.stride)} voxels; a field of "
                f"{times(size)} is not made of such."
            )
        d, h, w = (n // step for n, step in zip(size, self.stride, strict=True))
        return d, h, w

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        """Reconstruct an image from its visible cells.

        Args:
            x: Intensities (B, in_channels, D, H, W), the size a multiple of the stride.
            visible: Boolean (B, 1, d, h, w) over the cells, as many True in each image.

        Returns:
            (B, in_channels, D, H, W): of each cell what the intensities are less the cell's mean,
            in its standard deviations; only hidden cells are learned.

        Raises:
            PumitError: If the channels do not match.
            ValueError: If the field is not made of whole cells, or the mask does not fit.
        """
        require_channels(x, self.in_channels, name="MambaMIM")
        grid = self.grid(x.shape[2:])
        require_mask(visible, x.shape[0], grid)
        index = visible_index(visible)
        encoding: Encoding = self.encoder(x, visible, order=self._order(visible, index))
        tokens = encoding.tokens
        if encoding.visible_index is not index:
            whole = tokens_to_map(tokens, grid, encoding.visible_index)
            tokens = take_tokens(whole.flatten(2).transpose(1, 2), index)
        places = grid[0] * grid[1] * grid[2]
        filled = state_space_token_interpolation(
            tokens, index, places, self.state_matrix, self.quirks & QUIRKS.keys()
        )
        masks = stage_masks(visible, self.encoder.poolings)
        return self.decoder(tokens_to_map(filled, grid), encoding.maps, masks)

    def _order(self, visible: Tensor, index: Tensor) -> Tensor:
        """Raster positions of the tokens that pass through Mamba, in their order, (B, K)."""
        if not self.quirks & MASKING_QUIRKS.keys():
            return index
        flat = visible.flatten(1)
        order = torch.argsort(
            flat.byte(), dim=1, descending=True, stable="unstable_order" not in self.quirks
        )
        kept = index.numel() if "batch_length" in self.quirks else index.shape[1]
        return order[:, :kept]


class HyMambaMim(MambaMim):
    """MambaMIM of HyMamba, whose finest map the decoder does not read.

    Args:
        decoder_widths: See `MambaMim`, as `official_compat`.
        encoder: Sizes of the `HyMambaEncoder`.
    """

    encoder: HyMambaEncoder

    def __init__(
        self,
        *,
        decoder_widths: Sequence[int],
        official_compat: bool | Collection[str],
        **encoder: Any,
    ) -> None:
        super().__init__(
            HyMambaEncoder(**encoder, reads_finest=False),
            in_channels=encoder["in_channels"],
            decoder_widths=decoder_widths,
            official_compat=official_compat,
        )


class UnetrMambaMim(MambaMim):
    """MambaMIM of only a Vision Mamba, "a special case in hybrid models": there are no maps.

    Args:
        decoder_widths: See `MambaMim`, as `official_compat`; one more than the longest side of a
            patch has halvings.
        encoder: Sizes of the `VisionMambaEncoder`.
    """

    def __init__(
        self,
        *,
        decoder_widths: Sequence[int],
        official_compat: bool | Collection[str],
        **encoder: Any,
    ) -> None:
        super().__init__(
            VisionMambaEncoder(**encoder),
            in_channels=encoder["in_channels"],
            decoder_widths=decoder_widths,
            official_compat=official_compat,
        )


def halvings(patch: Triple) -> list[Triple]:
    """Return steps, the finest first, that together divide (d, h, w) by a patch.

    The finest steps leave alone an axis that is halved less often.

    Raises:
        ValueError: If a side is no power of two.
    """
    if any(side & (side - 1) for side in patch):
        raise ValueError(f"a patch to pre-train has sides of powers of two, got {tuple(patch)}")
    count = max(side.bit_length() - 1 for side in patch)
    steps = [[2 if side >> (count - k) else 1 for side in patch] for k in range(count)]
    return [(d, h, w) for d, h, w in steps]
