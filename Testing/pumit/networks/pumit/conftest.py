"""Checks shared by the tests of networks."""

from collections.abc import Callable

import pytest
from torch import Tensor, nn


@pytest.fixture
def assert_gradients_reach_all() -> Callable[[nn.Module, Tensor], None]:
    """Back-propagate a loss and require a gradient above rounding error in every parameter.

    The network is in double precision: a fresh transformer's query biases have gradients that
    single precision could not tell from rounding.
    """

    def check(network: nn.Module, loss: Tensor) -> None:
        loss.backward()
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 1e-12, name

    return check
