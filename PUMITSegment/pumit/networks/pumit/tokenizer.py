"""Universal visual tokenizer: adaptive encoder, soft quantizer, adaptive decoder, discriminator."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.channel_norm import ChannelLayerNorm
from pumit.networks.pumit.anisotropy import Anisotropy, require_reducible
from pumit.networks.pumit.sac import SACConv, SACDownsample, SACUpsample


@dataclass(frozen=True)
class SoftTokens:
    """Soft tokens of a grid.

    Attributes:
        embedding: Expected codebook entry of each cell, (B, embedding_dim, D, H, W).
        probabilities: Distribution over the codebook in each cell, (B, num_tokens, D, H, W),
            summing to 1 along dimension 1.
    """

    embedding: Tensor
    probabilities: Tensor


class SoftVectorQuantizer(nn.Module):
    """Soft quantizer: a distribution over the codebook in each cell, and its expectation.

    Logits are a learned linear map of the features, not distances to the codebook. Nothing is
    sampled, so no straight-through gradient is needed.

    Attributes:
        projection: Linear map from features to logits.
        codebook: Entries, shape (num_tokens, embedding_dim); exclude from weight decay.

    Source:
        PUMIT, section "Soft Token Representation", eq. 1.
    """

    def __init__(self, in_channels: int, num_tokens: int, embedding_dim: int) -> None:
        super().__init__()
        self.projection = nn.Linear(in_channels, num_tokens)
        self.codebook = nn.Parameter(torch.empty(num_tokens, embedding_dim))
        nn.init.uniform_(self.codebook, -1 / num_tokens, 1 / num_tokens)

    def forward(self, z: Tensor) -> SoftTokens:
        """Quantise features, shape (B, in_channels, D, H, W)."""
        logits = self.projection(z.movedim(1, -1))  # (B, D, H, W, num_tokens)
        # Half precision is too coarse for a flat distribution over a large codebook.
        probabilities = logits.float().softmax(-1) if _is_half(logits) else logits.softmax(-1)
        embedding = probabilities.to(self.codebook.dtype) @ self.codebook
        return SoftTokens(embedding.movedim(-1, 1), probabilities.movedim(-1, 1))


def prior_regularization(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two terms of the extended prior distribution regularisation.

    Means are over batch, grid and, if torch.distributed is initialised, all processes; each cell
    counts once. Gradients are all-reduced, too, as DDP's averaging over processes expects. The loss
    is lambda_1 * first + lambda_2 * second.

    Args:
        probabilities: Distributions over K tokens: a grid (B, K, D, H, W), or a list (N, K).

    Returns:
        Negative entropy of the mean distribution, -ln K (uniform) to 0, and mean entropy of the
        distributions, 0 (one-hot) to ln K; both in nats, scalars, at least in single precision.

    Source:
        PUMIT, section "Extended Prior Distribution Regularization", eq. 4.
    """
    p = probabilities.movedim(1, -1).flatten(0, -2)  # (N, K)
    if _is_half(p):
        p = p.float()
    # A single reduction: K sums of probabilities, the sum of entropies, the number of cells.
    sums = torch.cat((p.sum(0), -_p_log_p(p).sum().reshape(1), p.new_tensor([p.shape[0]])))
    if dist.is_available() and dist.is_initialized():
        sums = _SumOverProcesses.apply(sums)  # type: ignore[no-untyped-call]
    mean, mean_entropy = sums[:-2] / sums[-1], sums[-2] / sums[-1]
    return _p_log_p(mean).sum(), mean_entropy


def _is_half(x: Tensor) -> bool:
    return x.dtype in (torch.float16, torch.bfloat16)


def _p_log_p(p: Tensor) -> Tensor:
    # Zero at p = 0 with a finite gradient, unlike torch.special.entr and xlogy, whose infinite
    # gradient becomes NaN in the softmax.
    return p * p.clamp(min=torch.finfo(p.dtype).tiny).log()


class _SumOverProcesses(torch.autograd.Function):
    """All-reduce with an all-reduced gradient; torch's own is deprecated."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        total = grad.clone()
        dist.all_reduce(total)
        return total


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


class PatchDiscriminator(nn.Module):
    """Patch discriminator: positive logits for real patches, negative for reconstructed ones.

    Args:
        widths: Channels after each strided convolution, each divisible by `groups`.

    Source:
        PUMIT, section "Optimization Objective", after VQGAN's patch discriminator; built from
        adaptive 3^3 convolutions of stride 2.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        widths: Sequence[int],
        groups: int,
    ) -> None:
        super().__init__()
        inputs = (in_channels, *widths[:-1])
        self.down = nn.ModuleList(
            ConvNormAct(i, o, groups, stride=2) for i, o in zip(inputs, widths, strict=True)
        )
        self.block = ConvNormAct(widths[-1], widths[-1], groups)
        self.last = SACConv(widths[-1], 1)

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:
        """Map images (B, in_channels, D, H, W) to logits (B, 1, D', H / 8, W / 8)."""
        state = anisotropy
        for down in self.down:
            x, state = down(x, state), state.down(1)
        return self.last(self.block(x, state), state)
