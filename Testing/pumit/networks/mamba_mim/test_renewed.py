"""Weights of HyMamba from PUMIT 0.2 and before answer as they did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from mamba_networks import HYMAMBA
from pumit.inference.loading import build_from
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.networks.build import build_network
from torch import Tensor


def of_before(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same answers in the layout of before: scales, no biases, and what nothing reads."""
    torch.manual_seed(1)
    old = {}
    for key, value in state.items():
        is_new = key.startswith(("encoder.stem.", "encoder.skips.")) and "norm" not in key
        if not (is_new and key.endswith("bias")):
            old[key] = value
    for key in [k for k in old if k.endswith(".contract.weight")]:
        block = key.removesuffix(".contract.weight")
        scale = 0.5 + torch.rand(len(old[key]))
        old[key] = old[key] / scale[:, None]
        old[f"{block}.contract.bias"] = old[f"{block}.contract.bias"] / scale
        old[f"{block}.scale"] = scale
    return {**old, "unused.fixed_positions": torch.zeros(12)}


@pytest.mark.parametrize("sizes", [HYMAMBA, {**HYMAMBA, "unused": {"fixed positions": 12}}])
def test_an_earlier_checkpoint_answers_as_it_did(tmp_path: Path, sizes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    sizes = {**sizes, "num_classes": 3}
    plain = {k: v for k, v in sizes.items() if k != "unused"}
    network = build_network("hymamba", **plain, last_norm="instance").eval()
    with torch.no_grad():
        for key, p in network.named_parameters():
            is_new = key.startswith(("encoder.stem.", "encoder.skips.")) and "norm" not in key
            torch.nn.init.zeros_(p) if is_new and key.endswith("bias") else p.add_(0.01)
    path = tmp_path / "old.safetensors"
    save_checkpoint(path, of_before(network.state_dict()), {"network": "hymamba", "sizes": sizes})

    found = build_from(load_checkpoint(path), path, torch.device("cpu"))

    x = torch.randn(1, 1, 32, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(found(x), network(x), rtol=1e-4, atol=1e-5)


def test_weights_of_now_are_left_as_they_are(tmp_path: Path) -> None:
    network = build_network("hymamba", **HYMAMBA)
    path = tmp_path / "new.safetensors"
    recipe = {"network": "hymamba", "sizes": {**HYMAMBA, "last_norm": "layer"}}
    save_checkpoint(path, network.state_dict(), recipe)
    state = load_checkpoint(path).state
    assert state.keys() == network.state_dict().keys()
    assert all(torch.equal(v, state[k]) for k, v in network.state_dict().items())
