"""Universal visual tokenizer: adaptive encoder, soft quantizer, adaptive decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.channel_norm import ChannelLayerNorm
from pumit.networks.pumit.anisotropy import Anisotropy
from pumit.networks.pumit.grid import require_reducible
from pumit.networks.pumit.quantizer import SoftTokens, SoftVectorQuantizer
from pumit.networks.pumit.sac import SACConv, SACDownsample, SACUpsample


class ConvNormAct(nn.Module):
    """Adaptive 3^3 convolution, group norm, leaky ReLU."""

    def __init__(self, in_channels: int, out_channels: int, groups: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = SACConv(in_channels, out_channels, stride)
        self.norm = nn.GroupNorm(groups, out_channels)

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:
        """Map (B, C, D, H, W) to (B, C', D', H', W'); `anisotropy` is the input's."""
        return F.leaky_relu(self.norm(self.conv(x, anisotropy)), 0.01)


class TokenizerEncoder(nn.Module):
    """Three adaptive down-samplings by 4, 2 and 2, then two 3^3 convolutions."""

    def __init__(self, in_channels: int, widths: Sequence[int], groups: int) -> None:
        super().__init__()
        a, b, c = widths
        self.down = nn.ModuleList(
            (SACDownsample(in_channels, a, 2), SACDownsample(a, b, 1), SACDownsample(b, c, 1))
        )
        self.norms = nn.ModuleList(ChannelLayerNorm(n) for n in widths)
        self.blocks = nn.ModuleList(ConvNormAct(c, c, groups) for _ in range(2))

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:
        """Map (B, in_channels, D, H, W) to (B, widths[2], D', H / 16, W / 16)."""
        state = anisotropy
        for step, (down, norm) in enumerate(zip(self.down, self.norms, strict=True)):
            x = F.gelu(norm(down(x, state)))
            state = state.down(2 if step == 0 else 1)
        for block in self.blocks:
            x = block(x, state)
        return x


class TokenizerDecoder(nn.Module):
    """Two 3^3 convolutions, then three adaptive up-samplings by 2, 2 and 4."""

    def __init__(self, out_channels: int, widths: Sequence[int], groups: int) -> None:
        super().__init__()
        a, b, c = widths
        self.blocks = nn.ModuleList(ConvNormAct(c, c, groups) for _ in range(2))
        self.up = nn.ModuleList((SACUpsample(c, b, 1), SACUpsample(b, a, 1)))
        self.up_blocks = nn.ModuleList((ConvNormAct(b, b, groups), ConvNormAct(a, a, groups)))
        self.last = SACUpsample(a, out_channels, 2)

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:
        """Map (B, widths[2], D', H', W') to an image; `anisotropy` is that of x."""
        state = anisotropy
        for block in self.blocks:
            x = block(x, state)
        for up, block in zip(self.up, self.up_blocks, strict=True):
            x, state = up(x, state), state.up(1)
            x = block(x, state)
        return self.last(x, state)


@dataclass(frozen=True)
class TokenizerOutput:
    """Output of the tokenizer.

    Attributes:
        reconstruction: Shape and range of the input; not clipped.
        tokens: Soft tokens on the grid of 16 x 16 in-plane patches.
    """

    reconstruction: Tensor
    tokens: SoftTokens


class VisualTokenizer(nn.Module):
    """Visual tokenizer: an image to a grid of soft tokens and back.

    Args:
        in_channels: Image channels; grey images must be repeated to this number.
        widths: Channels at 1/4, 1/8 and 1/16 in-plane, each divisible by `groups`.

    Source:
        PUMIT, sections "Universal Visual Tokenizer" and "Visual Tokenizer Details".
    """

    def __init__(
        self,
        *,
        in_channels: int,
        widths: Sequence[int],
        num_tokens: int,
        groups: int,
    ) -> None:
        super().__init__()
        self.encoder = TokenizerEncoder(in_channels, widths, groups)
        self.quantizer = SoftVectorQuantizer(widths[-1], num_tokens, widths[-1])
        self.decoder = TokenizerDecoder(in_channels, widths, groups)

    def tokenize(self, x: Tensor, anisotropy: Anisotropy) -> SoftTokens:
        """Encode an image to soft tokens.

        Args:
            x: Intensities in [-1, 1], shape (B, in_channels, D, H, W); H and W divisible by 16,
                D by `anisotropy.depth_stride(4)`.
            anisotropy: State at full resolution.

        Raises:
            PumitError: If the size is not divisible.
        """
        require_reducible(x, anisotropy, 4)
        return self.quantizer(self.encoder(x, anisotropy))

    def decode(self, embedding: Tensor, anisotropy: Anisotropy) -> Tensor:
        """Decode token embeddings (B, widths[2], D', H', W'); `anisotropy` is the image's."""
        return self.decoder(embedding, anisotropy.down(4))

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> TokenizerOutput:
        """Tokenise and reconstruct; see `tokenize`."""
        tokens = self.tokenize(x, anisotropy)
        return TokenizerOutput(self.decode(tokens.embedding, anisotropy), tokens)
