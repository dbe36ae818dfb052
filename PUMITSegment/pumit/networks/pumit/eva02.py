"""Conversion of EVA-02's published weights to those of a universal ViT.

Both networks share, so that weights carry over: pre-norm blocks; biases on q and v but not on k; no
norm inside the attention; the feed-forward's sub-norm. Rotary positions act on interleaved pairs,
the first half for rows and the second for columns, with base 10000. Positions are integers on the
published grid of 16 x 16 patches; the class token has none.

Differences, the same as in PUMIT:

- Patches of 14 x 14 pixels become 16 x 16 by bicubic interpolation of the kernel. This scales the
  response to a constant image by about (16 / 14)^2. The kernel is then repeated along depth and
  divided by its depth, so that a 2D image gives the same tokens at any degree of anisotropy.
- The position table of 16 x 16 is repeated along depth and resampled to the ViT's size.
- Layer norms use an epsilon of 1e-5; EVA-02 uses 1e-6.
- Rotary positions count tokens on grids of any size; EVA-02 rescales larger grids to 16 x 16.
- A masked patch has no absolute position; EVA-02 adds it to the mask token, too.
- Images are normalised by ImageNet's mean and deviation; EVA-02 uses CLIP's.
"""

import math
import re
from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F

from pumit.errors import CheckpointError

# Layers within a block: the original repository's or timm's name, and ours.
_LAYERS = {
    "norm1": "norm1",
    "attn.q_proj": "attention.q",
    "attn.k_proj": "attention.k",
    "attn.v_proj": "attention.v",
    "attn.proj": "attention.proj",
    "norm2": "norm2",
    "mlp.w1": "mlp.w1",
    "mlp.fc1_g": "mlp.w1",
    "mlp.w2": "mlp.w2",
    "mlp.fc1_x": "mlp.w2",
    "mlp.ffn_ln": "mlp.norm",
    "mlp.norm": "mlp.norm",
    "mlp.w3": "mlp.w3",
    "mlp.fc2": "mlp.w3",
}
_OURS_IN_BLOCK = {
    **{
        f"{public}.{kind}": f"{ours}.{kind}"
        for public, ours in _LAYERS.items()
        for kind in ("weight", "bias")
        if (public, kind) != ("attn.k_proj", "bias")
    },
    "attn.q_bias": "attention.q.bias",
    "attn.v_bias": "attention.v.bias",
}
# Equal in both, except the last norm, which timm calls fc_norm.
_OURS = {
    "patch_embed.proj.weight": "patch_embedding.weight",
    "patch_embed.proj.bias": "patch_embedding.bias",
    "pos_embed": "position_table",
    "cls_token": "cls_token",
    "norm.weight": "norm.weight",
    "norm.bias": "norm.bias",
    "fc_norm.weight": "norm.weight",
    "fc_norm.bias": "norm.bias",
}
_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")
# Not in `UniversalViT`: rotary tables are computed, and heads had other targets.
_DROPPED = re.compile(r"(.*\.)?rope\..+|lm_head\..+|head\..+")


def our_name(public: str) -> str | None:
    """Map an EVA-02 weight name to that in a `UniversalViT` or "mask_token"; None if dropped.

    Raises:
        CheckpointError: If EVA-02-B has no such weight, as in its smaller or CLIP variants.
    """
    if public == "mask_token":
        return public
    if public in _OURS:
        return _OURS[public]
    if _DROPPED.fullmatch(public):
        return None
    match = _BLOCK.fullmatch(public)
    if match is not None and match[2] in _OURS_IN_BLOCK:
        return f"blocks.{match[1]}.{_OURS_IN_BLOCK[match[2]]}"
    raise CheckpointError(
        f"The weight {public} is none of EVA-02-B's or -L's pre-trained by masked image modelling; "
        "its CLIP, smaller and other variants are built differently."
    )


def convert_eva02(
    state: Mapping[str, Tensor], patch: int
) -> tuple[dict[str, Tensor], Tensor | None, list[str]]:
    """Convert EVA-02's weights to those of a universal ViT of the same width and depth.

    Args:
        state: Tensors by their public names, of the original repository or timm.
        patch: In-plane patch size of the ViT, voxels.

    Returns:
        Tensors of a `UniversalViT` with a patch of (p, p, p) and a position table of one slice; the
        mask token (1, 1, dim), None for timm's files, which have none; and the names in the file
        without a counterpart.

    Raises:
        CheckpointError: If a weight is unknown, or the patch kernel or position table is missing
            or of another shape.
    """
    vit: dict[str, Tensor] = {}
    left_out = []
    for public, tensor in state.items():
        ours = our_name(public)
        if ours is None:
            left_out.append(public)
        elif ours in vit:
            raise CheckpointError(f"Two weights of the file, one of them {public}, mean the same.")
        else:
            vit[ours] = tensor
    missing = {"patch_embedding.weight", "position_table", "cls_token"} - vit.keys()
    if missing:
        raise CheckpointError(
            f"The weights are not those of EVA-02: {', '.join(sorted(missing))} has no source."
        )
    vit["patch_embedding.weight"] = inflate_kernel(vit["patch_embedding.weight"], patch)
    first, vit["position_table"] = _position_grid(vit["position_table"])
    # Our class token has no position, so its row of the table is added here. (PUMIT's code uses
    # the next row, that of the first patch.)
    vit["cls_token"] = vit["cls_token"] + first
    mask_token = vit.pop("mask_token", None)
    return vit, mask_token, left_out


def inflate_kernel(kernel: Tensor, patch: int) -> Tensor:
    """Inflate a patch kernel (dim, 3, p, p) to (dim, 3, patch, patch, patch), constant along depth.

    Raises:
        CheckpointError: If it has another shape.
    """
    if kernel.ndim != 4 or kernel.shape[2] != kernel.shape[3]:
        raise CheckpointError(
            f"EVA-02's patch kernel must be (dim, 3, p, p), got {tuple(kernel.shape)}."
        )
    if kernel.shape[-1] != patch:
        kernel = F.interpolate(kernel, size=(patch, patch), mode="bicubic", align_corners=False)
    return kernel[:, :, None].expand(-1, -1, patch, -1, -1) / patch


def _position_grid(table: Tensor) -> tuple[Tensor, Tensor]:
    """Split a position table: class token (1, 1, dim) and patches (1, dim, 1, n, n)."""
    side = math.isqrt(max(table.shape[1] - 1, 0)) if table.ndim == 3 else 0
    if side == 0 or 1 + side * side != table.shape[1]:
        raise CheckpointError(
            f"EVA-02's position table must be (1, 1 + n n, dim), got {tuple(table.shape)}."
        )
    grid = table[:, 1:].transpose(1, 2).reshape(1, -1, 1, side, side)
    return table[:, :1], grid
