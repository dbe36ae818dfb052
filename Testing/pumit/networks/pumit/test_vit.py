"""Universal ViT at tiny sizes: grids, positions, gradients, weights carried to other fields."""

import pytest
import torch
from pumit.errors import CheckpointError, PumitError
from pumit.networks.pumit import Anisotropy
from pumit.networks.pumit.transfer import load_universal_weights
from pumit.networks.pumit.vit import UniversalViT, VitClassifier, resample_positions
from torch.nn import functional as F

SIZES = {
    "in_channels": 3,
    "dim": 16,
    "depth": 3,
    "num_heads": 2,
    "hidden": 24,
    "position_table": (2, 3, 3),
}


def tiny(**changes: object) -> UniversalViT:
    torch.manual_seed(0)
    return UniversalViT(**{**SIZES, "patch_halvings": 3, **changes})


@pytest.mark.parametrize(("da", "train_tokens"), [(0, None), (2, 18), (4, None), (5, 18)])
def test_it_encodes_every_degree_and_gradients_reach_all_parameters(
    da, train_tokens, assert_gradients_reach_all
):
    network = tiny(train_tokens=train_tokens).double()
    depth = (16, 8, 4, 2, 2, 1)[da]

    features = network(torch.rand(2, 3, depth, 16, 24, dtype=torch.float64), Anisotropy(da))

    assert features.grid == ((2, 2, 2, 2, 2, 1)[da], 2, 3)
    assert features.tokens.shape == (2, features.grid[0] * 6, 16)
    assert features.cls.shape == (2, 16)
    # Random weights: the sum over the channels of a layer norm would be constant.
    weights = torch.randn(16, dtype=torch.float64)
    loss = (features.cls @ weights).sum() + (features.tokens @ weights).square().sum()
    assert_gradients_reach_all(network, loss)


def test_position_table_shrinks_by_area_and_grows_linearly():
    table = torch.randn(1, 4, 4, 6, 6)

    assert torch.equal(resample_positions(table, (4, 6, 6)), table)
    small = resample_positions(table, (2, 3, 2))
    torch.testing.assert_close(small, F.avg_pool3d(table, (2, 2, 3)))
    large = resample_positions(table, (8, 12, 7))
    torch.testing.assert_close(large, F.interpolate(table, size=(8, 12, 7), mode="trilinear"))
    mixed = resample_positions(table, (1, 12, 6))
    expected = F.interpolate(table.mean(2, keepdim=True), size=(1, 12, 6), mode="trilinear")
    torch.testing.assert_close(mixed, expected)


def test_the_class_token_has_no_position():
    network = tiny()
    with torch.no_grad():
        network.position_table.zero_()
        network.patch_embedding.weight.zero_()  # all patches equal: only rotation tells them apart
    x = torch.zeros(1, 3, 8, 16, 16)

    before = network(x, Anisotropy(0)).cls
    with torch.no_grad():
        network.position_table.fill_(0.3)
        network.patch_embedding.bias.sub_(0.3)

    torch.testing.assert_close(network(x, Anisotropy(0)).cls, before)


def test_taps_are_block_outputs_and_the_last_one_is_the_final_output():
    network = tiny()
    tokens, grid = network.embed(torch.rand(1, 3, 8, 16, 16), Anisotropy(0))

    features, taps = network.transform(tokens, grid, taps=(1, 3))

    assert len(taps) == 2
    torch.testing.assert_close(taps[1], features.tokens)
    assert not torch.allclose(taps[0], taps[1])


def test_ba_sam_is_plain_attention_at_the_training_length_with_slope_zero():
    x, plain, adaptive = torch.rand(1, 3, 8, 16, 16), tiny(), tiny(train_tokens=5)
    adaptive.load_state_dict(plain.state_dict(), strict=False)
    for block in adaptive.blocks:
        torch.nn.init.zeros_(block.attention.slope)

    ours, reference = adaptive(x, Anisotropy(0)), plain(x, Anisotropy(0))

    torch.testing.assert_close(ours.tokens, reference.tokens, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("da", [0, 1])
def test_a_size_that_does_not_fit_or_no_anisotropy_is_refused(da):
    with pytest.raises(PumitError, match="multiple of"):
        tiny()(torch.zeros(1, 3, 6, 16, 16), Anisotropy(da))
    with pytest.raises(ValueError, match="needs the image's anisotropy"):
        tiny()(torch.zeros(1, 3, 8, 16, 16))


@pytest.mark.parametrize("channels", [1, 2])
def test_universal_weights_give_a_fixed_patch_vit_the_same_output(channels):
    universal = tiny(position_table=(2, 4, 4))
    fixed = tiny(position_table=(2, 4, 4), in_channels=channels, fixed_patch=(2, 8, 8))
    gray = torch.rand(1, 1, 4, 32, 32)

    load_universal_weights(fixed, universal.state_dict())

    expected = universal(gray.expand(-1, 3, -1, -1, -1), Anisotropy(2))
    ours = fixed(gray.expand(-1, channels, -1, -1, -1))
    torch.testing.assert_close(ours.tokens, expected.tokens, rtol=1e-4, atol=1e-5)


def test_universal_weights_reach_a_larger_field():
    universal, large = tiny(), tiny(position_table=(4, 6, 6))

    load_universal_weights(large, universal.state_dict())

    x = torch.rand(1, 3, 32, 48, 48)
    torch.testing.assert_close(
        large(x, Anisotropy(0)).cls, universal(x, Anisotropy(0)).cls, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [({"depth": 2}, "missing|unknown"), ({"dim": 32}, "shape"), ({"patch_halvings": 2}, "shape")],
)
def test_weights_of_another_network_are_refused(change, message):
    with pytest.raises(CheckpointError, match=message):
        load_universal_weights(tiny(), tiny(**change).state_dict())


def test_it_classifies_and_gradients_reach_all_parameters(assert_gradients_reach_all):
    torch.manual_seed(0)
    network = VitClassifier(num_classes=5, fixed_patch=(8, 8, 8), **SIZES).double()

    logits = network(torch.rand(4, 3, 16, 24, 16, dtype=torch.float64))

    assert logits.shape == (4, 5)
    assert_gradients_reach_all(network, logits.logsumexp(1).sum())
