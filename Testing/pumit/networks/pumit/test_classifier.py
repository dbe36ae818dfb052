"""Classifier at tiny sizes."""

from collections.abc import Callable

import torch
from pumit.networks.pumit.vit import VitClassifier
from torch import Tensor, nn


def test_it_classifies_and_gradients_reach_all_parameters(
    assert_gradients_reach_all: Callable[[nn.Module, Tensor], None],
) -> None:
    torch.manual_seed(0)
    network = VitClassifier(
        num_classes=5,
        in_channels=3,
        dim=16,
        depth=2,
        num_heads=2,
        hidden=24,
        position_table=(2, 2, 2),
        fixed_patch=(8, 8, 8),
    ).double()

    logits = network(torch.rand(4, 3, 16, 24, 16, dtype=torch.float64))

    assert logits.shape == (4, 5)
    assert_gradients_reach_all(network, logits.logsumexp(1).sum())
