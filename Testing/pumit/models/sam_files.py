"""Tiny SAM networks, and files with the names and shapes of segment-anything's."""

import re
from pathlib import Path
from typing import Any

import torch
from pumit.networks.build import build_network
from torch import Tensor, nn

SIZES: dict[str, Any] = {
    "image_size": 64,
    "patch": 16,
    "dim": 16,
    "depth": 2,
    "num_heads": 2,
    "hidden": 16,
    "global_blocks": (1,),
    "window": 2,
    "width": 32,
    "decoder_hidden": 16,
}
MODULES = {"conv1": 0, "layer_norm1": 1, "conv2": 2, "layer_norm2": 3}
MASKS = {"conv1": 0, "layer_norm1": 1, "conv2": 3, "layer_norm2": 4, "conv3": 6}
UPSCALE = {"upscale_conv1": 0, "upscale_layer_norm": 1, "upscale_conv2": 3}


def public_name(name: str) -> str | None:
    """Name in segment-anything of a weight of the transformers package; None for none."""
    if name.startswith("prompt_encoder.shared_embedding") or ".slopes." in name:
        return None
    if name.startswith("shared_image_embedding"):
        return "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"
    if m := re.fullmatch(r"vision_encoder\.neck\.(\w+)\.(\w+)", name):
        return f"image_encoder.neck.{MODULES[m[1]]}.{m[2]}"
    if m := re.fullmatch(r"prompt_encoder\.mask_embed\.(\w+)\.(\w+)", name):
        return f"prompt_encoder.mask_downscaling.{MASKS[m[1]]}.{m[2]}"
    if m := re.fullmatch(r"mask_decoder\.(upscale_\w+)\.(\w+)", name):
        return f"mask_decoder.output_upscaling.{UPSCALE[m[1]]}.{m[2]}"
    name = name.replace("vision_encoder.patch_embed.projection", "image_encoder.patch_embed.proj")
    name = name.replace("vision_encoder.layers.", "image_encoder.blocks.")
    name = name.replace("vision_encoder.", "image_encoder.")
    name = name.replace("prompt_encoder.point_embed.", "prompt_encoder.point_embeddings.")
    name = name.replace("layer_norm_final_attn", "norm_final_attn")
    name = re.sub(r"\.layer_norm([1-4])\.", r".norm\1.", name)
    if ".output_hypernetworks_mlps." in name or ".iou_prediction_head." in name:
        name = name.replace(".layers.0.", ".layers.1.")
        name = name.replace(".proj_in.", ".layers.0.").replace(".proj_out.", ".layers.2.")
    return name


def public_state(network: nn.Module) -> dict[str, Tensor]:
    """The weights of a network `sam` by the names of segment-anything."""
    named = {public_name(k.removeprefix("model.")): v for k, v in network.state_dict().items()}
    return {k: v for k, v in named.items() if k is not None}


def sam_file(path: Path) -> nn.Module:
    """Write a tiny SAM as segment-anything publishes its weights; returns the network."""
    torch.manual_seed(0)
    network = build_network("sam", **SIZES)
    with torch.no_grad():
        for p in network.parameters():
            torch.nn.init.normal_(p, std=0.2)
        for name, p in network.named_parameters():
            if name.endswith("slopes.beta"):
                p.fill_(0.1)
    torch.save(public_state(network), path)
    return network.eval()
