"""The selective scan of Mamba in plain PyTorch, with memory that grows slowly with the tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Elements of one (T, B, S, E) tensor of a chunk: a few of them stay in a core's cache.
CHUNK_ELEMENTS = 2**18


def selective_scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Run a linear state space whose step, input and output depend on the token.

    Of every channel, with h_0 = 0:

        h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t
        y_t = C_t h_t + D u_t

    Args:
        u: Tokens, shape (B, E, L).
        delta: Step of every token and channel, shape (B, E, L); positive, so a softplus has been
            taken. Nothing is added to it here.
        A: Rates of the states, shape (E, S); negative for a state that forgets.
        B: How a token enters the states, shape (B, S, L).
        C: How the states are read, shape (B, S, L).
        D: What passes the states by, shape (E,).

    Returns:
        y, shape (B, E, L), of u's type. It is computed in single precision, or in double where
        u is.

    Raises:
        ValueError: If shapes do not fit; one line that names the tensor.

    Source:
        Gu and Dao, Mamba: Linear-Time Sequence Modeling with Selective State Spaces, 2023,
        eq. 2 and 4, algorithm 2.
    """
    _require_shapes(u, delta, A, B, C, D)
    exact = torch.promote_types(u.dtype, torch.float32)
    values = [tensor.to(exact) for tensor in (u, delta, A, B, C, D)]
    u_, delta_, A_, B_, C_, D_ = values
    y = _Scan.apply(  # type: ignore[no-untyped-call]
        u_.permute(2, 0, 1),
        delta_.permute(2, 0, 1),
        A_.t(),
        B_.permute(2, 0, 1),
        C_.permute(2, 0, 1),
    )
    return torch.addcmul(y.permute(1, 2, 0), u_, D_[:, None]).to(u.dtype)


def selective_scan_reference(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor
) -> Tensor:
    """`selective_scan` one token after the other: slow, and short enough to be read."""
    h = u.new_zeros(*u.shape[:2], A.shape[1])  # (B, E, S)
    outputs = []
    for t in range(u.shape[2]):
        step = delta[:, :, t, None]  # (B, E, 1)
        h = torch.exp(step * A) * h + step * u[:, :, t, None] * B[:, None, :, t]
        outputs.append((h * C[:, None, :, t]).sum(-1) + D * u[:, :, t])
    return torch.stack(outputs, dim=-1)


class _Scan(torch.autograd.Function):
    """The scan without D, on tensors whose tokens come first.

    u and delta are (L, B, E), A is (S, E), B and C are (L, B, S). Forwards only the states at the
    borders of chunks are kept; backwards a chunk's states are computed again from the one before.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        A = A.contiguous()
        tokens, batch = u.shape[:2]
        chunk = max(1, CHUNK_ELEMENTS // max(1, batch * A.numel()))
        border = u.new_zeros(batch, *A.shape)
        borders = [border]
        y = torch.empty_like(u, memory_format=torch.contiguous_format)
        with torch.autocast(u.device.type, enabled=False):
            for part in _parts(tokens, chunk):
                _, states = _states(u[part], delta[part], A, B[part], border)
                y[part] = (C[part].unsqueeze(2) @ states[1:]).squeeze(2)
                border = states[-1].clone()
                borders.append(border)
        ctx.chunk = chunk
        ctx.save_for_backward(u, delta, A, B, C, torch.stack(borders[:-1]))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        (dy,) = gradients
        u, delta, A, B, C, borders = ctx.saved_tensors
        du, ddelta = (torch.empty_like(u, memory_format=torch.contiguous_format) for _ in range(2))
        dB, dC = (torch.empty_like(B, memory_format=torch.contiguous_format) for _ in range(2))
        dA = torch.zeros_like(A)
        later = torch.zeros_like(borders[0])  # what the tokens after a chunk ask of its last state
        with torch.autocast(u.device.type, enabled=False):
            parts = list(_parts(u.shape[0], ctx.chunk))
            for number in reversed(range(len(parts))):
                part = parts[number]
                decay, states = _states(u[part], delta[part], A, B[part], borders[number])
                g = C[part].unsqueeze(3) * dy[part].unsqueeze(2)  # (T, B, S, E)
                _accumulate_back(decay, g, later)
                later = decay[0] * g[0]
                dC[part] = (states[1:] @ dy[part].unsqueeze(3)).squeeze(3)
                fed = delta[part] * u[part]  # (T, B, E)
                dB[part] = (g @ fed.unsqueeze(3)).squeeze(3)
                dfed = (B[part].unsqueeze(2) @ g).squeeze(2)
                du[part] = dfed * delta[part]
                rate = g.mul_(states[:-1]).mul_(decay)  # gradient of delta A
                ddelta[part] = dfed * u[part] + (rate * A).sum(2)
                dA += (rate * delta[part].unsqueeze(2)).sum((0, 1))
        return du, ddelta, dA, dB, dC


def _parts(tokens: int, chunk: int) -> list[slice]:
    return [slice(first, min(first + chunk, tokens)) for first in range(0, tokens, chunk)]


def _states(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, border: Tensor
) -> tuple[Tensor, Tensor]:
    """Decays (T, B, S, E) of a chunk, and its states (T + 1, B, S, E) from the border on."""
    decay = (delta.unsqueeze(2) * A).exp_()
    states = decay.new_empty(decay.shape[0] + 1, *decay.shape[1:])
    states[0] = border
    torch.mul((delta * u).unsqueeze(2), B.unsqueeze(3), out=states[1:])
    views = states.unbind(0)
    for before, after, rate in zip(views, views[1:], decay.unbind(0), strict=False):
        after.addcmul_(rate, before)
    return decay, states


def _accumulate_back(decay: Tensor, g: Tensor, later: Tensor) -> None:
    """Add to the gradient of each state what the states after it pass back, in place."""
    views, rates = g.unbind(0), decay.unbind(0)
    views[-1].add_(later)
    for t in range(len(views) - 2, -1, -1):
        views[t].addcmul_(rates[t + 1], views[t + 1])


def _require_shapes(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> None:
    if u.dim() != 3 or 0 in u.shape:
        raise ValueError(f"u must be (batch, channels, tokens), got {tuple(u.shape)}")
    batch, channels, tokens = u.shape
    if A.dim() != 2 or A.shape[0] != channels or A.shape[1] < 1:
        raise ValueError(f"A must be ({channels}, states), got {tuple(A.shape)}")
    expected = {
        "delta": (delta, (batch, channels, tokens)),
        "B": (B, (batch, A.shape[1], tokens)),
        "C": (C, (batch, A.shape[1], tokens)),
        "D": (D, (channels,)),
    }
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must be {shape} beside this u, got {tuple(tensor.shape)}")
    for name, (tensor, _) in {"u": (u, ()), "A": (A, ()), **expected}.items():
        if not tensor.is_floating_point():
            raise ValueError(f"{name} must be real floating point, got {tensor.dtype}")
