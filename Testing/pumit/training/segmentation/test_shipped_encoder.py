"""The pre-trained ViT that ships begins the small networks, and was trained with the tokenizer."""

from __future__ import annotations

import pytest
import torch
from pumit.models.checkpoint import load_checkpoint, read_recipe
from pumit.models.index import find_model
from pumit.networks.build import build_network
from pumit.training.loop.initial_encoder import begin_with_encoder
from pumit.training.segmentation.initial_weights import begin_with
from pumit.training.segmentation.networks import build_segmentation


@pytest.mark.parametrize("depth", [4, 16])
def test_it_begins_the_small_segmentation_network_and_classifier(depth: int) -> None:
    shipped = load_checkpoint(find_model("vit")).state["vit.blocks.3.mlp.w1.weight"].float()
    segmentation = build_segmentation(
        "pumit_segmentation_small", {"num_classes": 3, "fixed_patch": (depth, 16, 16)}
    )
    begin_with(segmentation, "vit")
    classifier = build_network("pumit_classifier_small")
    begin_with_encoder(classifier.vit, "vit")
    for network in (segmentation, classifier):
        torch.testing.assert_close(network.vit.blocks[3].mlp.w1.weight.detach(), shipped)
        assert all(bool(p.isfinite().all()) for p in network.parameters())


def test_it_was_trained_with_the_tokenizer_that_ships() -> None:
    """By the weights' fingerprint: what a recipe says of them may be added to later."""
    recipe, _ = read_recipe(find_model("vit"))
    _, fingerprint = read_recipe(find_model("tokenizer"))
    assert recipe["tokenizer"]["sha256"] == fingerprint
