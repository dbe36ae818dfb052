"""Mask decoder as an OpenVINO graph; see `pumit.networks.promptable.mask_decoder`."""

import math

import numpy as np
import openvino
from openvino import opset15 as ops

from pumit.inference.engine.encoder_graph import NetworkSizes
from pumit.inference.engine.engine import Shape
from pumit.inference.engine.graph_layers import (
    GraphLayers,
    Node,
    as_grid,
    as_tokens,
    attend,
    channels_first,
    channels_last,
    constant,
    convolve,
    integers,
    split_heads,
)
from pumit.networks.promptable.constants import CLASS_MAPS, GEODESIC_CHANNELS
from pumit.preprocessing.fields import grids

NAME = "mask_decoder"


def decoder_graph(layers: GraphLayers, sizes: NetworkSizes, shape: Shape) -> openvino.Model:
    """Build the decoder graph: encoder features and prompts in, masks and IoU estimates out.

    Returns:
        Graph with the inputs: the first four outputs of `encoder_graph`; `maps` (1, C, d, h, w);
        `prior` (1, 1, D, H, W), -1 to 1; `prompts` (1, T, dim); `places` (1, N, dim), the position
        codes of the image tokens. Outputs: logits (M, D, H, W) and IoU estimates (M,).
    """
    at_full, at_half, at_quarter, at_tokens = grids(shape, layers.da0)
    f, h, q = sizes.widths
    channels = layers.weight(f"{NAME}.join_half.weight").shape[1] - h
    inputs = {
        "full": [1, f, *at_full],
        "half": [1, *at_half, h],
        "quarter": [1, *at_quarter, q],
        "tokens": [1, sizes.dim, *at_tokens],
        "maps": [1, channels, *at_half],
        "prior": [1, 1, *at_full],
        "prompts": [1, -1, sizes.dim],
        "places": [1, math.prod(at_tokens), sizes.dim],
    }
    given = {name: ops.parameter(size, np.float32, name) for name, size in inputs.items()}
    maps, prior = given["maps"], given["prior"]
    # 1. Join prompt maps and image; the image's part of the convolutions is in the features.
    half = layers.conv(maps, f"{NAME}.join_half", 1, slice(h, None), bias=False)
    half = ops.add(half, channels_first(given["half"]))
    quarter = layers.down(half, f"{NAME}.to_quarter", 1)
    quarter = layers.conv(quarter, f"{NAME}.join_quarter", 2, slice(0, q), bias=False)
    quarter = ops.add(quarter, channels_first(given["quarter"]))
    grid = ops.add(layers.down(quarter, f"{NAME}.to_tokens", 2), given["tokens"])
    # 2. Two-way attention between prompt tokens and image.
    image, prompts = as_tokens(grid, sizes.dim, at_tokens), given["prompts"]
    for i in range(sizes.num_decoder_blocks):
        prompts, image = _two_way(
            layers, sizes, prompts, image, given["prompts"], given["places"], f"{NAME}.blocks.{i}"
        )
    prompts = layers.layer_norm(prompts, f"{NAME}.norm")
    # 3. Up-sample to full resolution; the shown maps join in the last step.
    x = layers.up(as_grid(image, sizes.dim, at_tokens), f"{NAME}.up_quarter", 2)
    x = layers.residual(ops.add(x, quarter), f"{NAME}.up_quarter_block", 2)
    x = ops.add(layers.up(x, f"{NAME}.up_half", 1), half)
    x = layers.residual(x, f"{NAME}.up_half_block", 1)
    if sizes.geodesic:
        own = channels - (CLASS_MAPS if sizes.class_channels else 0)
        shown = _shown(maps, own, channels, (own - GEODESIC_CHANNELS - 3) // 2)
        weight = layers.weight(f"{NAME}.show.weight")[..., 0, 0, 0]  # (f, S + 1)
        bias = layers.weight(f"{NAME}.show.bias")
        x = ops.concat([x, shown], 1)
        x = ops.add(layers.up(x, f"{NAME}.up_full", 0, (weight[:, :-1], bias)), given["full"])
        x = ops.add(x, convolve(prior, weight[:, -1].reshape(-1, 1, 1, 1, 1)))
    else:
        shown = None
        x = ops.add(layers.up(x, f"{NAME}.up_full", 0), given["full"])
    x = layers.conv(ops.swish(x), f"{NAME}.last", 0)
    x = ops.swish(layers.channel_norm(x, f"{NAME}.last_norm"))
    # 4. Each mask token gives the weights of features, maps and prior.
    logits = _logits(layers, sizes, prompts, x, shown, prior, (at_full, at_half))
    iou = _iou(layers, sizes, prompts, x, logits, (at_full, at_half))
    results = [ops.result(ops.squeeze(node, integers([0]))) for node in (logits, iou)]
    # Without shown maps, the network sees the prior only in the prompt maps; `prior` is unused.
    return openvino.Model(results, list(given.values()), "decoder")


def _part(x: Node, start: int, stop: int, axis: int) -> Node:
    return ops.slice(x, *(integers([v]) for v in (start, stop, 1, axis)))


def _shown(maps: Node, own: int, channels: int, each: int) -> Node:
    """Add `PromptEncoder.shown`: geodesic maps, nearness to points by sign, box, class maps."""
    near = [_part(maps, i, i + 1, 1) for i in range(0, 2 * each + 1, each)]
    classes = [_part(maps, own, channels, 1)] if channels > own else []
    return ops.concat([_part(maps, own - GEODESIC_CHANNELS, own, 1), *near, *classes], 1)


def _cross(layers: GraphLayers, heads: int, q: Node, k: Node, v: Node, name: str) -> Node:
    """Add `CrossAttention`."""
    qk_norm = layers.has(f"{name}.scale")
    scale = 1.0 if qk_norm else (len(layers.weight(f"{name}.q.weight")) // heads) ** -0.5
    q = layers.linear(q, f"{name}.q", factor=scale)
    k, v = layers.linear(k, f"{name}.k"), layers.linear(v, f"{name}.v")
    q, k, v = (split_heads(t, heads) for t in (q, k, v))
    if qk_norm:
        q, k = (ops.normalize_l2(t, integers([3]), 1e-24, "max") for t in (q, k))
        q = ops.multiply(q, constant(layers.weight(f"{name}.scale").reshape(1, -1, 1, 1)))
    return layers.linear(attend(q, k, v), f"{name}.proj")


def _two_way(
    layers: GraphLayers,
    sizes: NetworkSizes,
    tokens: Node,
    image: Node,
    token_code: Node,
    image_code: Node,
    name: str,
) -> tuple[Node, Node]:
    """Add `TwoWayBlock`."""
    heads, norm = sizes.num_heads, f"{name}.norms"
    normed = layers.layer_norm(tokens, f"{norm}.0")
    q = ops.add(normed, token_code)
    tokens = ops.add(tokens, _cross(layers, heads, q, q, normed, f"{name}.self_attention"))
    placed = ops.add(image, image_code)
    q = ops.add(layers.layer_norm(tokens, f"{norm}.1"), token_code)
    tokens = ops.add(tokens, _cross(layers, heads, q, placed, image, f"{name}.to_image"))
    y = layers.layer_norm(tokens, f"{norm}.2")
    tokens = ops.add(tokens, _perceptron(layers, y, f"{name}.mlp"))
    keys = layers.layer_norm(tokens, f"{norm}.3")
    attended = _cross(layers, heads, placed, ops.add(keys, token_code), keys, f"{name}.to_tokens")
    return tokens, ops.add(image, attended)


def _perceptron(layers: GraphLayers, x: Node, name: str) -> Node:
    return layers.linear(ops.gelu(layers.linear(x, f"{name}.0"), "erf"), f"{name}.2")


def _logits(
    layers: GraphLayers,
    sizes: NetworkSizes,
    tokens: Node,
    x: Node,
    shown: Node | None,
    prior: Node,
    shapes: tuple[Shape, Shape],
) -> Node:
    """Add the mask logits (1, M, D, H, W)."""
    full, half = shapes
    f, count = sizes.widths[0], sizes.num_masks
    # 1. Weights of each mask from its token.
    each = [(_part(tokens, 1 + i, 2 + i, 1), f"{NAME}.hyper.{i}") for i in range(count)]
    weights = ops.concat([_perceptron(layers, *of) for of in each], 1)  # (1, M, f + shown + 1)
    last = layers.weight(f"{NAME}.hyper.0.2.bias").size - 1
    voxels = math.prod(full)
    # 2. Contribution of features and prior at full resolution, (1, M, D, H, W).
    of_x = _part(weights, 0, f, 2)
    flat = ops.reshape(channels_last(x), integers([1, voxels, f]), False)
    logits = ops.transpose(ops.matmul(flat, of_x, False, True), integers([0, 2, 1]))
    logits = ops.add(logits, _part(weights, last, last + 1, 2))
    if shown is not None:
        of_prior = ops.multiply(
            _part(weights, last - 1, last, 2), ops.reshape(prior, integers([1, 1, voxels]), False)
        )
        logits = ops.add(logits, of_prior)
    logits = ops.reshape(logits, integers([1, count, *full]), False)
    if shown is None:
        return logits
    # 3. Contribution of the shown maps, computed at 1/2 resolution so that only the M logits have
    #    to be interpolated.
    flat = ops.reshape(shown, integers([1, last - 1 - f, math.prod(half)]), False)
    coarse = ops.matmul(_part(weights, f, last - 1, 2), flat, False, False)
    coarse = ops.reshape(coarse, integers([1, count, *half]), False)
    fine = ops.interpolate(
        coarse,
        integers(full),
        "linear_onnx",
        "sizes",
        axes=integers([2, 3, 4]),
        coordinate_transformation_mode="half_pixel",
    )
    return ops.add(logits, fine)


def _iou(
    layers: GraphLayers,
    sizes: NetworkSizes,
    tokens: Node,
    x: Node,
    logits: Node,
    shapes: tuple[Shape, Shape],
) -> Node:
    """Add `IoUHead`, (1, M)."""
    full, half = shapes
    step = [a // b for a, b in zip(full, half, strict=True)]

    def pooled(of: Node) -> Node:  # (1, C, voxels at 1/2 resolution)
        channels = of.get_output_shape(0)[1]
        each = np.eye(channels).reshape(channels, channels, 1, 1, 1) / math.prod(step)
        mean = convolve(of, np.broadcast_to(each, (channels, channels, *step)), step)
        return ops.reshape(mean, integers([1, -1, math.prod(half)]), False)

    def total(of: Node) -> Node:
        return ops.reduce_sum(of, integers([2]), True)

    def at_least(of: Node, least: float) -> Node:
        return ops.maximum(of, constant(least))

    # 1. Features and probabilities at 1/2 resolution.
    features, p = pooled(x), pooled(ops.sigmoid(logits))
    hard = ops.convert(ops.greater(p, constant(0.5)), "f32")
    border = ops.multiply(p, ops.subtract(constant(1.0), p))
    mass, edge_mass = total(p), total(border)
    agreement = ops.multiply(total(ops.multiply(p, hard)), constant(2.0))
    agreement = ops.divide(agreement, at_least(ops.add(mass, total(hard)), 1))
    doubt = ops.divide(edge_mass, at_least(mass, 1))
    size = ops.log(at_least(ops.reduce_mean(p, integers([2]), True), 1e-5))
    inside = ops.divide(ops.matmul(p, features, False, True), at_least(mass, 1))
    edge = ops.divide(ops.matmul(border, features, False, True), at_least(edge_mass, 1))
    own = ops.tile(_part(tokens, 0, 1, 1), integers([1, sizes.num_masks, 1]))
    masks = _part(tokens, 1, 1 + sizes.num_masks, 1)
    size = ops.multiply(size, constant(0.1))
    parts = ops.concat([own, masks, inside, edge, agreement, doubt, size], 2)
    iou = _perceptron(layers, parts, f"{NAME}.iou_head.mlp")
    return ops.sigmoid(ops.reshape(iou, integers([1, sizes.num_masks]), False))
