"""Automatic models that begin with the encoder of the click network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from family_runs import TINY
from labelled_scans import write_pairs
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.checkpoint import load_checkpoint
from pumit.models.index import find_model
from pumit.networks.build import build_network
from pumit.networks.promptable import segmentation
from pumit.networks.promptable.segmentation import EncodedSegmentation, encoder_channels
from pumit.preprocessing import intensity
from pumit.preprocessing.intensity import field_channels
from pumit.training.segmentation.initial_weights import load_initial_weights
from pumit.training.segmentation.networks import fitted_sizes
from pumit.training.train import finetune


def test_the_encoder_sees_a_field_as_it_does_for_clicks() -> None:
    assert (segmentation.BINS, segmentation.CLIP) == (intensity.BINS, intensity.CLIP)
    torch.manual_seed(0)
    x = torch.randn(2, 1, 6, 20, 24) ** 3
    ours = encoder_channels(x)
    for one, field in zip(ours, x, strict=True):
        theirs = field_channels(field[0].numpy(), np.ones(field.shape[1:], np.float32))
        np.testing.assert_allclose(one.numpy(), theirs, atol=1e-4)


@pytest.mark.parametrize(("da0", "size"), [(0, (16, 24, 16)), (2, (5, 17, 24)), (5, (1, 16, 16))])
@pytest.mark.parametrize("channels", [1, 2])
def test_gradients_reach_all_at_any_degree(
    da0: int, size: tuple[int, int, int], channels: int
) -> None:
    network = build_network(
        "pumit_encoder_small", **TINY["pumit_encoder_small"], da0=da0, in_channels=channels,
        num_classes=3,
    )  # fmt: skip
    levels = network(torch.randn(2, channels, *size), deep_supervision=True)
    assert levels[0].shape == (2, 3, *size)
    assert len(levels) == 3
    sum(level.square().mean() for level in levels).backward()
    missing = [name for name, p in network.named_parameters() if p.grad is None]
    assert not missing


def test_the_degree_follows_from_spacing_and_slices() -> None:
    name = "pumit_encoder_small"
    assert fitted_sizes(name, {}, (1.0, 1.0, 1.0), depth=64) == {"da0": 0}
    assert fitted_sizes(name, {}, (5.0, 1.0, 1.0), depth=20) == {"da0": 2}
    assert fitted_sizes(name, {}, (1.0, 1.0, 1.0), depth=3) == {"da0": 2}
    assert fitted_sizes(name, {}, (1e8, 1.0, 1.0), depth=1) == {"da0": 5}


def test_default_gives_its_encoder() -> None:
    network = build_network("pumit_encoder_small", num_classes=4)
    assert isinstance(network, EncodedSegmentation)
    load_initial_weights(network, "default")
    theirs = load_checkpoint(find_model("default")).state
    for name, value in network.encoder.state_dict().items():
        assert torch.equal(value, theirs[f"image_encoder.{name}"].float()), name


@pytest.mark.slow
def test_two_steps_from_default_give_a_model_that_segments(tmp_path: Path) -> None:
    write_pairs(tmp_path / "set", 3)
    recipe: dict[str, Any] = {
        "task": "segmentation",
        "name": "made",
        "network": "pumit_encoder_small",
        "initial": "default",
        "register": False,
        "device": "cpu",
        "threads": 1,
        "augmentation": False,
        "data": {"folder": "set", "classes": {"ball": 1, "box": 2}, "validation": ["case_0"]},
        "plan": {"step_voxels": 1 << 14, "batch_size": 2},
        "validation": {"overlap": 0.0, "final_overlap": 0.0},
        "schedule": {"steps": 2, "log_every": 1},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    model = finetune(path, tmp_path / "out")
    log = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in log if "loss" in row] == [1, 2]
    assert load_automatic(model, "cpu").name == "made"
    assert "default" in (tmp_path / "out" / "card.md").read_text()
