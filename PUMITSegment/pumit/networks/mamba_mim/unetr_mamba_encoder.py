"""Vision Mamba over the patches of a field."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from pumit.networks.mamba_mim.encoding import Encoding
from pumit.networks.mamba_mim.mamba_layer import MambaLayer
from pumit.networks.mamba_mim.masking import require_mask, take_tokens, visible_index
from pumit.networks.mamba_mim.positions import require_sincos_width, sincos_positions

Triple = tuple[int, int, int]


class VisionMambaEncoder(nn.Module):
    """Patch embedding, position embedding, and pre-norm residual Mamba layers.

    Args:
        patch: Voxels of a patch along (d, h, w).
        taps: Layers whose tokens are returned, counted from 1. The last one is the number of
            layers; its tokens are normalised.
        state: See `MambaBlock`, also for `conv`, `expand` and `dt_rank`.

    Attributes:
        stride: Divisor of a field's size, (d, h, w): the patch.
        widths: Channels of the convolutional maps: none.
        poolings: The patch as a single pooling.

    Raises:
        ValueError: If the sizes do not fit together.

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
        state: int,
        conv: int,
        expand: int,
        dt_rank: int,
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
        self.layers = nn.ModuleList(
            MambaLayer(dim, mlp_ratio=0, state=state, conv=conv, expand=expand, dt_rank=dt_rank)
            for _ in range(taps[-1])
        )
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
        tokens = y.flatten(2).transpose(1, 2)  # (B, N, C)
        positions = sincos_positions((d, h, w), self.dim, device=x.device)
        # In the parameters' precision, so that autocast does not round the residual sums.
        tokens = tokens + positions.to(next(self.parameters()).dtype)
        index = None
        if mask is not None:
            require_mask(mask, x.shape[0], (d, h, w))
            index = visible_index(mask) if order is None else order
            tokens = take_tokens(tokens, index)
        taps = []
        for number, layer in enumerate(self.layers, start=1):
            tokens = layer(tokens)
            if number in self._taps[:-1]:
                taps.append(tokens)
        tokens = self.norm(tokens)
        return Encoding((), tokens, (d, h, w), index, (*taps, tokens))
