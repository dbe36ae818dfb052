"""Reconstructing hidden cells: what is seen, what is learned, published size and quirks."""

import pytest
import torch
from mim_networks import TINY, tiny_mim
from pumit.errors import PumitError
from pumit.networks.build import build_network
from pumit.networks.mamba_mim.mamba_mim import MambaMim
from pumit.networks.mamba_mim.masking import random_cells, stage_masks, tokens_to_map
from pumit.networks.mamba_mim.token_interpolation import QUIRKS, state_space_token_interpolation
from pumit.networks.mamba_mim.unetr_mamba import halvings
from torch import Tensor

NAMES = list(TINY)
GRID = (2, 2, 3)


def field_and_mask() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    visible = random_cells(2, GRID, ratio=0.75, generator=generator)
    return torch.randn(2, 1, 8, 32, 48, generator=generator), visible


@pytest.mark.parametrize("name", NAMES)
def test_it_returns_the_image_and_gradients_reach_all_parameters(name):
    network = tiny_mim(name).double()
    x, visible = field_and_mask()
    y = network(x.double(), visible)
    assert y.shape == x.shape
    y.square().mean().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 1e-12, key


@pytest.mark.parametrize("name", NAMES)
def test_what_lies_in_hidden_cells_changes_nothing(name):
    network = tiny_mim(name).eval()
    x, visible = field_and_mask()
    seen = stage_masks(visible, [network.stride])[0]
    with torch.no_grad():
        first = network(x, visible)
        second = network(torch.where(seen, x, 100 * torch.randn_like(x)), visible)
        third = network(torch.where(seen, x + 0.1, x), visible)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def count(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


UNREAD = {  # of the published network's 114,158,657 parameters
    "fixed positions, computed here": 216 * 384,
    "second direction of the Mamba layers": 4 * 768 * (5 + 56 + 25 + 16 + 1),
    "learned tokens of hidden places that are filled or not read": 384 + 384 + 64,
    "fusion in the first block, with its norms": 27 * (1536 + 768) * 768 + 4 * 768,
    "skip of the finest map": 2 * (27 * 64 * 64 + 64) + 4 * 64,
    "densification of the finest map": 27 * 64 * 48 + 48,
    "biases before batch norms, which take them off again": 2 * (768 + 384 + 192 + 96)
    + 2 * (384 + 192 + 96 + 48),
}


def test_the_published_network_has_its_published_size_of_what_is_read():
    with torch.device("meta"):
        network = build_network("mamba_mim")

    assert count(network) == 114_158_657 - sum(UNREAD.values())
    assert network.state_matrix.shape == (384, 384)
    visible = random_cells(2, (6, 6, 6), ratio=0.75)
    assert visible.flatten(1).sum(1).tolist() == [54, 54]


@pytest.mark.parametrize(
    ("mim", "network"), [("mamba_mim", "hymamba"), ("mamba_mim_unetr", "unetr_mamba")]
)
@pytest.mark.parametrize("suffix", ["", "_small"])
def test_the_encoder_has_the_names_and_sizes_of_the_segmenting_one(mim, network, suffix):
    with torch.device("meta"):
        ours = build_network(mim + suffix).encoder.state_dict()
        theirs = build_network(network + suffix).encoder.state_dict()
    read = {k: v.shape for k, v in theirs.items() if not k.startswith("skips.0.")}
    assert {k: v.shape for k, v in ours.items()} == read


def step_by_step(network: MambaMim, x: Tensor, visible: Tensor) -> Tensor:
    encoding = network.encoder(x, visible)
    filled = state_space_token_interpolation(
        encoding.tokens,
        encoding.visible_index,
        12,
        network.state_matrix,
        network.quirks & {*QUIRKS},
    )
    masks = stage_masks(visible, network.encoder.poolings)
    return network.decoder(tokens_to_map(filled, GRID), encoding.maps, masks)


@pytest.mark.parametrize("compat", [False, True, ("powers", "alpha"), ("layout",)])
def test_the_interpolation_takes_the_quirks_that_are_named(compat):
    network = tiny_mim("mamba_mim", official_compat=compat).eval()
    torch.nn.init.normal_(network.state_matrix, std=0.2)
    x, visible = field_and_mask()
    with torch.no_grad():
        torch.testing.assert_close(network(x, visible), step_by_step(network, x, visible))


def lengths(network: MambaMim, visible: Tensor) -> int:
    """How many tokens pass through Mamba."""
    seen: list[int] = []
    handle = network.encoder.layers[0].register_forward_hook(
        lambda module, given, answer: seen.append(given[0].shape[1])
    )
    x, _ = field_and_mask()
    with torch.no_grad():
        network(x[:1].expand(len(visible), -1, -1, -1, -1), visible)
    handle.remove()
    return seen[0]


def test_the_batchs_length_counts_all_images_and_changes_nothing_that_is_used():
    plain, official = tiny_mim("mamba_mim"), tiny_mim("mamba_mim", official_compat="batch_length")
    masks = [random_cells(n, GRID, ratio=0.75) for n in (1, 2, 5)]  # 3 of 12 cells each
    kept = int(masks[0].sum())

    assert [lengths(plain, m) for m in masks] == [kept] * 3
    assert [lengths(official, m) for m in masks] == [kept, 2 * kept, 12]
    x, visible = field_and_mask()
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(x, visible), official.eval()(x, visible))


def test_tokens_that_passed_in_any_order_come_back_to_their_places(monkeypatch):
    network = tiny_mim("mamba_mim").eval()
    network.encoder.layers = torch.nn.ModuleList()  # without them order means nothing
    x, visible = field_and_mask()
    with torch.no_grad():
        expected = network(x, visible)
        monkeypatch.setattr(network, "_order", lambda visible, index: index.flip(1))
        assert torch.equal(network(x, visible), expected)


def test_patches_are_halved_last_along_the_depth():
    assert halvings((4, 16, 16), 4) == [(1, 2, 2), (1, 2, 2), (2, 2, 2), (2, 2, 2)]
    assert halvings((1, 2, 4), 2) == [(1, 1, 2), (1, 2, 2)]


@pytest.mark.parametrize(
    ("size", "grid", "channels", "reason"),
    [
        ((8, 32, 40), (2, 2, 3), 1, "whole cells of 4 x 16 x 16 voxels; a field of 8 x 32 x 40"),
        ((8, 32, 48), (2, 2, 2), 1, "mask must be boolean"),
        ((8, 32, 48), (2, 2, 3), 2, "reads 1 image channel, got 2"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(size, grid, channels, reason):
    visible = random_cells(1, grid, ratio=0.5)
    with pytest.raises(ValueError, match=reason) as error:
        tiny_mim("mamba_mim")(torch.zeros(1, channels, *size), visible)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "wrong", "reason"),
    [
        ("mamba_mim", {"decoder_widths": (8, 4)}, "needs 5 widths"),
        ("mamba_mim", {"official_compat": "alfa"}, "no 'alfa'"),
        ("mamba_mim_unetr", {"patch": (3, 16, 16)}, "three of 1, 2, 4, 8, 16, got"),
    ],
)
def test_sizes_that_make_no_network_are_refused(name, wrong, reason):
    with pytest.raises(PumitError, match=reason):
        tiny_mim(name, **wrong)


@pytest.mark.parametrize("official_compat", [False, True, ["start"]])
def test_the_published_start_has_no_small_steps(official_compat):
    network = tiny_mim("mamba_mim", official_compat=official_compat)
    biases = [p for n, p in network.named_parameters() if n.endswith("dt_proj.bias")]

    assert len(biases) == 2
    assert all(bool((b == 0).all()) is bool(official_compat) for b in biases)


def test_an_unstable_order_passes_the_same_cells():
    network = tiny_mim("mamba_mim", official_compat=["unstable_order"])
    _, visible = field_and_mask()
    index = visible.flatten(1).nonzero()[:, 1].view(2, -1)
    order = network._order(visible, index)
    assert torch.equal(order.sort(1).values, index)
