"""Class vectors tell structures apart before a click, and old weights continue with them."""

from collections.abc import Callable

import pytest
import torch
from pumit.networks.build import build_network
from pumit.networks.promptable.growth import with_class_path
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy
from torch import Tensor

SIZES = {"widths": (8, 8, 16), "dim": 48, "depth": 1, "num_heads": 4, "field_size": 16}
CLASSES = {"class_channels": 6, "num_classes": 5}
Build = Callable[..., tuple[Tensor, PromptBatch]]


def network_with(**sizes: object) -> PromptableNetwork:
    torch.manual_seed(0)
    network = build_network("promptable", **SIZES, **sizes)
    return network.eval()


@pytest.mark.parametrize(("geodesic", "da0"), [(True, 2), (False, 5)])
def test_a_network_without_them_goes_on_as_it_is(field_batch, geodesic, da0):
    old = network_with(geodesic=geodesic)
    new = network_with(geodesic=geodesic, **CLASSES)
    new.load_state_dict(with_class_path(old.state_dict(), new))
    image, prompts = field_batch(da0)
    with torch.no_grad():
        torch.testing.assert_close(
            new(image, Anisotropy(da0), prompts), old(image, Anisotropy(da0), prompts)
        )


def test_weights_that_have_them_stay():
    network = network_with(geodesic=True, **CLASSES)
    state = network.state_dict()
    grown = with_class_path(state, network)
    assert grown.keys() == state.keys()
    assert all(grown[name] is state[name] for name in state)


def test_attention_by_directions_begins_anew_and_nothing_else():
    old = network_with(geodesic=True, **CLASSES)
    torch.nn.init.constant_(old.mask_decoder.blocks[0].to_image.q.weight, 1e3)
    new = network_with(geodesic=True, qk_norm=True, **CLASSES)
    before = old.state_dict()
    grown = with_class_path(before, new)
    new.load_state_dict(grown)
    anew = {name for name in grown if name not in before or grown[name] is not before[name]}
    assert len(anew) == 3 * (1 + 4) * len(new.mask_decoder.blocks)  # scale, q and k with biases
    assert all(name.startswith("mask_decoder.blocks.") for name in anew)
    assert float(grown["mask_decoder.blocks.0.to_image.q.weight"].max()) < 10


@pytest.mark.parametrize(("before", "after"), [(5, 9), (0, 9), (5, 0)])
def test_prototypes_of_other_classes_are_left_behind(before, after):
    network = network_with(geodesic=True, **{**CLASSES, "num_classes": before})
    other = network_with(geodesic=True, **{**CLASSES, "num_classes": after})
    other.load_state_dict(with_class_path(network.state_dict(), other))


def test_a_network_without_classes_says_so(field_batch):
    network = network_with(geodesic=True)
    image, _ = field_batch(1)
    with pytest.raises(ValueError, match="classes"):
        network.class_logits(network.embed(image, Anisotropy(1)))
