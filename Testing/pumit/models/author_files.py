"""Files with the names and shapes of PUMIT's release, at tiny widths, and the nets to compare."""

from pathlib import Path
from typing import Any

import torch
from pumit.networks.build import build_network
from pumit.networks.pumit.authors import CODEBOOK, TOKENIZER
from torch import Tensor, nn

VIT: dict[str, Any] = {
    "dim": 64,
    "depth": 4,
    "num_heads": 1,
    "hidden": 32,
    "position_table": (2, 3, 3),
    "num_tokens": 16,
}
TOKENS: dict[str, Any] = {"widths": (8, 8, 16), "num_tokens": 16}
# Within a block, ours to theirs.
BLOCK = {
    "attention.q.weight": "attn.q_proj.weight",
    "attention.q.bias": "attn.q_bias",
    "attention.k.weight": "attn.k_proj.weight",
    "attention.v.weight": "attn.v_proj.weight",
    "attention.v.bias": "attn.v_bias",
    "attention.proj.weight": "attn.proj.weight",
    "attention.proj.bias": "attn.proj.bias",
    "mlp.norm.weight": "mlp.ffn_ln.weight",
    "mlp.norm.bias": "mlp.ffn_ln.bias",
}


def vit_file(path: Path, **wrapping: Any) -> nn.Module:
    """Write a ViT for masked images as its authors' trainer does; returns the same network."""
    torch.manual_seed(1)
    network = build_network("pumit_vit_b_mim", **VIT)
    theirs: dict[str, Tensor] = {}
    for name, tensor in network.state_dict().items():
        name = name.removeprefix("vit.")
        if name.startswith("blocks."):
            _, number, rest = name.split(".", 2)
            name = f"blocks.{number}.{BLOCK.get(rest, rest)}"
        name = name.replace("patch_embedding.", "patch_embed.proj.")
        name = {"position_table": "pos_embed"}.get(name, name)
        theirs[f"mim_{name}" if name.startswith("head.") else name] = tensor
    torch.save({"state_dict": theirs, "epoch": 3, "global_step": 300_000, **wrapping}, path)
    return network


def tokenizer_file(path: Path, prefix: str = "") -> nn.Module:
    """Write a tokenizer as its authors' trainer does; returns the same network."""
    torch.manual_seed(2)
    network = build_network("pumit_tokenizer", **TOKENS)
    ours = {v: k for k, v in TOKENIZER.items()}
    theirs = {}
    for name, tensor in network.state_dict().items():
        layer, _, kind = name.rpartition(".")
        is_codebook = name == "quantizer.codebook"
        theirs[prefix + (CODEBOOK if is_codebook else f"{ours[layer]}.{kind}")] = tensor
    torch.save({"model": theirs}, path)
    return network
