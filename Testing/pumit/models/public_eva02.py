"""EVA-02 as it was published: names and shapes, and a slow network to compare with."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class PublicSizes:
    """Sizes of a public network; those of EVA-02-B by default."""

    dim: int = 768
    depth: int = 12
    heads: int = 12
    hidden: int = 2048
    patch: int = 14
    grid: int = 16


TINY = PublicSizes(dim=24, depth=2, heads=2, hidden=64, patch=8, grid=4)


def original_shapes(s: PublicSizes) -> Shapes:
    """Names of eva02_B_pt_in21k_p14, the original repository's file, without its output head."""
    shapes: Shapes = {
        "cls_token": (1, 1, s.dim),
        "mask_token": (1, 1, s.dim),
        "pos_embed": (1, 1 + s.grid**2, s.dim),
        "patch_embed.proj.weight": (s.dim, 3, s.patch, s.patch),
        "patch_embed.proj.bias": (s.dim,),
        "rope.freqs_cos": (s.grid**2, s.dim // s.heads),
        "rope.freqs_sin": (s.grid**2, s.dim // s.heads),
        "norm.weight": (s.dim,),
        "norm.bias": (s.dim,),
    }
    for i in range(s.depth):
        block: Shapes = {
            "norm1.weight": (s.dim,),
            "norm1.bias": (s.dim,),
            "attn.q_bias": (s.dim,),
            "attn.v_bias": (s.dim,),
            "attn.q_proj.weight": (s.dim, s.dim),
            "attn.k_proj.weight": (s.dim, s.dim),
            "attn.v_proj.weight": (s.dim, s.dim),
            "attn.rope.freqs_cos": (s.grid**2, s.dim // s.heads),
            "attn.rope.freqs_sin": (s.grid**2, s.dim // s.heads),
            "attn.proj.weight": (s.dim, s.dim),
            "attn.proj.bias": (s.dim,),
            "norm2.weight": (s.dim,),
            "norm2.bias": (s.dim,),
            "mlp.w1.weight": (s.hidden, s.dim),
            "mlp.w1.bias": (s.hidden,),
            "mlp.w2.weight": (s.hidden, s.dim),
            "mlp.w2.bias": (s.hidden,),
            "mlp.ffn_ln.weight": (s.hidden,),
            "mlp.ffn_ln.bias": (s.hidden,),
            "mlp.w3.weight": (s.dim, s.hidden),
            "mlp.w3.bias": (s.dim,),
        }
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in block.items()}
    return shapes


def timm_name(original: str) -> str | None:
    """What timm's model.safetensors calls a weight, or None where it has none."""
    if "rope" in original or original == "mask_token":
        return None
    if original.startswith("norm."):
        return f"fc_{original}"
    renamed = {
        "q_bias": "q_proj.bias",
        "v_bias": "v_proj.bias",
        "mlp.w1": "mlp.fc1_g",
        "mlp.w2": "mlp.fc1_x",
        "mlp.ffn_ln": "mlp.norm",
        "mlp.w3": "mlp.fc2",
    }
    for theirs, timm in renamed.items():
        original = original.replace(theirs, timm)
    return original


def timm_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under timm's names."""
    named = {timm_name(name): tensor for name, tensor in state.items()}
    return {name: tensor for name, tensor in named.items() if name is not None}


def random_state(sizes: PublicSizes = TINY) -> dict[str, Tensor]:
    """Weights by the original's names, random, in double precision."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) * 0.3
        for name, shape in original_shapes(sizes).items()
    }


def rotary_angles(sizes: PublicSizes) -> Tensor:
    """Angle of each component of a head, (grid^2, head): twice each; rows, then columns."""
    half = sizes.dim // sizes.heads // 2
    omega = torch.tensor([10000 ** (-i / half) for i in range(0, half, 2)], dtype=torch.float64)
    rows = []
    for h in range(sizes.grid):
        for w in range(sizes.grid):
            rows.append(torch.cat((h * omega, w * omega)).repeat_interleave(2))
    return torch.stack(rows)


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    other = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    turned = x * angles.cos() + other * angles.sin()
    return torch.cat((x[:1], turned[1:]))  # the class token stays


def public_features(
    state: dict[str, Tensor], picture: Tensor, eps: float, sizes: PublicSizes = TINY
) -> Tensor:
    """Tokens (1 + grid^2, dim) of a picture (3, H, W), class token first, after the last norm."""
    s = sizes

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], eps)

    weight, bias = state["patch_embed.proj.weight"], state["patch_embed.proj.bias"]
    patches = F.conv2d(picture[None], weight, bias, stride=s.patch)[0].flatten(1).T
    x = torch.cat((state["cls_token"][0], patches)) + state["pos_embed"][0]
    angles = torch.cat((torch.zeros(1, s.dim // s.heads, dtype=x.dtype), rotary_angles(s)))
    for i in range(s.depth):
        at = f"blocks.{i}."
        y = norm(x, at + "norm1")
        q = y @ state[at + "attn.q_proj.weight"].T + state[at + "attn.q_bias"]
        k = y @ state[at + "attn.k_proj.weight"].T
        v = y @ state[at + "attn.v_proj.weight"].T + state[at + "attn.v_bias"]
        heads = []
        for one in zip(*(t.chunk(s.heads, dim=1) for t in (q, k, v)), strict=True):
            a, b = _turned(one[0], angles), _turned(one[1], angles)
            heads.append((a @ b.T / (s.dim // s.heads) ** 0.5).softmax(1) @ one[2])
        out = torch.cat(heads, 1)
        x = x + out @ state[at + "attn.proj.weight"].T + state[at + "attn.proj.bias"]
        y = norm(x, at + "norm2")
        gate = y @ state[at + "mlp.w1.weight"].T + state[at + "mlp.w1.bias"]
        value = y @ state[at + "mlp.w2.weight"].T + state[at + "mlp.w2.bias"]
        y = norm(gate * gate.sigmoid() * value, at + "mlp.ffn_ln")
        x = x + y @ state[at + "mlp.w3.weight"].T + state[at + "mlp.w3.bias"]
    return norm(x, "norm")
