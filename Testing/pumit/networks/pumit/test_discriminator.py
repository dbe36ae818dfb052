"""Patch discriminator at tiny sizes."""

from collections.abc import Callable

import pytest
import torch
from pumit.networks.pumit import Anisotropy
from pumit.networks.pumit.tokenizer import PatchDiscriminator
from torch import Tensor, nn


@pytest.mark.parametrize("da", range(6))
def test_it_judges_patches_at_every_degree_and_gradients_reach_all_parameters(
    da: int, assert_gradients_reach_all: Callable[[nn.Module, Tensor], None]
) -> None:
    torch.manual_seed(0)
    network = PatchDiscriminator(in_channels=3, widths=(4, 8, 8), groups=2).double()
    depth = (16, 8, 4, 2, 1, 1)[da]
    x = torch.rand(2, 3, depth, 32, 48, requires_grad=True, dtype=torch.float64)

    logits = network(x, Anisotropy(da))

    assert logits.shape == (2, 1, (2, 2, 2, 2, 1, 1)[da], 4, 6)
    assert_gradients_reach_all(network, logits.square().mean())
    assert x.grad.abs().max() > 1e-12
