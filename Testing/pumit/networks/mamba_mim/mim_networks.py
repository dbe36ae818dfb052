"""Tiny pre-training networks, for tests."""

from typing import Any

import torch
from mamba_networks import HYMAMBA, UNETR_MAMBA, keeping_depth
from pumit.networks.build import build_network
from pumit.networks.mamba_mim.mamba_mim import MambaMim

DECODER = {"decoder_widths": (8, 6, 4, 4, 4)}
TINY: dict[str, dict[str, Any]] = {
    "mamba_mim": {**{k: v for k, v in HYMAMBA.items() if k != "last_width"}, **DECODER},
    "mamba_mim_unetr": {**{k: v for k, v in UNETR_MAMBA.items() if k != "feature_size"}, **DECODER},
}


def tiny_mim(name: str, **overrides: Any) -> MambaMim:
    """A pre-training network with cells of (4, 16, 16) voxels, alike at every call."""
    torch.manual_seed(0)
    flat = keeping_depth(name.replace("mamba_mim_unetr", "unetr_mamba"), 2)
    return build_network(name, **{**TINY[name], **flat, **overrides})
