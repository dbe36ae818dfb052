"""The selective scan one token after the other: slow, and short enough to be read."""

import torch
from torch import Tensor


def selective_scan_reference(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor
) -> Tensor:
    """Compute `selective_scan` by its definition."""
    h = u.new_zeros(*u.shape[:2], A.shape[1])  # (B, E, S)
    outputs = []
    # Unbound, not indexed: the gradient of an index is as large as all tokens together.
    for u_t, delta_t, B_t, C_t in zip(*(x.unbind(-1) for x in (u, delta, B, C)), strict=True):
        step = delta_t.unsqueeze(-1)  # (B, E, 1)
        h = torch.exp(step * A) * h + step * u_t.unsqueeze(-1) * B_t.unsqueeze(1)
        outputs.append((h * C_t.unsqueeze(1)).sum(-1) + D * u_t)
    return torch.stack(outputs, dim=-1)
