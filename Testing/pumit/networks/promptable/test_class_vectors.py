"""Class vectors tell structures apart before a click, and old weights continue with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from pumit.networks.build import build_network
from pumit.networks.promptable.constants import CLASS_MAPS, NEGATIVE, NO_LABEL, POSITIVE
from pumit.networks.promptable.growth import with_class_path
from pumit.networks.promptable.network import CLASS_SCALE, PromptableNetwork
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy
from torch import Tensor

SIZES = {"widths": (8, 8, 16), "dim": 48, "depth": 1, "num_heads": 4, "field_size": 16}
CLASSES = {"class_channels": 6, "num_classes": 5}
Build = Callable[..., tuple[Tensor, PromptBatch]]


def network_with(**sizes: object) -> PromptableNetwork:
    torch.manual_seed(0)
    network = build_network("promptable", **SIZES, **sizes)
    assert isinstance(network, PromptableNetwork)
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


def test_class_vectors_have_length_one_and_logits_are_cosines(field_batch):
    network = network_with(geodesic=True, **CLASSES)
    image, _ = field_batch(1)
    with torch.no_grad():
        embedding = network.embed(image, Anisotropy(1))
        logits = network.class_logits(embedding)
    assert embedding.classes.shape == (2, 6, *embedding.half.shape[2:])
    torch.testing.assert_close(
        embedding.classes.norm(dim=1), torch.ones_like(embedding.classes[:, 0])
    )
    assert logits.shape == (2, 5, *embedding.half.shape[2:])
    assert float(logits.abs().max()) <= CLASS_SCALE * (1 + 1e-5)


def test_a_network_without_classes_says_so(field_batch):
    network = network_with(geodesic=True)
    image, _ = field_batch(1)
    with pytest.raises(ValueError, match="classes"):
        network.class_logits(network.embed(image, Anisotropy(1)))


@pytest.mark.parametrize("label", [POSITIVE, NEGATIVE])
def test_the_map_of_a_point_is_the_cosine_with_the_class_there(field_batch, label):
    """One point in the middle of a voxel of the maps, so that nothing is interpolated."""
    network = network_with(geodesic=True, **CLASSES)
    image, prompts = field_batch(0, 16)
    embedding = network.embed(image, Anisotropy(0))
    assert embedding.classes is not None
    points = torch.full((2, 1, 3), 8.5) * torch.tensor([1.3, 1, 1])  # between voxels 8 and 9
    prompts = replace(prompts, points=points, labels=torch.full((2, 1), label))
    maps = network.prompt_encoder.dense(prompts, embedding)[:, -CLASS_MAPS:]
    vector = embedding.classes[:, :, 4, 4, 4]
    expected = torch.einsum("be,bedhw->bdhw", vector, embedding.classes)
    index = 0 if label == POSITIVE else 1
    torch.testing.assert_close(maps[:, index], expected, atol=1e-4, rtol=1e-4)
    assert (maps[:, 1 - index] == 0).all()


def test_without_prompts_the_maps_are_empty(field_batch):
    network = network_with(geodesic=True, **CLASSES)
    image, prompts = field_batch(2)
    none = replace(
        prompts,
        labels=torch.full_like(prompts.labels, NO_LABEL),
        has_box=torch.zeros_like(prompts.has_box),
    )
    maps = network.prompt_encoder.dense(none, network.embed(image, Anisotropy(2)))
    assert (maps[:, -CLASS_MAPS:] == 0).all()


def test_the_map_of_a_box_is_higher_for_what_the_box_holds(field_batch):
    """Class vectors of two kinds, one inside the box and one around it."""
    network = network_with(geodesic=True, **CLASSES)
    image, prompts = field_batch(0, 16)
    embedding = network.embed(image, Anisotropy(0))
    assert embedding.classes is not None
    classes = torch.zeros_like(embedding.classes)
    classes[:, 0] = 1
    classes[:, 0, 2:6, 2:6, 2:6], classes[:, 1, 2:6, 2:6, 2:6] = 0, 1
    scale = torch.tensor([1.3, 1, 1])
    box = torch.stack((torch.full((3,), 4.0) * scale, torch.full((3,), 11.0) * scale))
    prompts = replace(prompts, boxes=box[None].expand(2, -1, -1))
    maps = network.prompt_encoder.dense(prompts, replace(embedding, classes=classes))
    of_box = maps[:, -1]
    inside = classes[:, 1] > 0
    assert float(of_box[inside].min()) > 0.9
    assert float(of_box[~inside].max()) < 0
