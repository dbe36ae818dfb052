"""Blocks that are computed again need less memory and give the same gradients."""

from typing import Any

import pytest
import torch
from pumit.errors import PumitError
from pumit.networks.build import build_network
from pumit.training.loop.sharding import clip_gradients, recomputed, repeated_blocks
from torch import Tensor, nn

SIZES: dict[str, Any] = {"dim": 16, "depth": 3, "num_heads": 2, "hidden": 24}


def masked_image_model() -> nn.Module:
    torch.manual_seed(0)
    table = (1, 2, 2)
    return build_network("pumit_vit_b_mim", **SIZES, position_table=table, num_tokens=8)


def scored(network: nn.Module) -> Tensor:
    tokens = torch.randn(2, 64, 16, generator=torch.Generator().manual_seed(1))
    features, _ = network.vit.transform(tokens, (4, 4, 4))
    return features.tokens.float().square().mean()


def gradients(network: nn.Module, *, enabled: bool) -> tuple[dict[str, Tensor], int]:
    """Gradients, and how many bytes beyond the weights were remembered for them."""
    weights = {p.data_ptr() for p in network.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with recomputed(network, enabled=enabled):
        with hooks:
            loss = scored(network)
        remembered = sum(size for place, size in kept.items() if place not in weights)
        loss.backward()
    found = {k: p.grad for k, p in network.named_parameters() if p.grad is not None}
    network.zero_grad(set_to_none=True)
    return found, remembered


@pytest.mark.parametrize("is_half", [False, True])
def test_gradients_are_the_same_with_less_in_memory(is_half):
    network = masked_image_model()
    with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
        plain, much = gradients(network, enabled=False)
        again, little = gradients(network, enabled=True)
    assert little < 0.5 * much
    torch.testing.assert_close(again, plain, rtol=0, atol=0)


def test_the_network_is_its_own_afterwards():
    """Also where something fails."""
    network = masked_image_model()
    names = list(network.state_dict())

    def fail() -> None:
        with recomputed(network, enabled=True):
            assert list(network.state_dict()) == names
            assert all("forward" in vars(block) for block in repeated_blocks(network))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not any("forward" in vars(block) for block in repeated_blocks(network))


def test_a_network_without_blocks_is_reported_so():
    with pytest.raises(PumitError, match="none"), recomputed(nn.Linear(2, 2), enabled=True):
        pass


def test_the_blocks_of_every_transformer_are_found():
    assert len(repeated_blocks(masked_image_model())) == 3
    sizes = {**SIZES, "depth": 4, "taps": (1, 2, 3, 4), "detail_widths": (4, 4)}
    sizes |= {"pyramid_widths": (4, 4, 4, 4), "position_table": (1, 1, 1)}
    assert len(repeated_blocks(build_network("pumit_segmentation_btcv", **sizes))) == 4


@pytest.mark.parametrize(("largest", "expected"), [(1.0, 1.0), (100.0, 5.0), (0.0, 5.0)])
def test_gradients_are_clipped_where_it_is_requested(largest, expected):
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.grad = torch.tensor([[3.0, 4.0]])
    assert float(clip_gradients(layer, largest)) == pytest.approx(5.0)
    assert float(layer.weight.grad.norm()) == pytest.approx(expected, rel=1e-4)
