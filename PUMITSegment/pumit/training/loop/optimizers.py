"""Which optimiser steps which parameters, at which share of the rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from pumit.training.loop.muon import Muon
from pumit.training.loop.sharding import is_sharded
from pumit.training.recipes.schedule import Schedule

THINNEST = 16  # a matrix with fewer rows or columns has no singular values worth evening out

Group = dict[str, Any]


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
