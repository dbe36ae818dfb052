"""Image encoder as an OpenVINO graph; see `pumit.networks.promptable.image_encoder`."""

import math
from dataclasses import dataclass

import numpy as np
import openvino
from openvino import opset15 as ops

from pumit.inference.engine.engine import Floats, Shape
from pumit.inference.engine.graph_layers import (
    GraphLayers,
    Node,
    as_grid,
    as_tokens,
    attend,
    channels_last,
    constant,
    integers,
    split_heads,
)
from pumit.preprocessing.fields import grids

ROPE_BASE, ROPE_BASE_Z = 10000.0, 2333.0


@dataclass(frozen=True)
class NetworkSizes:
    """Sizes of a promptable network from its recipe; see `PromptableNetwork`."""

    widths: tuple[int, int, int]
    dim: int
    depth: int
    num_heads: int
    field_size: int
    num_masks: int
    num_decoder_blocks: int
    geodesic: bool
    class_channels: int = 0
    num_classes: int = 0
    qk_norm: bool = False

    def __post_init__(self) -> None:
        counts = (self.dim, self.depth, self.num_heads, self.num_masks, self.num_decoder_blocks)
        whole = (*self.widths, *counts, self.field_size)
        if not all(isinstance(n, int) and n > 0 for n in whole) or len(self.widths) != 3:
            raise ValueError(f"Sizes must be positive whole numbers, got {self}.")
        if self.field_size % 8 or self.dim % (4 * self.num_heads):
            raise ValueError(f"Sizes do not fit together: {self}.")

    @property
    def train_tokens(self) -> int:
        """Tokens of a training field."""
        return (self.field_size // 8) ** 3


def encoder_graph(layers: GraphLayers, sizes: NetworkSizes, shape: Shape) -> openvino.Model:
    """Build the encoder graph: a field in, the features for decoding out.

    The image's part of the decoder's convolutions over joined channels is computed here, once per
    field instead of once per click.

    Returns:
        Graph with the inputs `image` (1, 3, D, H, W) and `distance` (1, 1, N, N) between tokens.
        Outputs: features at full resolution, the image's part at 1/2 and 1/4 with channels last,
        tokens (1, dim, d, h, w), and normalised class vectors at 1/2 if the network has them.
    """
    name = "image_encoder"
    image = ops.parameter([1, 3, *shape], np.float32, "image")
    # 1. Convolutional stem: full, 1/2 and 1/4 resolution, then tokens (1, N, dim).
    full = layers.conv(image, f"{name}.stem", 0)
    normed = ops.swish(layers.channel_norm(full, f"{name}.full_norm"))
    full = ops.add(full, layers.conv(normed, f"{name}.full_conv", 0))
    half = layers.residual(layers.down(full, f"{name}.to_half", 0), f"{name}.half_block", 1)
    quarter = layers.down(half, f"{name}.to_quarter", 1)
    quarter = layers.residual(quarter, f"{name}.quarter_block", 2)
    coarse = grids(shape, layers.da0)[3]
    tokens = as_tokens(layers.down(quarter, f"{name}.to_tokens", 2), sizes.dim, coarse)
    # 2. Transformer with attention biased by token distance.
    count = math.prod(coarse)
    distance = ops.parameter([1, 1, count, count], np.float32, "distance")
    for i in range(sizes.depth):
        tokens = _block(layers, sizes, tokens, distance, coarse, f"{name}.blocks.{i}")
    tokens = as_grid(layers.layer_norm(tokens, f"{name}.norm"), sizes.dim, coarse)
    # 3. Class vectors, and the image's part of the decoder's convolutions over joined channels.
    _, h, q = sizes.widths
    classes = []
    if sizes.class_channels:
        half, vectors = _context(layers, tokens, quarter, half, f"{name}.context")
        classes = [vectors]
    half = layers.conv(half, "mask_decoder.join_half", 1, slice(0, h))
    quarter = layers.conv(quarter, "mask_decoder.join_quarter", 2, slice(q, 2 * q))
    parts = [channels_last(node) for node in (half, quarter)]
    results = [ops.result(node) for node in (full, *parts, tokens, *classes)]
    return openvino.Model(results, [image, distance], "encoder")


def _context(
    layers: GraphLayers, tokens: Node, quarter: Node, half: Node, name: str
) -> tuple[Node, Node]:
    """Add `ContextPath`."""
    x = ops.add(layers.up(tokens, f"{name}.up_quarter", 2), quarter)
    x = layers.residual(x, f"{name}.quarter_block", 2)
    x = ops.add(layers.up(x, f"{name}.up_half", 1), half)
    x = layers.residual(x, f"{name}.half_block", 1)
    x = ops.swish(layers.channel_norm(x, f"{name}.norm"))
    vectors = layers.point(x, f"{name}.to_classes")
    vectors = ops.normalize_l2(vectors, integers([1]), 1e-24, "max")
    return ops.add(half, layers.point(x, f"{name}.to_half")), vectors


def token_distances(shape: Shape) -> Floats:
    """Return the pairwise distances of a grid's tokens, in tokens, (N, N)."""
    axes = np.meshgrid(*(np.arange(n, dtype=np.float32) for n in shape), indexing="ij")
    places = np.stack(axes, -1).reshape(-1, 3)
    squared = ((places[:, None] - places[None]) ** 2).sum(-1)
    return np.asarray(np.sqrt(squared))


def _block(
    layers: GraphLayers, sizes: NetworkSizes, x: Node, distance: Node, shape: Shape, name: str
) -> Node:
    """Add `EvaBlock` with BA-SAM's scale and distance bias (eqs. 9 and 10)."""
    heads, head_dim = sizes.num_heads, sizes.dim // sizes.num_heads
    count = math.prod(shape)
    # 1. Scale of the scores: log(number of tokens) / log(number of training tokens).
    length = math.log(count) / math.log(max(sizes.train_tokens, 2))
    scale = (1.0 if count == sizes.train_tokens else length) / math.sqrt(head_dim)
    # 2. Reorder rotary pairs (2i, 2i + 1) to (i, i + d / 2) in queries and keys.
    apart = np.concatenate((np.arange(0, head_dim, 2), np.arange(1, head_dim, 2)))
    order = (np.arange(heads)[:, None] * head_dim + apart).reshape(-1)
    y = layers.layer_norm(x, f"{name}.norm1")
    q = layers.linear(y, f"{name}.attention.q", order=order, factor=scale)
    k = layers.linear(y, f"{name}.attention.k", order=order)
    v = layers.linear(y, f"{name}.attention.v")
    cos, sin = _rotations(shape, head_dim)
    q, k = (_rotated(split_heads(t, heads), cos, sin) for t in (q, k))
    # 3. Attention bias: -slope * distance, one slope per head.
    slopes = np.maximum(layers.weight(f"{name}.attention.slope"), 0).reshape(1, -1, 1, 1)
    out = attend(q, k, split_heads(v, heads), ops.multiply(distance, constant(-scale * slopes)))
    x = ops.add(x, layers.linear(out, f"{name}.attention.proj"))
    # 4. SwiGLU with a sub-norm.
    y = layers.layer_norm(x, f"{name}.norm2")
    gate = ops.swish(layers.linear(y, f"{name}.mlp.w1"))
    y = ops.multiply(gate, layers.linear(y, f"{name}.mlp.w2"))
    y = layers.linear(layers.layer_norm(y, f"{name}.mlp.norm"), f"{name}.mlp.w3")
    return ops.add(x, y)


def _rotations(shape: Shape, head_dim: int) -> tuple[Node, Node]:
    """Return cosines and sines of `AdditiveRotaryEmbedding3D`; first-half sines are negated."""
    half = head_dim // 2
    i = np.arange(head_dim // 4)
    omega, omega_z = ROPE_BASE ** (-2 * i / half), ROPE_BASE_Z ** (-(2 * i + 1) / half)
    axes = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    z, h, w = (axis.reshape(-1, 1) for axis in axes)
    angles = np.concatenate((h * omega + z * omega_z, w * omega + z * omega_z), 1)  # (N, d / 2)
    cos, sin = np.cos(angles), np.sin(angles)
    both = np.concatenate((cos, cos), 1), np.concatenate((-sin, sin), 1)
    return constant(both[0][None, None]), constant(both[1][None, None])


def _rotated(x: Node, cos: Node, sin: Node) -> Node:
    first, second = ops.split(x, integers(3), 2).outputs()
    turned = ops.concat([second, first], 3)
    return ops.add(ops.multiply(x, cos), ops.multiply(turned, sin))
