"""Layers of the promptable network as OpenVINO operations, for one degree of anisotropy.

Each layer matches the layer of the same name in `pumit.networks` in evaluation mode. Adaptive
kernels are summed along depth beforehand, so the graph has only plain convolutions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from openvino import opset15 as ops

from pumit.inference.engine.engine import Floats

Node = Any  # openvino's own nodes carry no types
Ranges = Mapping[str, Sequence[float]]  # least and greatest input of layers by name
EPS = 1e-5


def constant(values: npt.ArrayLike) -> Node:
    """Return a float32 constant node."""
    return ops.constant(np.ascontiguousarray(values, dtype=np.float32))


def integers(values: Any) -> Node:
    """Return an int64 constant node, for axes or sizes."""
    return ops.constant(np.asarray(values, dtype=np.int64))


def convolve(x: Node, kernel: npt.ArrayLike, step: Sequence[int] = (1, 1, 1)) -> Node:
    """Convolve with constants, without padding; faster than pooling, which moves the channels."""
    return _convolution(x, constant(kernel), step)


def _convolution(
    x: Node, kernel: Node, step: Sequence[int] = (1, 1, 1), pads: Sequence[int] = (0, 0, 0)
) -> Node:
    return ops.convolution(x, kernel, step, pads, pads, [1, 1, 1])


def _per_channel(values: Floats) -> Node:
    return constant(values.reshape(1, -1, 1, 1, 1))


def channels_last(x: Node) -> Node:
    """Move channels to the end, where OpenVINO's 3D convolutions have them: nothing is copied."""
    return ops.transpose(x, integers([0, 2, 3, 4, 1]))


def channels_first(x: Node) -> Node:
    """Undo `channels_last`."""
    return ops.transpose(x, integers([0, 4, 1, 2, 3]))


def depth_sum(kernel: Floats, depth: int) -> Floats:
    """Sum a kernel (a, b, K, h, w) along K in contiguous groups to (a, b, depth, h, w)."""
    a, b, k, h, w = kernel.shape
    return kernel.reshape(a, b, depth, k // depth, h, w).sum(3)


class GraphLayers:
    """Builder of layers from a network's weights.

    Args:
        ranges: Least and greatest input of layers, by name; these layers multiply in eight bits.

    Attributes:
        used: Names of the weights used so far.
    """

    def __init__(
        self, weights: Mapping[str, Floats], da0: int, ranges: Ranges | None = None
    ) -> None:
        self._weights = weights
        self.da0 = da0
        self._ranges = ranges or {}
        self.used: set[str] = set()

    def weight(self, name: str) -> Floats:
        """Return a parameter and mark it as used; KeyError if the network has none of that name."""
        self.used.add(name)
        return self._weights[name]

    def has(self, name: str) -> bool:
        """Return whether the network has a parameter of that name."""
        return name in self._weights

    def _operands(self, x: Node, kernel: Floats, name: str) -> tuple[Node, Node]:
        """Return input and kernel of a layer, rounded to eight bits if its range is known.

        OpenVINO multiplies such operands as integers. Zero stays exact: convolutions pad with it.
        """
        if name not in self._ranges:
            return x, constant(kernel)
        # 1. Input: 256 levels, moved so that zero is one of them.
        least, most = (min(self._ranges[name][0], 0.0), max(self._ranges[name][1], 0.0))
        step = max(most - least, 1e-6) / 255
        below = round(-least / step)
        ends = [constant(-below * step), constant((255 - below) * step)]
        x = ops.fake_quantize(x, *ends, *ends, 256)
        # 2. Kernel: 255 levels per output channel, as weights are stored (`int8_weights`).
        each = tuple(range(1, kernel.ndim))
        scale = np.maximum(np.abs(kernel).max(each, keepdims=True), 1e-12) / 127
        whole = ops.constant(np.rint(kernel / scale).astype(np.int8))
        return x, ops.multiply(ops.convert(whole, "f32"), constant(scale))

    def _biased(self, x: Node, name: str, extra: Floats | float = 0.0) -> Node:
        return ops.add(x, _per_channel(self.weight(f"{name}.bias") + extra))

    def conv(
        self, x: Node, name: str, level: int, part: slice = slice(None), *, bias: bool = True
    ) -> Node:
        """Add `SACConv` after `level` halvings, restricted to some of its input channels."""
        kernel, depth = self.weight(f"{name}.weight")[:, part], 1
        if level < self.da0:
            kernel, depth = depth_sum(kernel, 1), 0
        whole = part == slice(None)
        x, operand = self._operands(x, kernel, name if whole else f"{name}.{part.start}")
        out = _convolution(x, operand, pads=(depth, 1, 1))
        return self._biased(out, name) if bias else out

    def point(self, x: Node, name: str) -> Node:
        """Add a 1^3 convolution."""
        x, kernel = self._operands(x, self.weight(f"{name}.weight"), name)
        return self._biased(_convolution(x, kernel), name)

    def down(self, x: Node, name: str, level: int) -> Node:
        """Add `SACDownsample` by two from a level."""
        step = 1 if level < self.da0 else 2
        x, kernel = self._operands(x, depth_sum(self.weight(f"{name}.weight"), step), name)
        return self._biased(_convolution(x, kernel, step=(step, 2, 2)), name)

    def up(
        self, x: Node, name: str, level: int, shown: tuple[Floats, Floats] | None = None
    ) -> Node:
        """Add `SACUpsample` by two to a level.

        Args:
            shown: Weights (C', S) and bias (C') of a 1^3 convolution of the last S channels of x;
                its result is up-sampled by nearest neighbour and added.
        """
        step = 1 if level < self.da0 else 2
        kernel = depth_sum(self.weight(f"{name}.weight"), step)
        offset: Floats | float = 0.0
        if shown is not None:
            of_shown, offset = shown[0].T[..., None, None, None], shown[1]
            repeated = np.broadcast_to(of_shown, (*of_shown.shape[:2], step, 2, 2))
            kernel = np.concatenate((kernel, repeated))
        # OpenVINO has no eight-bit kernel for this.
        out = ops.convolution_backprop_data(x, constant(kernel), [step, 2, 2])
        return self._biased(out, name, offset)

    def channel_norm(self, x: Node, name: str) -> Node:
        """Add `ChannelNorm`.

        OpenVINO's own group normalisation moves the channels of 3D convolutions to the front and
        back again, which takes a third as long as the convolution. Values are centred before they
        are squared, as a variance from rounded means (bfloat16) would be wrong.
        """
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        groups = max(len(scale) // 8, 1)
        size = len(scale) // groups
        within = np.kron(np.eye(groups), np.full((size, size), 1 / size))[..., None, None, None]

        def mean(of: Node) -> Node:  # (1, C, 1, 1, 1), over each group
            return convolve(ops.reduce_mean(of, integers([2, 3, 4]), True), within)

        centred = ops.subtract(x, mean(x))
        variance = ops.add(mean(ops.multiply(centred, centred)), constant(EPS))
        factor = ops.multiply(ops.power(variance, constant(-0.5)), _per_channel(scale))
        return ops.add(ops.multiply(centred, factor), _per_channel(bias))

    def residual(self, x: Node, name: str, level: int) -> Node:
        """Add `ResidualBlock`."""
        y = x
        for i in (1, 2):
            y = ops.swish(self.channel_norm(y, f"{name}.norm{i}"))
            y = self.conv(y, f"{name}.conv{i}", level)
        return ops.add(x, y)

    def layer_norm(self, x: Node, name: str) -> Node:
        """Add `nn.LayerNorm` over the last axis."""
        y = ops.mvn(x, integers([-1]), True, EPS, "INSIDE_SQRT")
        y = ops.multiply(y, constant(self.weight(f"{name}.weight")))
        return ops.add(y, constant(self.weight(f"{name}.bias")))

    def linear(self, x: Node, name: str, *, order: Any = slice(None), factor: float = 1.0) -> Node:
        """Add `nn.Linear` with its outputs reordered and scaled."""

        def numbers(kind: str) -> Floats:
            found = self.weight(f"{name}.{kind}")[order]
            return found if factor == 1.0 else found * np.float32(factor)

        y = ops.matmul(*self._operands(x, numbers("weight"), name), False, True)
        if f"{name}.bias" not in self._weights:
            return y
        return ops.add(y, constant(numbers("bias")))


def split_heads(x: Node, heads: int) -> Node:
    """Reshape (1, N, C) to (1, heads, N, C / heads)."""
    return ops.transpose(ops.reshape(x, integers([0, 0, heads, -1]), True), integers([0, 2, 1, 3]))


def attend(q: Node, k: Node, v: Node, bias: Node | None = None) -> Node:
    """Compute softmax(q k^T + bias) v of (1, heads, N, d), as (1, N, heads d)."""
    scores = ops.matmul(q, k, False, True)
    if bias is not None:
        scores = ops.add(scores, bias)
    out = ops.matmul(ops.softmax(scores, 3), v, False, False)
    return ops.reshape(ops.transpose(out, integers([0, 2, 1, 3])), integers([0, 0, -1]), True)


def as_tokens(grid: Node, channels: int, shape: Sequence[int]) -> Node:
    """Reshape (1, C, d, h, w) to (1, N, C)."""
    flat = ops.reshape(grid, integers([1, channels, int(np.prod(shape))]), False)
    return ops.transpose(flat, integers([0, 2, 1]))


def as_grid(tokens: Node, channels: int, shape: Sequence[int]) -> Node:
    """Reshape (1, N, C) to (1, C, d, h, w)."""
    flat = ops.transpose(tokens, integers([0, 2, 1]))
    return ops.reshape(flat, integers([1, channels, *shape]), False)
