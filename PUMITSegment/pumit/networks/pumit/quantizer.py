"""Soft vector quantisation, and the regulariser that keeps its tokens diverse and sharp."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


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


def prior_regularization(probabilities: Tensor, *, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the two terms of the extended prior distribution regularisation.

    Means are over batch, grid and, if torch.distributed is initialised, all processes; each cell
    counts once. Gradients are all-reduced, too, as DDP's averaging over processes expects. The loss
    is lambda_1 * first + lambda_2 * second.

    Args:
        probabilities: Distributions over K tokens: a grid (B, K, D, H, W), or lists (B, N, K) or
            (N, K).
        dim: Axis of the tokens if it is another one.

    Returns:
        Negative entropy of the mean distribution, -ln K (uniform) to 0, and mean entropy of the
        distributions, 0 (one-hot) to ln K; both in nats, scalars, at least in single precision.

    Raises:
        ValueError: If the shape does not determine the token axis.

    Source:
        PUMIT, section "Extended Prior Distribution Regularization", eq. 4.
    """
    if dim is None:
        if probabilities.ndim not in (2, 3, 5):
            raise ValueError(
                "Expected probabilities (B, K, D, H, W), (B, N, K) or (N, K), got shape "
                f"{tuple(probabilities.shape)}; name the axis of the tokens with dim."
            )
        dim = 1 if probabilities.ndim == 5 else -1
    p = probabilities.movedim(dim, -1).flatten(0, -2)  # (N, K)
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
