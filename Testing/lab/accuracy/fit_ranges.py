"""Measure the range of each layer's input, for networks that multiply in eight bits.

Run by hand: `python Testing/lab/accuracy/fit_ranges.py KINDS default -o ranges.json`. KINDS is a
folder of `Testing/lab/kinds.py build`; the first two cases of each kind that `default` is trained
on are opened, boxed and clicked. A range holds 99.96 % of the values of every field. The results of
several models are joined by hand in `pumit/models/layer_ranges.json`, by their weights' SHA-256.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import openvino
from kinds import REAL
from openvino import opset15 as ops
from pumit.evaluation.simulated_user import evaluate_case
from pumit.inference.engine import openvino_engine
from pumit.inference.engine.decoder_graph import decoder_graph
from pumit.inference.engine.encoder_graph import NetworkSizes, encoder_graph
from pumit.inference.engine.engine import Floats, Shape
from pumit.inference.engine.graph_layers import GraphLayers, Node
from pumit.inference.interactive.segmenter import load_segmenter

CASES, TARGETS, CLICKS = 2, 2, 3
OUTSIDE = 0.0002  # share of values on either side
MOST_VALUES = 1 << 18


class _Recording(GraphLayers):
    """Builder that remembers the inputs of layers with many rows."""

    inputs: dict[str, Node]

    def _operands(self, x: Node, kernel: Floats, name: str) -> tuple[Node, Node]:
        rows = x.get_output_partial_shape(0)[1]
        if kernel.ndim == 5 or (rows.is_static and rows.get_length() > 8):
            self.inputs[name] = x
        return super()._operands(x, kernel, name)


class MeasuringEngine(openvino_engine.OpenVinoEngine):
    """Engine that measures the inputs of layers; `found` has their ranges."""

    found: ClassVar[dict[str, list[float]]] = {}

    def __init__(self, weights: Mapping[str, Floats], sizes: NetworkSizes, **_: Any) -> None:
        super().__init__(weights, sizes)  # single precision, no cached graphs

    def graphs(self, da0: int, shape: Shape) -> tuple[openvino.Model, openvino.Model, set[str]]:
        layers = _Recording(self._weights, da0)
        models = []
        for build in (encoder_graph, decoder_graph):
            layers.inputs = {}
            model = build(layers, self._sizes, shape)
            for name, node in layers.inputs.items():
                result = ops.result(node)
                result.set_friendly_name(name)
                model.add_results([result])
            models.append(model)
        return models[0], models[1], layers.used

    def _run(self, compiled: Any, graph: tuple[Any, Any], arrays: list[Floats]) -> list[Floats]:
        results = super()._run(compiled, graph, arrays)
        names = [output.node.get_friendly_name() for output in graph[0].outputs]
        for name, values in zip(names, results, strict=True):
            if "." in name:
                self._note(name, values.reshape(-1))
        return [values for name, values in zip(names, results, strict=True) if "." not in name]

    def _note(self, name: str, values: npt.NDArray[np.float32]) -> None:
        values = values[:: max(len(values) // MOST_VALUES, 1)]
        least, most = np.quantile(values, (OUTSIDE, 1 - OUTSIDE)).tolist()
        former = self.found.get(name, [least, most])
        self.found[name] = [min(former[0], least), max(former[1], most)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", type=Path)
    parser.add_argument("model")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    openvino_engine.OpenVinoEngine = MeasuringEngine  # type: ignore[misc]
    segmenter = load_segmenter(args.model, device="cpu")
    for kind, (_, is_trained) in REAL.items():
        for case in sorted((args.kinds / kind).iterdir())[:CASES] if is_trained else ():
            for row in evaluate_case(segmenter, case, clicks=CLICKS, targets=TARGETS, human=False):
                print(kind, case.name, row["box"], row["clicks"], flush=True)
    found = {name: [round(v, 4) for v in span] for name, span in MeasuringEngine.found.items()}
    args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
