"""Conversion of the PUMIT authors' weights to this package's names, with network sizes.

Their tokenizer has one layer sequence each for encoder and decoder; their ViT uses EVA-02's names.
Code and files: https://github.com/function2-llx/PUMIT, release 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pumit.errors import CheckpointError
from pumit.networks.pumit.eva02 import our_name

# Layers of their tokenizer with weights, by position in the sequence.
_ENCODER = {
    **{3 * i: f"down.{i}" for i in range(3)},
    **{3 * i + 1: f"norms.{i}" for i in range(3)},
    9: "blocks.0.conv",
    10: "blocks.0.norm",
    12: "blocks.1.conv",
    13: "blocks.1.norm",
}
_DECODER = {
    0: "blocks.0.conv",
    1: "blocks.0.norm",
    3: "blocks.1.conv",
    4: "blocks.1.norm",
    8: "last",
}
_UP = {"transposed_conv": "up.{}", "conv.0": "up_blocks.{}.conv", "conv.1": "up_blocks.{}.norm"}
TOKENIZER = {
    **{f"encoder.{place}": f"encoder.{name}" for place, name in _ENCODER.items()},
    **{f"decoder.{place}": f"decoder.{name}" for place, name in _DECODER.items()},
    **{
        f"decoder.{6 + i}.{theirs}": f"decoder.{ours.format(i)}"
        for i in range(2)
        for theirs, ours in _UP.items()
    },
    "quantize.proj": "quantizer.projection",
}
CODEBOOK = "quantize.embedding.weight"
HEAD = {"mim_head.0": "head.0", "mim_head.2": "head.2"}
GROUPS = 8
HEAD_WIDTH = 64  # width of an attention head in ViT-B and -L


@dataclass(frozen=True)
class AuthorWeights:
    """Converted weights.

    Attributes:
        network: Key of `networks.build.RECIPES`.
        state: Tensors by that network's parameter names.
        left_out: Names in the file without a counterpart.
    """

    network: str
    sizes: dict[str, Any]
    state: dict[str, Tensor]
    left_out: tuple[str, ...]


def authors_weights(state: Mapping[str, Tensor]) -> AuthorWeights | None:
    """Convert the PUMIT authors' weights, recognised by their names; None for other weights.

    Raises:
        CheckpointError: If they are PUMIT's, but not of the architecture of its release.
    """
    if CODEBOOK in state and "encoder.0.weight" in state:
        return _tokenizer(state)
    if "cls_token" in state and state.get("pos_embed", state["cls_token"]).ndim == 5:
        return _vit(state)
    return None


def _tokenizer(state: Mapping[str, Tensor]) -> AuthorWeights:
    if "quantize.proj.weight" not in state:
        raise CheckpointError("its tokens are not soft ones (quantize.proj is missing)")
    found, left = {"quantizer.codebook": state[CODEBOOK]}, []
    for name, tensor in state.items():
        layer, _, kind = name.rpartition(".")
        if layer in TOKENIZER and kind in ("weight", "bias"):
            found[f"{TOKENIZER[layer]}.{kind}"] = tensor
        elif name != CODEBOOK:
            left.append(name)
    down = [found.get(f"encoder.down.{i}.weight") for i in range(3)]
    if any(d is None or d.ndim != 5 for d in down) or any(n.startswith("encoder.") for n in left):
        raise CheckpointError("it is not the tokenizer of the release, which has three reductions")
    widths = tuple(d.shape[0] for d in down if d is not None)
    sizes = {
        "in_channels": found["encoder.down.0.weight"].shape[1],
        "widths": widths,
        "num_tokens": found["quantizer.codebook"].shape[0],
        "groups": GROUPS,
    }
    return AuthorWeights("pumit_tokenizer", sizes, found, tuple(sorted(left)))


def _vit(state: Mapping[str, Tensor]) -> AuthorWeights:
    vit: dict[str, Tensor] = {}
    rest: dict[str, Tensor] = {}
    left = []
    for name, tensor in state.items():
        layer, _, kind = name.rpartition(".")
        if layer in HEAD:
            rest[f"{HEAD[layer]}.{kind}"] = tensor
        elif ".rope." in f".{name}":
            left.append(name)
        elif name == "mask_token":
            rest[name] = tensor
        elif (ours := our_name(name)) is None:
            left.append(name)
        else:
            vit[ours] = tensor
    kernel, table = vit.get("patch_embedding.weight"), vit["position_table"]
    side = 0 if kernel is None else kernel.shape[-1]
    if kernel is None or kernel.ndim != 5 or set(kernel.shape[2:]) != {side} or side & (side - 1):
        raise CheckpointError(
            "its patches are not adaptive ones, the same along all axes; give the pre-trained ViT, "
            "not one that was fine-tuned"
        )
    dim = vit["cls_token"].shape[-1]
    sizes = {
        "in_channels": kernel.shape[1],
        "dim": dim,
        "depth": 1 + max(int(n.split(".")[1]) for n in vit if n.startswith("blocks.")),
        "num_heads": max(1, dim // HEAD_WIDTH),
        "hidden": vit["blocks.0.mlp.w1.weight"].shape[0],
        "position_table": tuple(table.shape[2:]),
        "patch_halvings": side.bit_length() - 1,
    }
    if "head.2.weight" not in rest:
        return AuthorWeights("pumit_vit_b", sizes, vit, tuple(sorted([*left, *rest])))
    sizes["num_tokens"] = rest["head.2.weight"].shape[0]
    whole = {f"vit.{name}": tensor for name, tensor in vit.items()}
    return AuthorWeights("pumit_vit_b_mim", sizes, {**whole, **rest}, tuple(sorted(left)))
