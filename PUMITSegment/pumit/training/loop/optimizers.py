"""Optimisers and their parameter groups; Muon for matrices."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pumit.inference.loading import pick_precision
from pumit.training.loop.sharding import is_sharded
from pumit.training.recipes.schedule import Schedule

# Coefficients of the quintic iteration, which drives singular values towards 1 in five steps.
A, B, C = 3.4445, -4.7750, 2.0315
THINNEST = 16  # matrices with fewer rows or columns are too thin to orthogonalise
Group = dict[str, Any]


def orthogonalised(matrix: Tensor, steps: int = 5) -> Tensor:
    """Orthogonalise matrices (..., m, n) by Newton-Schulz; singular values become about 1."""
    norm = matrix.norm(dim=(-2, -1), keepdim=True)
    x = (matrix / norm.clamp_min(1e-7)).to(pick_precision(matrix.device))
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    for _ in range(steps):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return (x.mT if is_tall else x).float()


class Muon(torch.optim.AdamW):
    """AdamW that updates parameter groups with `orthogonal` set by Muon.

    Muon updates are scaled to the root mean square of a typical AdamW update (0.2), so that both
    share learning rate and weight decay. Convolution kernels are treated as matrices (out, rest).

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
        """Update the orthogonal groups by Muon and the others by AdamW."""
        gradients: list[tuple[nn.Parameter, Tensor]] = []
        for group in self.param_groups:
            if not group.get("orthogonal"):
                continue
            own = [(p, p.grad) for p in group["params"] if p.grad is not None]
            gradients += own
            alike: dict[Any, list[tuple[nn.Parameter, Tensor]]] = {}
            for (p, _), direction in zip(own, self._lookahead(own), strict=True):
                # On a GPU, batch matrices of one shape: a single one would not fill it.
                key = direction.shape if p.is_cuda else id(p)
                alike.setdefault(key, []).append((p, direction))
                p.grad = None  # AdamW skips it
            for steps in alike.values():
                self._step_matrices(steps, group)
        out = super().step(closure)
        for p, gradient in gradients:
            p.grad = gradient
        return out

    def _lookahead(self, own: list[tuple[nn.Parameter, Tensor]]) -> list[Tensor]:
        """Update the momenta and return the Nesterov directions, each of shape (out, rest)."""
        if not own:
            return []
        for p, _ in own:
            state = self.state[p]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(p)
                state["step"] = torch.tensor(0.0)  # AdamW expects it when loading a state
        velocities = [self.state[p]["momentum"] for p, _ in own]
        grads = [gradient for _, gradient in own]
        torch._foreach_mul_(velocities, self.momentum)
        torch._foreach_add_(velocities, grads)
        directions = torch._foreach_add(grads, velocities, alpha=self.momentum)
        return [direction.flatten(1) for direction in directions]

    def _step_matrices(
        self, steps: list[tuple[nn.Parameter, Tensor]], group: dict[str, Any]
    ) -> None:
        """Update parameters whose matrices have the same shape."""
        if len(steps) == 1:
            updates = orthogonalised(steps[0][1])[None]
        else:
            updates = orthogonalised(torch.stack([direction for _, direction in steps]))
        size = 0.2 * max(updates.shape[1:]) ** 0.5
        params: list[Tensor] = [p for p, _ in steps]
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        changes = [update.view_as(p) for p, update in zip(params, updates, strict=True)]
        torch._foreach_add_(params, changes, alpha=-group["lr"] * size)


def optimizer_for(
    network: nn.Module, schedule: Schedule, groups: Sequence[Mapping[str, Any]] | None = None
) -> torch.optim.Optimizer:
    """Return the schedule's optimiser for all trainable parameters of a network.

    Args:
        groups: Each with `params`, and optionally `weight_decay` (overrides the schedule's, for all
            of its parameters) and `rate` (factor on the learning rate); None for one group.
    """
    tables = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding)}
    weights = {id(p) for name, p in network.named_parameters() if name.endswith("weight")}
    is_muon = schedule.optimizer == "muon"
    made: list[Group] = []
    whole: Group = {"params": network.parameters()}
    for group in [whole] if groups is None else groups:
        # Sharded and whole parameters are apart: fused kernels cannot update both at once.
        parts: dict[tuple[bool, bool, bool], list[nn.Parameter]] = {}
        for p in group["params"]:
            if not p.requires_grad:
                continue
            # Biases, norms and one-dimensional embeddings never decay. AdamW and SGD spare all
            # embeddings: tables, and parameters not named `weight` (tokens, position tables,
            # codebooks). Muon decays these, and leaves them and thin matrices to AdamW.
            is_table, is_vector = id(p) in tables, p.ndim <= 1
            is_matrix = is_muon and not is_table and not is_vector
            is_orthogonal = is_matrix and min(p.shape[0], p[0].numel()) >= THINNEST
            decays = not is_vector and (is_muon or (id(p) in weights and not is_table))
            parts.setdefault((is_orthogonal, decays, is_sharded(p)), []).append(p)
        # In the order of runs before 0.4, whose states are saved by number.
        order = sorted(parts, key=lambda part: (not part[0], not part[1], part[2]))
        for is_orthogonal, decays, is_shared in order:
            decay = group.get("weight_decay", schedule.weight_decay if decays else 0.0)
            made.append(
                {
                    "params": parts[is_orthogonal, decays, is_shared],
                    "weight_decay": float(decay),
                    "rate": float(group.get("rate", 1.0)),
                    "orthogonal": is_orthogonal,
                }
            )
    grouped = [id(p) for group in made for p in group["params"]]
    trainable = {id(p) for p in network.parameters() if p.requires_grad}
    if len(grouped) != len(set(grouped)) or set(grouped) != trainable:
        raise ValueError("Every trained parameter of the network must be in one group, once.")
    betas = (float(schedule.betas[0]), float(schedule.betas[1]))
    if is_muon:
        return Muon(made, lr=schedule.learning_rate, betas=betas, momentum=schedule.momentum)
    if schedule.optimizer == "adamw":
        return torch.optim.AdamW(made, lr=schedule.learning_rate, betas=betas)
    nesterov = schedule.momentum > 0  # torch requires momentum for Nesterov
    return torch.optim.SGD(
        made, lr=schedule.learning_rate, momentum=schedule.momentum, nesterov=nesterov
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group, scaled by its `rate`."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate", 1.0)
