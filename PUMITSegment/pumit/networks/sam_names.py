"""Conversion of segment-anything's and MedSAM's weight names to the transformers package."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pumit.errors import CheckpointError

POSITION_TABLE = "vision_encoder.pos_embed"
_POSITIONS = "shared_image_embedding.positional_embedding"
_GAUSSIAN = "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"
# The first matching rule applies.
_RULES: tuple[tuple[str, str], ...] = (
    (r"image_encoder\.pos_embed", "vision_encoder.pos_embed"),
    (r"image_encoder\.patch_embed\.proj\.", "vision_encoder.patch_embed.projection."),
    (r"image_encoder\.blocks\.(\d+)\.norm([12])\.", r"vision_encoder.layers.\1.layer_norm\2."),
    (r"image_encoder\.blocks\.(\d+)\.", r"vision_encoder.layers.\1."),
    (r"image_encoder\.neck\.0\.", "vision_encoder.neck.conv1."),
    (r"image_encoder\.neck\.1\.", "vision_encoder.neck.layer_norm1."),
    (r"image_encoder\.neck\.2\.", "vision_encoder.neck.conv2."),
    (r"image_encoder\.neck\.3\.", "vision_encoder.neck.layer_norm2."),
    (r"prompt_encoder\.point_embeddings\.", "prompt_encoder.point_embed."),
    (r"prompt_encoder\.mask_downscaling\.0\.", "prompt_encoder.mask_embed.conv1."),
    (r"prompt_encoder\.mask_downscaling\.1\.", "prompt_encoder.mask_embed.layer_norm1."),
    (r"prompt_encoder\.mask_downscaling\.3\.", "prompt_encoder.mask_embed.conv2."),
    (r"prompt_encoder\.mask_downscaling\.4\.", "prompt_encoder.mask_embed.layer_norm2."),
    (r"prompt_encoder\.mask_downscaling\.6\.", "prompt_encoder.mask_embed.conv3."),
    (r"(mask_decoder\.transformer\.layers\.\d+)\.norm([1-4])\.", r"\1.layer_norm\2."),
    (r"(mask_decoder\.transformer)\.norm_final_attn\.", r"\1.layer_norm_final_attn."),
    (r"mask_decoder\.output_upscaling\.0\.", "mask_decoder.upscale_conv1."),
    (r"mask_decoder\.output_upscaling\.1\.", "mask_decoder.upscale_layer_norm."),
    (r"mask_decoder\.output_upscaling\.3\.", "mask_decoder.upscale_conv2."),
    (r"(mask_decoder\.output_hypernetworks_mlps\.\d+)\.layers\.0\.", r"\1.proj_in."),
    (r"(mask_decoder\.output_hypernetworks_mlps\.\d+)\.layers\.1\.", r"\1.layers.0."),
    (r"(mask_decoder\.output_hypernetworks_mlps\.\d+)\.layers\.2\.", r"\1.proj_out."),
    (r"(mask_decoder\.iou_prediction_head)\.layers\.0\.", r"\1.proj_in."),
    (r"(mask_decoder\.iou_prediction_head)\.layers\.1\.", r"\1.layers.0."),
    (r"(mask_decoder\.iou_prediction_head)\.layers\.2\.", r"\1.proj_out."),
)
_SLOPE = 0.1  # initial slope of a head


def named(state: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """Rename SAM's weights to the names of the transformers package; None for other networks.

    Args:
        state: Tensors by the names of segment-anything, or of the transformers package.
    """
    found = {our_name(name): tensor for name, tensor in state.items()}
    positions = found.pop(_GAUSSIAN, found.get(_POSITIONS))
    if POSITION_TABLE not in found or positions is None:
        return None
    for place in ("shared_image_embedding", "prompt_encoder.shared_embedding"):
        found[f"{place}.positional_embedding"] = positions
    return found


def sam_sizes(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Derive the sizes of the network `sam` from the shapes of SAM's weights.

    Args:
        state: Output of `named`.

    Raises:
        CheckpointError: If weights are missing.
    """
    try:
        _, side, _, dim = state[POSITION_TABLE].shape
        patch = state["vision_encoder.patch_embed.projection.weight"].shape[-1]
        tables = {
            int(m[1]): tensor
            for name, tensor in state.items()
            if (m := re.fullmatch(r"vision_encoder\.layers\.(\d+)\.attn\.rel_pos_h", name))
        }
        windows = {(len(t) + 1) // 2 for t in tables.values()} - {side}
        return {
            "image_size": side * patch,
            "patch": patch,
            "dim": dim,
            "depth": len(tables),
            "num_heads": dim // tables[0].shape[1],
            "hidden": state["vision_encoder.layers.0.mlp.lin1.weight"].shape[0],
            "global_blocks": [i for i, t in sorted(tables.items()) if (len(t) + 1) // 2 == side],
            "window": max(windows, default=side),
            "width": state["vision_encoder.neck.conv1.weight"].shape[0],
            "decoder_hidden": state["mask_decoder.transformer.layers.0.mlp.lin1.weight"].shape[0],
        }
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"weights of SAM are missing: {error}") from None


def sam_state(state: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights by the names of `sam`, with BA-SAM's initial slopes if missing."""
    slopes = {
        f"vision_encoder.layers.{block}.attn.slopes.beta": torch.full((sizes["num_heads"],), _SLOPE)
        for block in sizes["global_blocks"]
    }
    return {f"model.{name}": tensor for name, tensor in {**slopes, **state}.items()}


def our_name(public: str) -> str:
    """Return the transformers name of a segment-anything weight."""
    for pattern, new in _RULES:
        name, count = re.subn(f"^{pattern}", new, public)
        if count:
            return name
    return public
