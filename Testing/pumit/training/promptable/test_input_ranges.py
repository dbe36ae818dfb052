"""Ranges measured in PyTorch are those of the inputs of the engine's layers."""

import math

import numpy as np
import openvino
import torch
from openvino import opset15 as ops
from pumit.inference.engine.decoder_graph import decoder_graph
from pumit.inference.engine.encoder_graph import encoder_graph
from pumit.inference.engine.engine import FieldPrompts, Floats, Shape
from pumit.inference.engine.graph_layers import GraphLayers, Node
from pumit.inference.engine.openvino_engine import OpenVinoEngine, sizes_of
from pumit.inference.engine.torch_engine import TorchEngine
from pumit.networks.build import build_network
from pumit.networks.pumit import Anisotropy
from pumit.training.promptable import validation
from pumit.training.promptable.validation import measured_ranges

SIZES = {"widths": (8, 16, 16), "dim": 48, "depth": 1, "num_heads": 4, "field_size": 16}
SIZES |= {"geodesic": True, "class_channels": 6, "num_classes": 5}
SHAPE = (16, 16, 32)


class Recording(GraphLayers):
    """Builder that remembers the inputs of layers, except of those over prompt tokens."""

    inputs: dict[str, Node]

    def _operands(self, x: Node, kernel: Floats, name: str) -> tuple[Node, Node]:
        rows = x.get_output_partial_shape(0)[1]
        if kernel.ndim == 5 or (rows.is_static and rows.get_length() == math.prod(SHAPE) // 512):
            self.inputs[name] = x
        return super()._operands(x, kernel, name)


class MeasuringEngine(OpenVinoEngine):
    """Engine whose graphs also return the inputs of layers; `found` has their ends."""

    found: dict[str, list[float]]

    def graphs(self, da0: int, shape: Shape) -> tuple[openvino.Model, openvino.Model, set[str]]:
        layers, models = Recording(self._weights, da0), []
        for build in (encoder_graph, decoder_graph):
            layers.inputs = {}
            models.append(build(layers, self._sizes, shape))
            for name, node in layers.inputs.items():
                result = ops.result(node)
                result.set_friendly_name(f"input of {name}")
                models[-1].add_results([result])
        return models[0], models[1], layers.used

    def _run(self, compiled, graph, arrays):  # type: ignore[no-untyped-def]
        results = super()._run(compiled, graph, arrays)
        names = [output.node.get_friendly_name() for output in graph[0].outputs]
        for name, values in zip(names, results, strict=True):
            if name.startswith("input of "):
                ends = [float(values.min()), float(values.max())]
                self.found[name.removeprefix("input of ")] = ends
        return [r for n, r in zip(names, results, strict=True) if not n.startswith("input")]


def test_hooks_measure_what_the_graphs_multiply(monkeypatch, rng):
    monkeypatch.setattr(validation, "OUTSIDE", 0)
    monkeypatch.setattr(validation, "MOST_VALUES", 1 << 30)
    torch.manual_seed(3)
    network = build_network("promptable", **SIZES)
    weights = {k: v.numpy().astype(np.float32) for k, v in network.state_dict().items()}
    engine = MeasuringEngine(weights, sizes_of({"network": "promptable", "sizes": SIZES}))
    engine.found = {}
    torch_engine = TorchEngine(network.eval(), torch.device("cpu"), torch.float32)
    image = rng.random((3, *SHAPE)).astype(np.float32)
    points = np.array([[8.0, 8.0, 8.0]], np.float32)
    prompts = FieldPrompts(points, np.array([True]), None, None, 1.0)
    engine.decode(engine.encode(image, da0=0, slice_ratio=1.0), prompts)
    known = dict.fromkeys(engine.found, (np.inf, -np.inf))
    with torch.inference_mode(), measured_ranges(network, known) as ranges:
        torch_engine.decode(torch_engine.encode(image, da0=0, slice_ratio=1.0), prompts)
    assert {"mask_decoder.join_half.0", "mask_decoder.join_half.16"} < ranges.keys()
    for name, ends in engine.found.items():
        np.testing.assert_allclose(ranges[name], ends, rtol=0.01, atol=2e-3, err_msg=name)
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_ranges_become_wider_only_and_unknown_layers_are_left():
    network = build_network("promptable", **SIZES)
    known = {"image_encoder.stem": [-5.0, 0.5], "of.another.network": [0.0, 1.0]}
    with torch.inference_mode(), measured_ranges(network, known) as ranges:
        network.image_encoder.stem(torch.ones(1, 3, 8, 8, 8), Anisotropy(0))
    assert ranges == {"image_encoder.stem": [-5.0, 1.0], "of.another.network": [0.0, 1.0]}
