"""MONAI's networks as ours: sizes, names of the field."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pumit.errors import PumitError
from pumit.networks.build import build_network
from torch import nn

SMALL: dict[str, dict[str, Any]] = {
    "basic_unet": {"features": (4, 4, 4, 4, 4, 4)},
    "swin_unetr": {"feature_size": 12, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 2, 2)},
}


def small(name: str) -> nn.Module:
    torch.manual_seed(0)
    return build_network(name, in_channels=2, num_classes=3, **SMALL[name])


@pytest.mark.parametrize("name", SMALL)
def test_logits_lie_on_the_images_grid_and_gradients_reach_all(name: str) -> None:
    network = small(name)
    size = (32, 64, 32)
    logits = network(torch.randn(1, 2, *size))
    assert logits.shape == (1, 3, *size)
    logits.square().mean().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize("name", SMALL)
def test_images_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(PumitError, match="multiple of"):
        small(name)(torch.zeros(1, 2, 40, 32, 32))
