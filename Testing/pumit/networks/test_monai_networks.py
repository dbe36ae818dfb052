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


def test_the_u_net_takes_fields_of_any_size() -> None:
    assert small("basic_unet")(torch.randn(1, 2, 17, 40, 33)).shape == (1, 3, 17, 40, 33)
    assert small("basic_unet")(torch.randn(1, 2, 16, 16, 16)).shape == (1, 3, 16, 16, 16)


def test_the_u_net_sees_every_slice_as_an_image_of_its_own() -> None:
    torch.manual_seed(0)
    network = build_network("basic_unet", spatial_dims=2, num_classes=3, **SMALL["basic_unet"])
    assert network.stride == (1, 16, 16)
    x = torch.randn(2, 1, 3, 40, 33)
    together = network.eval()(x)
    alone = network(x[:, :, 1:2])
    assert together.shape == (2, 3, 3, 40, 33)
    torch.testing.assert_close(together[:, :, 1:2], alone)


@pytest.mark.parametrize(("size", "channels"), [((8, 32, 32), 2), ((32, 32, 32), 1)])
def test_fields_and_channels_that_do_not_fit_are_refused(
    size: tuple[int, int, int], channels: int
) -> None:
    with pytest.raises(PumitError, match=r"smaller than the 16 x 16 x 16|reads 2 image channels"):
        small("basic_unet")(torch.zeros(1, channels, *size))


@pytest.mark.parametrize("wrong", [{"num_classes": 0}, {"spatial_dims": 4}])
def test_sizes_that_make_no_u_net_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(PumitError, match="Cannot build 'basic_unet'"):
        build_network("basic_unet", **wrong)
