"""The plain U-Net: fields of any size, slices, and what is refused."""

from typing import Any

import pytest
import torch
from pumit.errors import PumitError
from pumit.networks.build import build_network
from torch import nn


def tiny(**changes: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"in_channels": 2, "num_classes": 3, "features": (4, 4, 4, 4, 4, 4), **changes}
    return build_network("basic_unet", **sizes)


@pytest.mark.parametrize("size", [(17, 20, 33), (16, 16, 16)])
def test_logits_lie_on_the_images_grid_and_gradients_reach_all(size):
    network = tiny()
    logits = network(torch.randn(1, 2, *size))
    assert logits.shape == (1, 3, *size)
    logits.square().mean().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_every_slice_is_an_image_of_its_own_in_two_dimensions():
    network = tiny(spatial_dims=2).eval()
    assert network.stride == (1, 16, 16)
    x = torch.randn(2, 2, 3, 40, 33)
    together = network(x)
    assert together.shape == (2, 3, 3, 40, 33)
    torch.testing.assert_close(together[:, :, 1:2], network(x[:, :, 1:2]))


@pytest.mark.parametrize(("size", "channels"), [((8, 32, 32), 2), ((32, 32, 32), 1)])
def test_fields_and_channels_that_do_not_fit_are_refused(size, channels):
    with pytest.raises(PumitError, match=r"smaller than the 16 x 16 x 16|reads 2 image channels"):
        tiny()(torch.zeros(1, channels, *size))


@pytest.mark.parametrize("wrong", [{"num_classes": 0}, {"spatial_dims": 4}])
def test_sizes_that_make_no_u_net_are_refused(wrong):
    with pytest.raises(PumitError, match="Cannot build 'basic_unet'"):
        tiny(**wrong)
