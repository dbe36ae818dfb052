"""OpenVINO gives PyTorch's numbers; networks that it cannot convert stay in PyTorch."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from family_runs import TINY
from known_networks import save_model, smooth_scan
from pumit.inference.automatic import openvino_network, segmentation
from pumit.inference.automatic.openvino_network import compiled, suits_openvino
from pumit.inference.automatic.segmentation import load_automatic
from pumit.networks.build import build_network
from torch import Tensor, nn

pytestmark = pytest.mark.usefixtures("known_networks")

SHAPE = (1, 2, 8, 16, 24)
CPU = torch.device("cpu")


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv3d(2, 8, 3, padding=1), nn.InstanceNorm3d(8, affine=True), nn.GELU())
    return nn.Sequential(*layers, nn.Conv3d(8, 3, 1)).eval()


class TwoScales(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> list[Tensor]:
        fine = self.inner(x)
        return [fine, nn.functional.avg_pool3d(fine, 2)]


class Untraceable(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if torch.jit.is_tracing():
            raise RuntimeError("as of an operation without a trace")
        return x


class Branching(nn.Module):
    """Depends on values in a way that a trace loses."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.min()) >= 0 else 2 * x


@pytest.mark.parametrize("has_scales", [False, True])
def test_numbers_are_those_of_the_network(has_scales):
    inner = network()
    whole = TwoScales(inner) if has_scales else inner
    found = compiled(whole, SHAPE)
    for seed in (1, 2):
        x = torch.randn(*SHAPE, generator=torch.Generator().manual_seed(seed))
        with torch.inference_mode():
            torch.testing.assert_close(found(x), inner(x), rtol=0, atol=1e-4)
        found.release()


@pytest.mark.parametrize("family", ["hymamba_small", "unetr_mamba_small", "pumit_encoder_small"])
def test_scans_and_biased_attention_can_be_traced(family):
    torch.manual_seed(0)
    whole = build_network(family, num_classes=3, **TINY[family]).eval()
    shape = (1, 1, 32, 32, 48)
    found = compiled(whole, shape)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = whole(x)
    torch.testing.assert_close(found(x), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("of", [Untraceable, Branching])
def test_what_cannot_be_converted_stays_in_pytorch(of):
    assert compiled(of(), SHAPE) is None


def test_only_single_precision_on_x86_is_compiled(monkeypatch):
    monkeypatch.setattr(openvino_network.platform, "machine", lambda: "AMD64")
    monkeypatch.delenv("PUMIT_ENGINE", raising=False)
    assert suits_openvino(CPU, torch.float32)
    assert not suits_openvino(CPU, torch.bfloat16)
    assert not suits_openvino(torch.device("meta"), torch.float32)
    monkeypatch.setenv("PUMIT_ENGINE", "torch")
    assert not suits_openvino(CPU, torch.float32)
    monkeypatch.delenv("PUMIT_ENGINE")
    monkeypatch.setattr(openvino_network.platform, "machine", lambda: "arm64")
    assert not suits_openvino(CPU, torch.float32)


def test_a_scan_of_many_windows_has_the_same_labels(tmp_path, monkeypatch):
    made: list[Any] = []

    def noted(network: nn.Module, shape: Any) -> Any:
        made.append(compiled(network, shape))
        assert made[-1] is not None
        return made[-1]

    monkeypatch.setattr(segmentation, "compiled", noted)
    monkeypatch.setattr(segmentation, "suits_openvino", lambda device, precision: True)
    model = load_automatic(save_model(tmp_path / "m.safetensors"), "cpu")
    model.precision = torch.float32
    volume = smooth_scan((20, 40, 40), (2.0, 1.0, 1.0))
    expected = replace(model, is_final=False).segment(volume, overlap=0.75)
    assert not made
    for _ in range(2):
        found = model.segment(volume, overlap=0.75)
        assert np.mean(found.labels != expected.labels) < 1e-3
    assert len(made) == 1
    monkeypatch.setattr(segmentation, "FEWEST_WINDOWS", 10**6)
    replace(model).segment(volume, overlap=0.75)
    assert len(made) == 1
