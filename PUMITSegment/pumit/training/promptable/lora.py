"""Low-rank adapters: train a few directions of a linear layer, and add them to its weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Names of what an adapted layer holds.
_DOWN, _UP, _LAYER = ".adapter_down", ".adapter_up", ".layer."


class LowRankLinear(nn.Module):
    """A linear layer that stays as it is, plus the product of two thin matrices that are trained.

    `up` begins at zero, so that the layer begins as it was.

    Source:
        Hu et al., LoRA, ICLR 2022, eq. 3, h = W0 x + (alpha / r) B A x, with alpha = r: the rate
        of the optimiser does the scaling, as section 4.1 says.
    """

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.adapter_down = nn.Parameter(torch.empty(rank, layer.in_features))
        self.adapter_up = nn.Parameter(torch.zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.adapter_down, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        change = F.linear(F.linear(x, self.adapter_down), self.adapter_up)
        return self.layer(x) + change


def add_adapters(module: nn.Module, rank: int) -> int:
    """Give every linear layer within a module an adapter, and train nothing else of the module.

    Args:
        module: Changed in place; it computes what it did.
        rank: Rank of the adapters; one as large as a layer's smaller side trains all of it.

    Returns:
        How many layers have one.
    """
    module.requires_grad_(False)
    found = [
        (parent, name, child)
        for parent in list(module.modules())
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear)
    ]
    for parent, name, child in found:
        adapted = LowRankLinear(child, rank)
        if isinstance(parent, (nn.Sequential, nn.ModuleList)):
            parent[int(name)] = adapted
        else:
            setattr(parent, name, adapted)
    return len(found)


def merge_adapters(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of the network without adapters that computes the same."""
    out = {}
    for name, value in state.items():
        if name.endswith((_DOWN, _UP)):
            continue
        owner, layer, rest = name.rpartition(_LAYER)
        if not layer or owner + _DOWN not in state:
            out[name] = value
            continue
        if rest == "weight":
            value = value + state[owner + _UP] @ state[owner + _DOWN]
        out[f"{owner}.{rest}"] = value
    return out
