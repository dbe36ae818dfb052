"""Which optimiser steps which parameters, at which share of the rate; Muon for matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pumit.training.loop.sharding import is_sharded
from pumit.training.recipes.schedule import Schedule

# Quintic that drives singular values towards 1 in five steps.
A, B, C = 3.4445, -4.7750, 2.0315
THINNEST = 16  # a matrix with fewer rows or columns has no singular values worth evening out
Group = dict[str, Any]


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
        momentum: Decay of the gradients' running sum.

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


def optimizer_for(network: nn.Module, schedule: Schedule) -> torch.optim.Optimizer:
    """Return the schedule's optimiser for everything of a network that is trained."""
    return optimizer_of_groups([{"params": network.parameters()}], network, schedule)


def optimizer_of_groups(
    groups: Sequence[Mapping[str, Any]], network: nn.Module, schedule: Schedule
) -> torch.optim.Optimizer:
    """Return the schedule's optimiser for a task's own groups.

    Args:
        groups: Each with `params`, and on request `weight_decay` (for all of them, instead of the
            schedule's on matrices and kernels) and `rate` (factor on the learning rate).
        network: All of whose parameters that are trained are in one group each.

    Raises:
        ValueError: If a parameter is in no group or in two.
    """
    tables = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding)}
    weights = {id(p) for name, p in network.named_parameters() if name.endswith("weight")}
    made: list[Group] = []
    for group in groups:
        params = [p for p in group["params"] if p.requires_grad]
        if schedule.optimizer == "muon":
            parts = _for_muon(params, tables, schedule.weight_decay)
        else:
            parts = _by_decay(params, weights - tables, schedule.weight_decay)
        for part in parts:
            if "weight_decay" in group:
                part["weight_decay"] = float(group["weight_decay"])
            part["rate"] = float(group.get("rate", 1.0))
            made += _alike(part)
    _require_each_once(made, network)
    betas = (float(schedule.betas[0]), float(schedule.betas[1]))
    if schedule.optimizer == "muon":
        return Muon(made, lr=schedule.learning_rate, betas=betas, momentum=schedule.momentum)
    if schedule.optimizer == "adamw":
        return torch.optim.AdamW(made, lr=schedule.learning_rate, betas=betas)
    nesterov = schedule.momentum > 0  # torch allows none without momentum
    return torch.optim.SGD(
        made, lr=schedule.learning_rate, momentum=schedule.momentum, nesterov=nesterov
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group its share of a learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate", 1.0)


def _for_muon(params: Iterable[nn.Parameter], tables: set[int], decay: float) -> list[Group]:
    """Muon on matrices and kernels, AdamW on embeddings, thin matrices and vectors.

    Vectors (biases, norms, embeddings of one dimension) have no weight decay.
    """
    matrices, others, vectors = [], [], []
    for p in params:
        if p.ndim <= 1:
            vectors.append(p)
        elif id(p) in tables or min(p.shape[0], p[0].numel()) < THINNEST:
            others.append(p)
        else:
            matrices.append(p)
    return [
        {"params": matrices, "weight_decay": decay, "orthogonal": True},
        {"params": others, "weight_decay": decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def _by_decay(params: Iterable[nn.Parameter], weights: set[int], decay: float) -> list[Group]:
    """No weight decay on biases, norms and embeddings.

    Tokens, position tables and codebooks are embeddings: parameters that no layer calls `weight`.
    """
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    for p in params:
        (decayed if p.ndim > 1 and id(p) in weights else spared).append(p)
    return [
        {"params": decayed, "weight_decay": decay},
        {"params": spared, "weight_decay": 0.0},
    ]


def _alike(group: Group) -> list[Group]:
    """Apart what is shared out over processes and what is not: no GPU kernel steps both at once."""
    parts = [
        [p for p in group["params"] if is_sharded(p) is is_shared] for is_shared in (False, True)
    ]
    return [{**group, "params": params} for params in parts if params]


def _require_each_once(groups: Sequence[Group], network: nn.Module) -> None:
    grouped = [id(p) for group in groups for p in group["params"]]
    trainable = {id(p) for p in network.parameters() if p.requires_grad}
    if len(grouped) != len(set(grouped)) or set(grouped) != trainable:
        raise ValueError("Every trained parameter of the network must be in one group, once.")
