"""Volume attention: local, shifted, global, and skip attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.nnformer.relative_position import RelativePositionBias
from pumit.networks.nnformer.windows import Grid, WindowLayout


@dataclass(frozen=True)
class AttentionSizes:
    """Attention settings of a stage.

    Attributes:
        heads: Attention heads, a divisor of the width.
        window: Largest local volume (d, h, w), tokens.
        official_index: Whether relative positions share biases as in the authors' code.
        official_unmasked_shift: Whether opposite ends of the grid see each other in shifted
            volumes, as in the authors' ACDC network.
    """

    heads: int
    window: Grid
    official_index: bool
    official_unmasked_shift: bool


class _WindowedAttention(nn.Module):
    """Base class: local volumes, relative position bias, and output projection."""

    def __init__(self, dim: int, sizes: AttentionSizes, *, is_shifted: bool) -> None:
        super().__init__()
        if dim % sizes.heads:
            raise ValueError(f"{sizes.heads} heads do not divide a width of {dim}")
        self.sizes = sizes
        self.is_shifted = is_shifted
        self.bias = RelativePositionBias(
            sizes.window, sizes.heads, official_index=sizes.official_index
        )
        self.projection = nn.Linear(dim, dim)

    def layout(self, x: Tensor) -> WindowLayout:
        """Return the volumes of tokens (B, D, H, W, C)."""
        return WindowLayout.fitting(x.shape[1:4], self.sizes.window, is_shifted=self.is_shifted)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, layout: WindowLayout) -> Tensor:
        """Apply softmax attention to volumes (B * windows, N, C); return (B, D, H, W, C)."""
        heads = self.sizes.heads
        q, k, v = (x.reshape(*x.shape[:2], heads, -1).transpose(1, 2) for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask(q, layout))
        # out: (B * windows, heads, N, head_dim)
        return self.projection(layout.join(out.transpose(1, 2).flatten(2)))

    def _mask(self, q: Tensor, layout: WindowLayout) -> Tensor:
        """Return the additive attention mask, (1 or B * windows, heads, N, N)."""
        bias = self.bias(layout.window).to(q.dtype)[None]  # (1, heads, N, N)
        allowed = layout.allowed(q.device, wraps=self.sizes.official_unmasked_shift)
        if allowed is None:
            return bias
        mask = bias.masked_fill(~allowed[:, None], -torch.inf)  # (windows, heads, N, N)
        return mask.repeat(len(q) // len(mask), 1, 1, 1)


class VolumeAttention(_WindowedAttention):
    """Self-attention within local volumes (LV-MSA) or shifted ones (SLV-MSA).

    If one volume covers the grid, attention is global (GV-MSA).

    Args:
        is_shifted: Whether volumes are shifted by half their size.

    Raises:
        ValueError: If the heads do not divide the width.

    Source:
        nnFormer, sections III-B and III-C, eq. 1 and 3. Differs from the source: a grid that is not
        a multiple of the volume is padded, with the padding masked; a volume larger than the grid
        is cropped to it.
    """

    def __init__(self, dim: int, sizes: AttentionSizes, *, is_shifted: bool) -> None:
        super().__init__(dim, sizes, is_shifted=is_shifted)
        self.query_key_value = nn.Linear(dim, 3 * dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (B, D, H, W, C) to tokens of the same shape."""
        layout = self.layout(x)
        q, k, v = self.query_key_value(layout.split(x)).chunk(3, -1)
        return self.attend(q, k, v, layout=layout)


class SkipAttention(_WindowedAttention):
    """Attention of up-sampled tokens to the encoder's tokens, volume by volume.

    Raises:
        ValueError: If the heads do not divide the width.

    Source:
        nnFormer, section III-D, "Skip Attention", eq. 5 and 6: keys and values are projections of
        the encoder's output; queries are the up-sampled tokens without projection.
    """

    def __init__(self, dim: int, sizes: AttentionSizes) -> None:
        super().__init__(dim, sizes, is_shifted=False)
        self.key_value = nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Map up-sampled and encoder tokens, both (B, D, H, W, C), to tokens of that shape."""
        layout = self.layout(x)
        k, v = self.key_value(layout.split(skip)).chunk(2, -1)
        q = layout.split(x).to(k.dtype)  # under autocast a norm's output is float32
        return self.attend(q, k, v, layout=layout)
