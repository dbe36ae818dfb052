"""Adapters begin as nothing, train only what they shall, and merge into the weights."""

import copy

import pytest
import torch
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.pumit import Anisotropy
from pumit.training.promptable.lora import LowRankLinear, add_adapters, merge_adapters
from torch import Tensor, nn


@pytest.fixture
def field() -> Tensor:
    return torch.rand(1, 3, 16, 16, 16, generator=torch.Generator().manual_seed(0))


def embedded(network: PromptableNetwork, field: Tensor) -> Tensor:
    with torch.no_grad():
        return network.embed(field, Anisotropy(0)).tokens


def disturb(network: nn.Module) -> None:
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("adapter_up"):
                parameter.normal_(0, 0.1)


def test_adapted_layers_begin_as_they_were(tiny_network, field):
    before = embedded(tiny_network, field)
    count = add_adapters(tiny_network.image_encoder, 2)
    assert count == 7  # q, k, v, proj, w1, w2, w3 of the one block
    torch.testing.assert_close(embedded(tiny_network, field), before)
    # Only they are trained.
    trained = {n for n, p in tiny_network.image_encoder.named_parameters() if p.requires_grad}
    assert trained
    assert all("adapter_" in name for name in trained)
    assert all(p.requires_grad for p in tiny_network.mask_decoder.parameters())


def test_merged_weights_compute_the_same_in_the_network_without_adapters(tiny_network, field):
    names, plain = set(tiny_network.state_dict()), copy.deepcopy(tiny_network)
    assert merge_adapters(plain.state_dict()).keys() == names  # there are none
    before = embedded(tiny_network, field)
    add_adapters(tiny_network.image_encoder, 2)
    disturb(tiny_network)
    after = embedded(tiny_network, field)
    assert (after - before).abs().max() > 1e-3
    state = merge_adapters(tiny_network.state_dict())
    assert set(state) == names
    plain.load_state_dict(state)
    torch.testing.assert_close(embedded(plain, field), after, rtol=1e-4, atol=1e-5)


def test_a_layer_in_a_sequence_is_adapted_too():
    network = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))
    assert add_adapters(network, 1) == 2
    assert isinstance(network[2], LowRankLinear)
    network(torch.ones(1, 4)).sum().backward()
    assert network[2].adapter_up.grad is not None
    assert network[2].layer.weight.grad is None
