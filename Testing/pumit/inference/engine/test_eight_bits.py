"""Layers in eight bits compute with rounded operands; only shipped weights have ranges for that."""

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
from openvino import opset15 as ops
from pumit.inference.engine import openvino_engine
from pumit.inference.engine.choice import layer_ranges, load_engine
from pumit.inference.engine.engine import FieldPrompts, Floats
from pumit.inference.engine.graph_layers import GraphLayers
from pumit.inference.engine.openvino_engine import (
    OpenVinoEngine,
    multiplies_eight_bits,
    shared_core,
)
from pumit.models.index import find_model
from pumit.models.weights import read_weights
from scipy import ndimage

# OpenVINO keeps this rounding, adds none of its own and multiplies in single precision: exact on
# any CPU.
SINGLE = {"INFERENCE_PRECISION_HINT": "f32"}
EXACT = {"LP_TRANSFORMS_MODE": "NO", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
RANGE = (-0.7, 2.3)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each graph be compiled with exact products."""
    compile_model = openvino.Core.compile_model

    def compiled(core: Any, model: Any, device: str, properties: Any = None) -> Any:
        return compile_model(core, model, device, {**(properties or {}), **EXACT})

    monkeypatch.setattr(openvino.Core, "compile_model", compiled)
    multiplies_eight_bits.cache_clear()
    yield
    multiplies_eight_bits.cache_clear()


def output_of(layer: Any, x: Floats, properties: dict[str, Any]) -> Floats:
    """Output of a graph of one layer."""
    given = ops.parameter([1, *x.shape], np.float32)
    model = openvino.Model([ops.result(layer(given))], [given])
    compiled = shared_core().compile_model(model, "CPU", SINGLE | properties)
    return compiled([x[None]])[0][0]


def rounded(kernel: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Round kernel and input as the documentation says, slowly."""
    scales = [np.abs(k).max() / 127 for k in kernel]
    levels = [np.rint(k / s) * s for k, s in zip(kernel, scales, strict=True)]
    step = (RANGE[1] - RANGE[0]) / 255
    zero = np.rint(-RANGE[0] / step)
    inputs = (np.clip(np.rint(x / step) + zero, 0, 255) - zero) * step
    return np.array(levels), inputs


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_convolution_multiplies_rounded_operands(is_exact, rng):
    if not is_exact and not multiplies_eight_bits():
        pytest.skip("this CPU does not multiply eight-bit integers exactly")
    kernel = rng.standard_normal((4, 3, 3, 3, 3)).astype(np.float32)
    x = rng.normal(0.8, 0.8, (3, 6, 7, 8)).astype(np.float32)
    weights = {"a.weight": kernel, "a.bias": np.arange(4, dtype=np.float32)}
    layers = GraphLayers(weights, 0, {"a": RANGE})
    found = output_of(lambda node: layers.conv(node, "a", 0), x, EXACT if is_exact else {})
    kernel, x = rounded(kernel, x)
    for i, out in enumerate(found):
        pairs = zip(kernel[i], x, strict=True)
        expected = sum(ndimage.correlate(c, k, mode="constant") for k, c in pairs) + i
        np.testing.assert_allclose(out, expected, atol=2e-3)


def test_a_linear_layer_multiplies_rounded_operands(rng):
    kernel = rng.standard_normal((5, 16)).astype(np.float32)
    x = rng.normal(0.8, 0.8, (9, 16)).astype(np.float32)
    layers = GraphLayers({"a.weight": kernel}, 0, {"a": RANGE})
    found = output_of(lambda node: layers.linear(node, "a"), x, EXACT)
    kernel, x = rounded(kernel, x)
    np.testing.assert_allclose(found, x @ kernel.T, atol=2e-3)


def test_saturation_is_noticed(exact, monkeypatch):
    assert multiplies_eight_bits() == (openvino_engine.platform.machine() in ("x86_64", "AMD64"))
    multiplies_eight_bits.cache_clear()
    monkeypatch.setattr(openvino_engine.platform, "machine", lambda: "arm64")
    assert not multiplies_eight_bits()


@pytest.mark.parametrize("name", ["default", "research"])
def test_shipped_weights_have_the_ranges_of_their_layers(name):
    weights = read_weights(find_model(name), "promptable")
    ranges = layer_ranges(weights)
    assert len(ranges) == 76
    for layer, (least, most) in ranges.items():
        # A convolution that is split over encoder and decoder has two ranges.
        stem, _, first = layer.rpartition(".")
        assert f"{stem if first.isdigit() and 'join' in stem else layer}.weight" in weights.arrays
        assert least < most


def test_other_weights_have_ranges_only_if_their_recipe_states_them():
    weights = read_weights(find_model("default"), "promptable")
    shipped = json.loads(files("pumit.models").joinpath("layer_ranges.json").read_text())
    assert set(shipped) == {
        read_weights(find_model(name), "promptable").sha256 for name in ("default", "research")
    }
    tuned = replace(weights, sha256="0" * 64)
    assert layer_ranges(tuned) == {}
    for stated, expected in (
        ({"a": [0, 2]}, {"a": [0.0, 2.0]}),
        ({"a": [0, float("nan")]}, {}),
        ({"a": 3}, {}),
        ("a", {}),
    ):
        assert layer_ranges(replace(tuned, recipe={"layer_ranges": stated})) == expected


def answer(engine: Any, image: Floats) -> tuple[Floats, Floats]:
    features = engine.encode(image, da0=0, slice_ratio=1.0)
    middle = np.array([[s / 2 for s in image.shape[1:]]], np.float32)
    prompts = FieldPrompts(middle, np.array([True]), None, None, 1.0)
    logits, iou = engine.decode(features, prompts)
    return logits > 0, iou


def test_masks_stay_nearly_the_same(exact, monkeypatch, rng):
    """The default model on a bright ball with noise, in eight bits and without."""
    place = np.indices((16, 48, 48)) - np.array([8, 24, 24])[:, None, None, None]
    ball = (place**2).sum(0) < 7**2
    image = np.repeat((0.3 + 0.4 * ball + 0.05 * rng.standard_normal(ball.shape))[None], 3, 0)
    image = image.astype(np.float32)
    path = Path(find_model("default"))
    monkeypatch.setattr(openvino_engine, "best_precision", lambda: "f32")
    found = []
    for is_eight in (True, False):
        monkeypatch.setattr(
            openvino_engine, "multiplies_eight_bits", lambda is_eight=is_eight: is_eight
        )
        engine, _ = load_engine(path, "cpu", keeps_graphs=False)
        assert isinstance(engine, OpenVinoEngine)
        found.append(answer(engine, image))
    (masks, iou), (own_masks, own_iou) = found
    best = int(own_iou.argmax())
    overlap = (
        2 * (masks[best] & own_masks[best]).sum() / (masks[best].sum() + own_masks[best].sum())
    )
    assert overlap > 0.97
    assert not np.array_equal(masks, own_masks)  # so the bits were used
    np.testing.assert_allclose(iou, own_iou, atol=0.05)
