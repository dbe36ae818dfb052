"""Low-rank adapters (LoRA) for linear layers."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Parts of the state keys of an adapted layer.
_DOWN, _UP, _LAYER = ".adapter_down", ".adapter_up", ".layer."


class LowRankLinear(nn.Module):
    """A frozen linear layer plus the product of two trainable low-rank matrices.

    `adapter_up` is initialised to zero, so that the output is unchanged at first.

    Source:
        Hu et al., LoRA, ICLR 2022, eq. 3, h = W0 x + (alpha / r) B A x, with alpha = r: the
        learning rate does the scaling (section 4.1).
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
    """Add an adapter to every linear layer of a module, and freeze all other parameters.

    The output stays the same. The smaller side of a layer as `rank` means full rank.
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
    """Merge the adapters into the weights, and return the state of the plain network."""
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
