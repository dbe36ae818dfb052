"""Mamba's selective scan in plain PyTorch, with low memory, or by mamba_ssm's CUDA kernel."""

import logging
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

logger = logging.getLogger(__name__)

# Elements of one (T, B, S, E) tensor of a chunk, so that two of them fit in a core's cache.
CHUNK_ELEMENTS = 2**17
# Minimum tokens per chunk, to limit the memory for the states at chunk borders.
LEAST_CHUNK = 16
LOG2_E = 1 / math.log(2)
# What mamba_ssm's CUDA kernel supports: device, and states per channel.
KERNEL_DEVICE, MOST_STATES = "cuda", 256


def selective_scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Run a linear state space model whose step, input and output depend on the token.

    For every channel, with h_0 = 0:

        h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t
        y_t = C_t h_t + D u_t

    Args:
        u: Tokens, shape (B, E, L).
        delta: Step of every token and channel, shape (B, E, L); positive, so apply softplus and
            bias beforehand.
        A: Rates of the states, shape (E, S); negative for a decaying state.
        B: Input matrix, from a token to the states, shape (B, S, L).
        C: Output matrix, from the states to the output, shape (B, S, L).
        D: Skip term, shape (E,).

    Returns:
        y, shape (B, E, L), with u's dtype. Computed in float32, or float64 if u is, also under
        autocast; on a GPU by mamba_ssm's kernel if installed.

    Source:
        Gu and Dao, Mamba: Linear-Time Sequence Modeling with Selective State Spaces, 2023,
        eq. 2 and 4, algorithm 2.
    """
    exact = torch.promote_types(u.dtype, torch.float32)
    values = [tensor.to(exact) for tensor in (u, delta, A, B, C, D)]
    is_supported = exact == torch.float32 and A.shape[1] <= MOST_STATES
    if is_supported and u.device.type == KERNEL_DEVICE and (kernel := _installed_kernel()):
        return kernel(*values).to(u.dtype)
    u_, delta_, A_, B_, C_, D_ = values
    is_traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    scan = _traced_scan if is_traced else _Scan.apply
    y = scan(
        u_.permute(2, 0, 1),
        delta_.permute(2, 0, 1),
        A_.t(),
        B_.permute(2, 0, 1),
        C_.permute(2, 0, 1),
    )
    return torch.addcmul(y.permute(1, 2, 0), u_, D_[:, None]).to(u.dtype)


@cache
def _installed_kernel() -> Callable[..., Tensor] | None:
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except (ImportError, OSError) as error:
        logger.warning(
            "The selective scan runs in plain PyTorch: mamba_ssm's kernel cannot be imported (%s).",
            error,
        )
        return None
    return selective_scan_fn


def _traced_scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Compute `_Scan` in few operations for a tracer, by doubling the tokens that are summed.

    Source:
        Hillis and Steele, Data Parallel Algorithms, Communications of the ACM 1986.
    """
    decay = (delta.unsqueeze(2) * A).exp()  # (L, B, S, E)
    states = (delta * u).unsqueeze(2) * B.unsqueeze(3)
    reach = 1
    while reach < len(states):
        fed = states[reach:] + decay[reach:] * states[:-reach]
        states = torch.cat([states[:reach], fed])
        decay = torch.cat([decay[:reach], decay[reach:] * decay[:-reach]])
        reach *= 2
    return (C.unsqueeze(2) @ states).squeeze(2)


class _Scan(torch.autograd.Function):
    """The scan without D, on token-first tensors.

    u and delta are (L, B, E), A is (S, E), B and C are (L, B, S). The forward pass keeps only the
    states at chunk borders; the backward pass recomputes each chunk's states from these.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        A = A.contiguous()
        parts = _parts(u.shape[0], max(LEAST_CHUNK, CHUNK_ELEMENTS // (u.shape[1] * A.numel())))
        borders = u.new_zeros(len(parts), u.shape[1], *A.shape)  # states before each chunk
        y = _like(u)
        with torch.autocast(u.device.type, enabled=False):
            for number, part in enumerate(parts):
                u_, delta_, B_, C_ = (x[part].contiguous() for x in (u, delta, B, C))
                _, states = _states(delta_ * u_, delta_, A, B_, borders[number])
                y[part] = (C_.unsqueeze(2) @ states[1:]).squeeze(2)
                if number + 1 < len(parts):
                    borders[number + 1] = states[-1]
        ctx.parts = parts
        ctx.save_for_backward(u, delta, A, B, C, borders)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        u, delta, A, B, C, borders = ctx.saved_tensors
        du, ddelta, dA, dB, dC = (_like(x) for x in (u, delta, A, B, C))
        dA.zero_()
        later = torch.zeros_like(borders[0])  # gradient from later chunks
        with torch.autocast(u.device.type, enabled=False):
            for number in reversed(range(len(ctx.parts))):
                part = ctx.parts[number]
                u_, delta_, B_, C_, dy = (
                    x[part].contiguous() for x in (u, delta, B, C, gradients[0])
                )
                fed = delta_ * u_  # (T, B, E)
                decay, states = _states(fed, delta_, A, B_, borders[number])
                g = C_.unsqueeze(3) * dy.unsqueeze(2)  # (T, B, S, E), gradient of the states
                later = _pass_back(decay, g, later)
                # Products and sums: batched matrix-vector products are far slower on a CPU.
                dC[part] = (states[1:] * dy.unsqueeze(2)).sum(3)
                dB[part] = (g * fed.unsqueeze(2)).sum(3)
                dfed = (B_.unsqueeze(2) @ g).squeeze(2)
                rate = g.mul_(states[:-1]).mul_(decay)  # gradient of delta A
                du[part] = dfed * delta_
                ddelta[part] = dfed * u_ + (rate * A).sum(2)
                dA += (rate * delta_.unsqueeze(2)).sum((0, 1))
        return du, ddelta, dA, dB, dC


def _parts(tokens: int, chunk: int) -> list[slice]:
    return [slice(first, min(first + chunk, tokens)) for first in range(0, tokens, chunk)]


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _states(
    fed: Tensor, delta: Tensor, A: Tensor, B: Tensor, border: Tensor
) -> tuple[Tensor, Tensor]:
    """Return a chunk's decays (T, B, S, E) and states (T + 1, B, S, E), from the border on."""
    # As powers of two: PyTorch's exp2 was measured to be 10 times as fast as its exp.
    decay = (delta.unsqueeze(2) * (A * LOG2_E)).exp2_()
    states = decay.new_empty(decay.shape[0] + 1, *decay.shape[1:])
    states[0] = border
    torch.mul(fed.unsqueeze(2), B.unsqueeze(3), out=states[1:])
    views = states.unbind(0)
    for before, after, rate in zip(views, views[1:], decay.unbind(0), strict=False):
        after.addcmul_(rate, before)
    return decay, states


def _pass_back(decay: Tensor, g: Tensor, later: Tensor) -> Tensor:
    """Back-propagate the gradients of a chunk's states through the recurrence, in place.

    Returns:
        Gradient of the state before the chunk, (B, S, E).
    """
    views, rates = g.unbind(0), decay.unbind(0)
    views[-1].add_(later)
    for t in range(len(views) - 1, 0, -1):
        views[t - 1].addcmul_(rates[t], views[t])
    return rates[0] * views[0]
