"""The layer where numbers stop being finite is named."""

from __future__ import annotations

import pytest
import torch
from pumit.training.loop.step import first_not_finite
from torch import nn


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def test_the_first_layer_is_named() -> None:
    net = network()
    nn.init.constant_(net[1][0].bias, torch.nan)
    assert first_not_finite(net, lambda: net(torch.zeros(1, 2))) == "1.0"


def test_sound_networks_and_other_failures_name_none() -> None:
    net = network()
    assert first_not_finite(net, lambda: net(torch.zeros(1, 2))) is None
    assert first_not_finite(net, lambda: net(torch.zeros(1, 3))) is None


def test_nothing_looks_on_afterwards() -> None:
    net, other = network(), network()
    assert first_not_finite(net, lambda: other(torch.full((1, 2), torch.nan))) is None
    for failing in (torch.full((1, 2), torch.nan), torch.zeros(1, 3)):
        first_not_finite(net, lambda failing=failing: net(failing))  # type: ignore[misc]
    assert net(torch.full((1, 2), torch.nan)).isnan().all()
    with pytest.raises(KeyError):
        first_not_finite(net, lambda: {}["no such error is hidden"])
    assert net(torch.full((1, 2), torch.nan)).isnan().all()
