"""MambaMIM: reconstruct hidden cells of an image from what a Mamba encoder makes of the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pumit.networks.mamba_mim.dense_decoder import DenseDecoder
from pumit.networks.mamba_mim.encoding import tokens_to_map
from pumit.networks.mamba_mim.hymamba_encoder import HyMambaEncoder
from pumit.networks.mamba_mim.masking import require_mask, stage_masks, take_tokens, visible_index
from pumit.networks.mamba_mim.token_interpolation import (
    QUIRKS,
    quirks_of,
    state_space_token_interpolation,
)
from pumit.networks.padding import require_channels

MASK_RATIO = 0.75

MASKING_QUIRKS = {
    "batch_length": "as many tokens of each image pass through Mamba as the whole batch has "
    "visible ones, at most all: hidden ones too, after the visible ones. Mamba is causal, so this "
    "costs time and changes nothing that is used",
    "unstable_order": "tokens are sorted into visible and hidden ones by a sort that need not keep "
    "the raster order among either",
}
"""What the published code does otherwise than the paper, in choosing the tokens."""


class MambaMim(nn.Module):
    """HyMamba's encoder on visible cells, S6T, and a decoder of the whole image.

    Args:
        decoder_widths: The decoder's channels, the coarsest first.
        official_compat: True for every quirk of the published code, here (`MASKING_QUIRKS`) and in
            the interpolation (`QUIRKS`); False for none; or the names of some.
        encoder: Sizes of the `HyMambaEncoder`.

    Attributes:
        encoder: What fine-tuning begins with.
        state_matrix: A of the interpolation, zero at first as published.
        stride: Voxels of a cell, (d, h, w).

    Raises:
        ValueError: If the sizes do not fit together.

    Source:
        Tang et al., MambaMIM, 2024, section 2.
    """

    def __init__(
        self,
        *,
        decoder_widths: Sequence[int],
        official_compat: bool | Collection[str],
        **encoder: Any,
    ) -> None:
        super().__init__()
        self.quirks = quirks_of(official_compat, {**QUIRKS, **MASKING_QUIRKS})
        self.encoder = HyMambaEncoder(**encoder)
        # The decoder does not read the finest map, so fine-tuning begins its skip as drawn.
        self.encoder.skips[0].requires_grad_(False)
        self.in_channels: int = encoder["in_channels"]
        self.stride = self.encoder.stride
        self.state_matrix = nn.Parameter(torch.zeros(self.encoder.dim, self.encoder.dim))
        self.decoder = DenseDecoder(
            token_width=self.encoder.dim,
            map_widths=self.encoder.widths,
            widths=decoder_widths,
            poolings=self.encoder.poolings,
            out_channels=self.in_channels,
        )

    def grid(self, size: Sequence[int]) -> tuple[int, int, int]:
        """Cells of a field of (D, H, W) voxels along (d, h, w).

        Raises:
            ValueError: If the field is not made of whole cells.
        """
        if any(n % step or n < step for n, step in zip(size, self.stride, strict=True)):
            raise ValueError(
                f"MambaMIM hides whole cells of {_times(self.stride)} voxels; a field of "
                f"{_times(size)} is not made of such."
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
        encoding = self.encoder(x, visible, order=self._order(visible, index), reads_finest=False)
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


def _times(size: Sequence[int]) -> str:
    return " x ".join(str(n) for n in size)
