"""MambaMIM: masked image modelling with a Mamba encoder and a dense decoder."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pumit.networks.mamba_mim.hymamba import HyMambaEncoder
from pumit.networks.mamba_mim.mamba_block import MambaBlock
from pumit.networks.mamba_mim.masking import (
    Encoding,
    require_mask,
    stage_masks,
    take_tokens,
    tokens_to_map,
    visible_index,
)
from pumit.networks.mamba_mim.token_interpolation import (
    QUIRKS,
    quirks_of,
    state_space_token_interpolation,
)
from pumit.networks.mamba_mim.unetr_mamba import VisionMambaEncoder, halvings
from pumit.networks.padding import require_channels
from pumit.system.wording import times

Triple = tuple[int, int, int]
# What the published code does otherwise than the paper, in choosing the tokens ...
MASKING_QUIRKS = {
    "batch_length": "as many tokens of each image pass through Mamba as the whole batch has "
    "visible ones, at most all: hidden ones too, after the visible ones. Mamba is causal, so this "
    "costs time and changes nothing that is used",
    "unstable_order": "tokens are sorted into visible and hidden ones by a sort that need not keep "
    "the raster order among either",
}
# ... and before training.
START_QUIRKS = {
    "start": "Mamba's linear layers are drawn again; see `MambaBlock.draw_linear_layers`",
}


class DenseDecoder(nn.Module):
    """Decoder that reconstructs an image from dense tokens and sparse feature maps.

    Hidden cells of each map are filled with a learned token, and a convolution maps the result to
    the decoder's width at that scale. From the coarsest scale on, each block fuses the densified
    map of its scale, up-samples, and convolves.

    Args:
        map_widths: Channels of the maps, the finest first; empty if the encoder has none. The
            finest map is not used: the last block ends at its scale.
        widths: The decoder's channels, the coarsest first: one more than there are poolings.
        poolings: Factors of each pooling of the encoder along (d, h, w), the finest first.

    Raises:
        ValueError: If the numbers of scales do not fit together.

    Source:
        Tang et al., MambaMIM, 2024, section 2.2 and algorithm 2.

    Differs from the source: the finest map is not used, as in the published code; algorithm 2 uses
    it. Unused modules of the published decoder are left out (a fusion in the first block, the
    finest densification, the learned tokens of the finest and the coarsest scale), as are biases
    cancelled by a following batch norm.
    """

    def __init__(
        self,
        *,
        token_width: int,
        map_widths: Sequence[int],
        widths: Sequence[int],
        poolings: Sequence[Triple],
        out_channels: int,
    ) -> None:
        super().__init__()
        if len(widths) != len(poolings) + 1 or len(map_widths) not in (0, len(poolings)):
            raise ValueError(
                f"a decoder after {len(poolings)} poolings needs {len(poolings) + 1} widths, and "
                f"as many maps as poolings or none; got {len(widths)} and {len(map_widths)}"
            )
        self.project = nn.Conv3d(token_width, widths[0], 1)
        read = list(reversed(map_widths))[:-1]  # coarsest first, without the finest
        self.fill = nn.ParameterList(
            nn.Parameter(0.02 * torch.randn(1, channels, 1, 1, 1)) for channels in read
        )
        self.densify = nn.ModuleList(
            nn.Conv3d(channels, width, 3, padding=1)
            for channels, width in zip(read, widths[1:], strict=False)
        )
        self.blocks = nn.ModuleList(
            EnlargingBlock(width, narrower, steps, is_fusing=0 < k <= len(read))
            for k, (width, narrower, steps) in enumerate(
                zip(widths[:-1], widths[1:], reversed(poolings), strict=True)
            )
        )
        self.head = nn.Conv3d(widths[-1], out_channels, 1)

    def forward(self, bottom: Tensor, maps: Sequence[Tensor], visible: Sequence[Tensor]) -> Tensor:
        """Reconstruct.

        Args:
            bottom: Tokens on their grid, without gaps, (B, token_width, d, h, w).
            maps: Encoder maps, the finest first, (B, C_i, *grid_i), zero where hidden.
            visible: Visible cells of each map, boolean (B, 1, *grid_i).

        Returns:
            (B, out_channels, D, H, W).
        """
        coarsest_first = list(zip(maps, visible, strict=False))[::-1]
        densified = [
            densify(torch.where(seen, features, fill.to(features.dtype)))
            for densify, fill, (features, seen) in zip(
                self.densify, self.fill, coarsest_first, strict=False
            )
        ]
        y = self.project(bottom)
        for k, block in enumerate(self.blocks):
            y = block(y, densified[k - 1] if 0 < k <= len(densified) else None)
        return self.head(y)


class EnlargingBlock(nn.Module):
    """Fusion with a map of the same scale, transposed convolution, and convolutions.

    Args:
        steps: Up-sampling factors (d, h, w).
        is_fusing: Whether there is a map to fuse.
    """

    def __init__(self, channels: int, out_channels: int, steps: Triple, *, is_fusing: bool) -> None:
        super().__init__()
        self.fuse = _convolutions(2 * channels, channels) if is_fusing else None
        self.enlarge = nn.ConvTranspose3d(channels, channels, steps, stride=steps)
        self.convolve = _convolutions(channels, out_channels)

    def forward(self, x: Tensor, features: Tensor | None = None) -> Tensor:
        """Map (B, channels, d, h, w), and a map of that shape, to (B, out_channels, d', h', w')."""
        if self.fuse is not None and features is not None:
            x = self.fuse(torch.cat((features, x), dim=1))
        return self.convolve(self.enlarge(x))


def _convolutions(channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm3d(out_channels),
        nn.ReLU(),
        nn.Conv3d(out_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm3d(out_channels),
        nn.ReLU(),
    )


class MambaMim(nn.Module):
    """Mamba encoder of visible cells, token interpolation (S6T), and decoder of the whole image.

    Args:
        decoder_widths: The decoder's channels, the coarsest first.
        encoder_sizes: Further sizes of the encoder.
        official_compat: True for all deviations of the published code from the paper
            (`MASKING_QUIRKS`, `START_QUIRKS`, and `QUIRKS` of the interpolation), False for none,
            or the names of some.

    Attributes:
        state_matrix: Matrix A of the interpolation, initially zero as published.
        stride: Voxels of a cell, (d, h, w).

    Source:
        Tang et al., MambaMIM, 2024, section 2.
    """

    encoder_class: Callable[..., HyMambaEncoder | VisionMambaEncoder]

    def __init__(
        self,
        *,
        in_channels: int,
        decoder_widths: Sequence[int],
        official_compat: bool | Collection[str],
        **encoder_sizes: Any,
    ) -> None:
        super().__init__()
        self.quirks = quirks_of(official_compat, {**QUIRKS, **MASKING_QUIRKS, **START_QUIRKS})
        encoder = self.encoder_class(in_channels=in_channels, **encoder_sizes)
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
            poolings=encoder.poolings
            if encoder.widths
            else halvings(encoder.stride, max(encoder.stride).bit_length() - 1),
            out_channels=in_channels,
        )

    def grid(self, size: Sequence[int]) -> tuple[int, int, int]:
        """Return the number of cells (d, h, w) of a field of (D, H, W) voxels.

        Raises:
            ValueError: If the field's size is not a multiple of the cell's.
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
            visible: Boolean (B, 1, d, h, w) over the cells, the same number True in each image.

        Returns:
            (B, in_channels, D, H, W): intensities, normalised by each cell's mean and standard
            deviation; only hidden cells are learned.

        Raises:
            PumitError: If the channels do not match.
            ValueError: If the field's size is not a multiple of the cell's, or the mask does not
                fit.
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
        """Return raster positions of the tokens that pass through Mamba, in order, (B, K)."""
        if not self.quirks & MASKING_QUIRKS.keys():
            return index
        flat = visible.flatten(1)
        order = torch.argsort(
            flat.byte(), dim=1, descending=True, stable="unstable_order" not in self.quirks
        )
        kept = index.numel() if "batch_length" in self.quirks else index.shape[1]
        return order[:, :kept]


class HyMambaMim(MambaMim):
    """MambaMIM with HyMamba's encoder; the decoder does not use its finest map."""

    encoder_class = staticmethod(partial(HyMambaEncoder, reads_finest=False))


class UnetrMambaMim(MambaMim):
    """MambaMIM with a Vision Mamba encoder ("a special case in hybrid models"), without maps.

    The decoder's widths are one more than log2 of the patch's longest side.
    """

    encoder_class = VisionMambaEncoder
