"""Muon for matrices, AdamW for the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

# Quintic that drives singular values towards 1 in five steps.
A, B, C = 3.4445, -4.7750, 2.0315


def orthogonalised(matrix: Tensor, steps: int = 5) -> Tensor:
    """Nearest matrices with all singular values about 1, by Newton-Schulz; shape (..., m, n)."""
    norm = matrix.norm(dim=(-2, -1), keepdim=True)
    x = (matrix / norm.clamp_min(1e-7)).bfloat16()
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    for _ in range(steps):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return (x.mT if is_tall else x).float()


class Muon(torch.optim.AdamW):
    """AdamW whose parameter groups with `orthogonal` set step along orthogonalised momentum.

    The step of a matrix has the root mean square of a typical AdamW step (0.2), so that one
    learning rate and one weight decay serve both. Kernels count as matrices (out, rest).

    Args:
        params: Parameter groups, as of `torch.optim.AdamW`.
        momentum: Decay of the gradients' running sum.
        kwargs: Keywords of `torch.optim.AdamW`.

    Source:
        Jordan et al., Muon, 2024; Liu et al., Muon is Scalable for LLM Training, 2025, eq. 4.
    """

    def __init__(
        self, params: Iterable[dict[str, Any]], momentum: float = 0.95, **kwargs: Any
    ) -> None:
        super().__init__(params, **kwargs)
        self.momentum = momentum

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Step the orthogonal groups here, the others as AdamW does."""
        gradients: list[tuple[nn.Parameter, Tensor]] = []
        for group in self.param_groups:
            if not group.get("orthogonal"):
                continue
            own = [(p, p.grad) for p in group["params"] if p.grad is not None]
            gradients += own
            alike: dict[Any, list[tuple[nn.Parameter, Tensor]]] = {}
            for (p, _), direction in zip(own, self._lookahead(own), strict=True):
                # A GPU steps matrices of one shape together: each alone would not fill it.
                key = direction.shape if p.is_cuda else id(p)
                alike.setdefault(key, []).append((p, direction))
                p.grad = None  # AdamW passes over it
            for steps in alike.values():
                self._step_matrices(steps, group)
        out = super().step(closure)
        for p, gradient in gradients:
            p.grad = gradient
        return out

    def _lookahead(self, own: list[tuple[nn.Parameter, Tensor]]) -> list[Tensor]:
        """Momenta after Nesterov, each of shape (out, rest)."""
        if not own:
            return []
        for p, _ in own:
            state = self.state[p]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(p)
                state["step"] = torch.tensor(0.0)  # AdamW looks for it where a state is loaded
        velocities = [self.state[p]["momentum"] for p, _ in own]
        grads = [gradient for _, gradient in own]
        torch._foreach_mul_(velocities, self.momentum)
        torch._foreach_add_(velocities, grads)
        directions = torch._foreach_add(grads, velocities, alpha=self.momentum)
        return [direction.flatten(1) for direction in directions]

    def _step_matrices(
        self, steps: list[tuple[nn.Parameter, Tensor]], group: dict[str, Any]
    ) -> None:
        """Step parameters whose matrices have one shape."""
        if len(steps) == 1:
            updates = orthogonalised(steps[0][1])[None]
        else:
            updates = orthogonalised(torch.stack([direction for _, direction in steps]))
        size = 0.2 * max(updates.shape[1:]) ** 0.5
        params: list[Tensor] = [p for p, _ in steps]
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        changes = [update.view_as(p) for p, update in zip(params, updates, strict=True)]
        torch._foreach_add_(params, changes, alpha=-group["lr"] * size)
