"""Tiny HyMamba and UNETR with Mamba, for tests."""

from typing import Any

import torch
from pumit.networks.build import build_network
from torch import nn

HYMAMBA: dict[str, Any] = {
    "stem_width": 4,
    "widths": (6, 6, 8, 12),
    "depths": (1, 2, 1, 1),
    "num_layers": 2,
    "state": 2,
    "dt_rank": 1,
    "last_width": 4,
}
UNETR_MAMBA: dict[str, Any] = {
    "dim": 12,
    "taps": (1, 2, 3, 4),
    "feature_size": 2,
    "state": 2,
    "dt_rank": 1,
}
TINY = {"hymamba": HYMAMBA, "unetr_mamba": UNETR_MAMBA}


def tiny(name: str, **overrides: Any) -> nn.Module:
    """A network of one channel and three classes, alike at every call."""
    torch.manual_seed(0)
    sizes = {"in_channels": 1, "num_classes": 3, **TINY[name], **overrides}
    return build_network(name, **sizes)


def keeping_depth(name: str, depth: int) -> dict[str, Any]:
    """Sizes whose stride along the depth is 2^depth, the finest halvings left out."""
    if name == "unetr_mamba":
        return {"patch": (2**depth, 16, 16)}
    return {"poolings": [[2 if i >= 4 - depth else 1, 2, 2] for i in range(4)]}
