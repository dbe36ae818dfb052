"""The engine without PyTorch gives what the network in PyTorch gives."""

import numpy as np
import pytest
import torch
from pumit.inference.engine.engine import FieldPrompts
from pumit.inference.engine.openvino_engine import OpenVinoEngine, sizes_of
from pumit.inference.engine.prompt_maps import MapGrid, prompt_maps
from pumit.inference.engine.torch_engine import TorchEngine, prompt_batch
from pumit.networks.build import build_network
from pumit.preprocessing.fields import field_shape

# Single precision, summed in another order.
LOGIT_TOLERANCE = 2e-3


def prompts_of(
    kind: str, shape: tuple[int, int, int], ratio: float, rng: np.random.Generator
) -> FieldPrompts:
    scale = np.array([ratio, 1, 1])
    count = {"one click": 1, "clicks": 4, "box": 0, "box and clicks": 3, "nothing": 0}[kind]
    points = (rng.random((count, 3)) * (np.array(shape) - 1) * scale).astype(np.float32)
    is_positive = np.arange(count) % 2 == (1 if kind == "box and clicks" else 0)
    box = None
    if "box" in kind:
        corners = np.array([[0.2, 0.25, 0.3], [0.7, 0.6, 0.8]]) * (np.array(shape) - 1) * scale
        box = corners.astype(np.float32)
    prior = rng.random(shape).astype(np.float32) if "clicks" in kind else None
    return FieldPrompts(points, is_positive, box, prior, ratio)


def both_engines(**sizes: object) -> tuple[TorchEngine, OpenVinoEngine]:
    torch.manual_seed(3)
    network = build_network("promptable", **sizes)
    for parameter in network.parameters():  # nothing at zero, where a lost part would not show
        with torch.no_grad():
            parameter.add_(0.05 * torch.randn_like(parameter))
    weights = {k: v.numpy().astype(np.float32) for k, v in network.state_dict().items()}
    recipe = {"network": "promptable", "sizes": sizes}
    engine = TorchEngine(network.eval(), torch.device("cpu"), torch.float32)
    return engine, OpenVinoEngine(weights, sizes_of(recipe), threads=1)


SMALL = {"widths": (8, 16, 16), "dim": 48, "depth": 2, "num_heads": 4, "field_size": 16}


VARIANTS = {
    "plain": {"geodesic": False},
    "geodesic": {"geodesic": True},
    "classes": {"geodesic": True, "class_channels": 6, "num_classes": 5, "qk_norm": True},
}


@pytest.fixture(scope="module")
def engines(request: pytest.FixtureRequest) -> tuple[TorchEngine, OpenVinoEngine]:
    return both_engines(**SMALL, **VARIANTS[request.param])


# Every degree; the variant changes nothing in what depends on it.
CASES = [("plain", 0), ("geodesic", 2), *(("classes", da0) for da0 in (1, 3, 4, 5))]


@pytest.mark.parametrize(("engines", "da0"), CASES, indirect=["engines"])
def test_masks_and_estimates_agree_at_every_degree(engines, da0, rng):
    depth, size, _ = field_shape(da0, 24)
    shape = (depth // max(8 >> da0, 1) * max(8 >> da0, 1), size, size)
    image = rng.random((3, *shape)).astype(np.float32)
    ratio = 0.0 if da0 == 5 else 1.3 * 2**da0
    seen = [engine.encode(image, da0=da0, slice_ratio=ratio) for engine in engines]
    for kind in ("one click", "clicks", "box", "box and clicks", "nothing"):
        prompts = prompts_of(kind, shape, ratio, rng)
        (logits, iou), (own_logits, own_iou) = (
            engine.decode(features, prompts) for engine, features in zip(engines, seen, strict=True)
        )
        assert own_logits.shape == logits.shape == (4, *shape)
        tolerance = LOGIT_TOLERANCE * np.abs(logits).max()
        np.testing.assert_allclose(own_logits, logits, atol=tolerance, err_msg=kind)
        np.testing.assert_allclose(own_iou, iou, atol=2e-4, err_msg=kind)


@pytest.mark.parametrize(
    ("engines", "da0"), [("plain", 0), ("geodesic", 2), ("classes", 5)], indirect=["engines"]
)
def test_prompt_maps_are_those_of_the_network(engines, da0, rng):
    """Each map by itself: in an answer a small one would drown."""
    encoder = engines[0].network.prompt_encoder
    depth, size, _ = field_shape(da0, 24)
    image = rng.random((3, depth, size, size)).astype(np.float32)
    ratio = 0.0 if da0 == 5 else float(2**da0)
    features = engines[0].encode(image, da0=da0, slice_ratio=ratio)
    classes = features.classes
    vectors = None if classes is None else classes[0].numpy()
    for kind in ("clicks", "box", "box and clicks"):
        prompts = prompts_of(kind, image.shape[1:], ratio, rng)
        batch = prompt_batch(prompts, image.shape[1:])
        expected = encoder.dense(batch, features)[0].detach().numpy()
        grid = MapGrid.of(image[:2], expected.shape[1:], ratio, geodesic=encoder.geodesic)
        for own, reference in zip(prompt_maps(prompts, grid, 16, vectors), expected, strict=True):
            np.testing.assert_allclose(own, reference, atol=1e-4, err_msg=kind)


def test_a_gpu_computes_clicks_in_single_precision():
    network = build_network("promptable", **SMALL, **VARIANTS["plain"])
    assert TorchEngine(network, torch.device("cuda")).precision == torch.float32
