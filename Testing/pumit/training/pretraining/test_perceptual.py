"""The perceptual loss sees what matters, whatever network it looks through."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from pumit.errors import PumitError
from pumit.networks.pumit import Anisotropy
from pumit.networks.vgg import STAGES, Vgg16Features
from pumit.training.pretraining import perceptual
from pumit.training.pretraining.perceptual import MAX_SLICES, PerceptualLoss, build_perceptual
from safetensors.torch import save_file
from scipy.ndimage import gaussian_filter
from torch import Tensor
from torch.nn import functional as F

ISOTROPIC = Anisotropy(0)
# torchvision's numbers of the convolutions, and those after which LPIPS looks.
CONVOLUTIONS = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
LAYERS = (2, 7, 14, 21, 28)


def scan(shape: tuple[int, int, int] = (8, 32, 32), channels: int = 3) -> Tensor:
    """Balls of several intensities, (1, channels, D, H, W), -1 to 1."""
    rng = np.random.default_rng(0)
    at = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), -1)
    image = np.zeros(shape, dtype=np.float32)
    for _ in range(12):
        centre, radius = rng.uniform(0, shape), rng.uniform(2, 8)
        image[((at - centre) ** 2).sum(-1) < radius**2] = rng.uniform(0.2, 1)
    return (torch.from_numpy(image) * 2 - 1).expand(1, channels, *shape).clone()


def blurred(image: Tensor, sigma: float) -> Tensor:
    return torch.from_numpy(gaussian_filter(image.numpy(), (0, 0, 0, sigma, sigma)))


@pytest.fixture(scope="module")
def vgg_state() -> dict[str, Tensor]:
    """Weights of VGG16's shapes under torchvision's names, with a classifier."""
    torch.manual_seed(0)
    own = Vgg16Features().state_dict()
    return {f"features.{k}": v for k, v in own.items()} | {"classifier.6.bias": torch.zeros(1000)}


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch, vgg_state: dict[str, Tensor]) -> dict[str, Any]:
    """Stands in for torchvision; holds how the weights were requested."""
    options: dict[str, Any] = {}

    def get_state_dict(**arguments: Any) -> dict[str, Tensor]:
        options.update(arguments)
        return vgg_state

    package, models = ModuleType("torchvision"), ModuleType("torchvision.models")
    entry = SimpleNamespace(get_state_dict=get_state_dict)
    models.VGG16_Weights = SimpleNamespace(IMAGENET1K_V1=entry)
    package.models = models
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    return options


@pytest.fixture(params=["vgg16", "default"])
def loss(request: pytest.FixtureRequest, torchvision: dict[str, Any]) -> PerceptualLoss:
    return build_perceptual(request.param, "cpu")


def test_it_grows_with_blur_and_moves_nothing_but_the_reconstruction(loss):
    image = scan((4, 24, 24))
    assert float(loss(image, image.clone(), ISOTROPIC)) == 0
    found = [float(loss(blurred(image, s), image, ISOTROPIC)) for s in (0.5, 1, 4)]
    assert found == sorted(found)
    assert found[0] > 0
    given = blurred(image, 1).requires_grad_()
    loss(given, image, ISOTROPIC).backward()
    assert torch.isfinite(given.grad).all()
    assert (given.grad != 0).float().mean() > 0.5
    assert not any(p.requires_grad for p in loss.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        half = loss(blurred(image, 1).bfloat16(), image, ISOTROPIC)
    assert half.dtype == torch.float32
    assert float(half) == pytest.approx(found[1], rel=0.1)
    with pytest.raises(ValueError, match="two images"):
        loss(image, scan((8, 16, 16)), ISOTROPIC)


@pytest.mark.parametrize("da0", [3, 5])
def test_every_degree_of_anisotropy_is_compared(loss, da0):
    depth = Anisotropy(da0).depth_at(16)
    image = scan((depth, 32, 32), channels=1)
    assert 0 < float(loss(blurred(image, 1), image, Anisotropy(da0))) < 10


def touched(loss: PerceptualLoss, depth: int, seed: int = 0) -> tuple[float, int]:
    """The loss of a blurred scan, and how many of its slices it depends on."""
    image = scan((depth, 16, 16))
    given = blurred(image, 1).requires_grad_()
    value = loss(given, image, ISOTROPIC, torch.Generator().manual_seed(seed))
    (gradient,) = torch.autograd.grad(value, given)
    return float(value.detach()), int((gradient != 0).flatten(3).any(3).flatten(0, 1).any(0).sum())


def test_at_most_so_many_slices_are_inspected(loss, monkeypatch):
    value, slices = touched(loss, MAX_SLICES + 8)
    assert slices <= MAX_SLICES
    assert touched(loss, MAX_SLICES + 8)[0] == value
    assert touched(loss, MAX_SLICES + 8, seed=1)[0] != value
    monkeypatch.setattr(perceptual, "MAX_SLICES", 5)
    fewer = build_perceptual("default", "cpu")
    assert touched(fewer, 16)[1] == 4  # a multiple of the four slices that become one


# --- VGG16 and LPIPS ------------------------------------------------------------------------------


def lpips(state: dict[str, Tensor], linear: list[Tensor], x: Tensor, y: Tensor) -> float:
    """The published formula for slices (n, 3, H, W) in -1..1, in double precision."""
    mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64).reshape(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64).reshape(1, 3, 1, 1)
    total, layer = 0.0, 0
    a, b = ((((v.double() + 1) / 2) - mean) / std for v in (x, y))
    for number in CONVOLUTIONS:
        if number in (5, 10, 17, 24):
            a, b = F.max_pool2d(a, 2), F.max_pool2d(b, 2)
        weight, bias = (state[f"features.{number}.{k}"].double() for k in ("weight", "bias"))
        a, b = (F.relu(F.conv2d(v, weight, bias, padding=1)) for v in (a, b))
        if number in LAYERS:
            unit_a, unit_b = (v / v.square().sum(1, keepdim=True).sqrt() for v in (a, b))
            squared = (unit_a - unit_b).square()
            total += float(F.conv2d(squared, linear[layer].double()).mean())
            layer += 1
    return total


@pytest.mark.parametrize("is_linear_given", [False, True])
def test_vgg16_gives_twice_the_published_lpips(vgg_state, torchvision, tmp_path, is_linear_given):
    widths = [stage[-1] for stage in STAGES]
    linear, weights = [torch.ones(1, n, 1, 1) for n in widths], None
    if is_linear_given:
        linear = [torch.rand(1, n, 1, 1) for n in widths]
        weights = str(tmp_path / "lpips.safetensors")
        save_file({f"lin{i}.model.1.weight": w for i, w in enumerate(linear)}, weights)
    loss = build_perceptual("vgg16", "cpu", weights=weights)
    image = scan((3, 32, 32))
    given = blurred(image, 1)
    expected = 2 * lpips(vgg_state, linear, given[0].movedim(1, 0), image[0].movedim(1, 0))
    assert float(loss(given, image, ISOTROPIC)) == pytest.approx(expected, rel=1e-4)
    assert sum(p.numel() for p in Vgg16Features().parameters()) == 14_714_688
    # Only tensors, and only those that were published, are taken from torchvision.
    assert torchvision == {"progress": False, "check_hash": True, "weights_only": True}


def test_vgg16_needs_no_torchvision_where_its_file_is_given(vgg_state, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    file = tmp_path / "model.safetensors"
    save_file({k: v.half() for k, v in vgg_state.items()}, file)
    loss = build_perceptual("vgg16", "cpu", weights=str(file))
    kept = loss.state_dict()["features.28.weight"]
    torch.testing.assert_close(kept, vgg_state["features.28.weight"].half().float())


# --- The stem of the model that ships -------------------------------------------------------------


def test_the_stem_sees_a_missing_slice_more_than_a_little_noise():
    """In 3D: what is lost along depth counts too."""
    loss = build_perceptual("default", "cpu")
    image = scan((8, 32, 32))
    noisy = image + 0.01 * torch.randn(image.shape, generator=torch.Generator().manual_seed(0))
    swapped = image.flip(2)
    assert loss(swapped, image, ISOTROPIC) > 2 * loss(noisy, image, ISOTROPIC)
    odd = scan((8, 30, 32))
    with pytest.raises(PumitError, match="multiple of"):
        loss(odd, odd, ISOTROPIC)


# --- Choices --------------------------------------------------------------------------------------


def message(*arguments: Any, **named: Any) -> str:
    with pytest.raises(PumitError) as error:
        build_perceptual(*arguments, **named)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_an_unknown_choice_and_an_absent_torchvision_are_one_line(monkeypatch):
    assert "'vgg'" in message("vgg", "cpu")
    assert "vgg16, default, none" in message("vgg", "cpu")
    assert build_perceptual("none", "cpu") is None
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    text = message("vgg16", "cpu")
    assert "not installed" in text
    assert "default or none" in text

    def broken(name: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("pumit.training.pretraining.perceptual.import_module", broken)
    assert "does not fit this PyTorch" in message("vgg16", "cpu")


def test_weights_that_cannot_be_fetched_are_one_line(torchvision, monkeypatch):
    def unreachable(**arguments: Any) -> None:
        raise URLError("no route to host")

    entry = sys.modules["torchvision.models"].VGG16_Weights.IMAGENET1K_V1
    monkeypatch.setattr(entry, "get_state_dict", unreachable)
    assert "check the network" in message("vgg16", "cpu")


def test_weights_of_another_network_are_one_line(tmp_path, torchvision):
    file = tmp_path / "other.safetensors"
    save_file({"blocks.0.weight": torch.zeros(2)}, file)
    assert "neither" in message("vgg16", "cpu", weights=str(file))
    save_file({"features.0.weight": torch.zeros(2)}, file)
    assert "not the weights of VGG16" in message("vgg16", "cpu", weights=str(file))
    save_file({"lin0.model.1.weight": torch.zeros(1, 64, 1, 1)}, file)
    assert "linear layers" in message("vgg16", "cpu", weights=str(file))
