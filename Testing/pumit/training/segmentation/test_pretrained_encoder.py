"""A ViT of `pumit pretrain vit` begins the small networks in their own sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pumit.errors import CheckpointError
from pumit.models.checkpoint import save_checkpoint
from pumit.networks.build import build_network
from pumit.training.loop.initial_encoder import load_initial_encoder
from pumit.training.segmentation.initial_weights import load_initial_weights
from pumit.training.segmentation.networks import build_segmentation


@pytest.mark.parametrize("depth", [4, 16])
def test_it_begins_the_small_segmentation_network_and_classifier(
    depth: int, tmp_path: Path
) -> None:
    name = "pumit_vit_small_mim"
    state = build_network(name).state_dict()
    file = tmp_path / "vit.safetensors"
    save_checkpoint(file, state, {"name": "vit", "network": name})
    expected = state["vit.blocks.3.mlp.w1.weight"].half().float()
    segmentation = build_segmentation(
        "pumit_segmentation_small", {"num_classes": 3, "fixed_patch": (depth, 16, 16)}
    )
    load_initial_weights(segmentation, str(file))
    classifier = build_network("pumit_classifier_small")
    load_initial_encoder(classifier.vit, str(file))
    for network in (segmentation, classifier):
        got = network.vit.blocks[3].mlp.w1.weight.detach()
        torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-3)
        assert all(bool(p.isfinite().all()) for p in network.parameters())


def test_sizes_that_differ_are_told(tmp_path: Path) -> None:
    name = "pumit_vit_small_mim"
    file = tmp_path / "vit.safetensors"
    save_checkpoint(file, build_network(name).state_dict(), {"name": "vit", "network": name})
    smaller = build_network("pumit_classifier_small", dim=96, depth=4, num_heads=4, hidden=256)
    told = r"dim: 192, depth: 8, num_heads: 6, hidden: 512, fixed_patch of 16 voxels"
    with pytest.raises(CheckpointError, match=told):
        load_initial_encoder(smaller.vit, str(file))


def test_an_earlier_model_of_another_patch_names_its_own(tmp_path: Path) -> None:
    name = "pumit_segmentation_small"
    first, second = ({"num_classes": 3, "fixed_patch": (depth, 16, 16)} for depth in (8, 16))
    file = tmp_path / "first.safetensors"
    state = build_segmentation(name, first).state_dict()
    save_checkpoint(file, state, {"name": "first", "network": name, "sizes": first})
    with pytest.raises(CheckpointError, match=r"the same, there fixed_patch: \[8, 16, 16\]"):
        load_initial_weights(build_segmentation(name, second), str(file), sizes=second)


def test_weights_of_clicks_are_answered_with_the_network_that_takes_them() -> None:
    vit = build_network("pumit_segmentation_small", num_classes=2).vit
    with pytest.raises(CheckpointError, match="pumit_encoder_small, which can begin with it"):
        load_initial_encoder(vit, "default")
