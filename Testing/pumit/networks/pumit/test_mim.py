"""Masked image modelling at tiny sizes: published counts, what the mask hides, gradients."""

import pytest
import torch
from pumit.networks.pumit import Anisotropy
from pumit.networks.pumit.vit import MaskedImageModel, random_mask
from torch.nn import functional as F

SIZES = {
    "in_channels": 1,
    "dim": 16,
    "depth": 2,
    "num_heads": 2,
    "hidden": 24,
    "position_table": (2, 2, 2),
    "patch_halvings": 3,
}

RATIO = 0.55


def tiny() -> MaskedImageModel:
    torch.manual_seed(0)
    return MaskedImageModel(num_tokens=11, **SIZES)


@pytest.mark.parametrize(("patches", "visible"), [(256, 115), (500, 224), (100, 44)])
def test_visible_counts_at_55_percent_are_the_published_ones(patches, visible):
    is_masked = random_mask(3, patches, ratio=RATIO)
    assert ((~is_masked).sum(dim=1) == visible).all()


def test_masks_differ_between_images_and_repeat_with_the_generator():
    masks = [
        random_mask(2, 100, ratio=RATIO, generator=torch.Generator().manual_seed(5))
        for _ in range(2)
    ]

    assert torch.equal(*masks)
    assert not torch.equal(*masks[0])


def test_every_patch_is_as_likely_to_be_masked():
    share = (
        random_mask(4000, 20, ratio=RATIO, generator=torch.Generator().manual_seed(0))
        .float()
        .mean(0)
    )

    assert (share - 0.55).abs().max() < 0.03  # 4 standard deviations


@pytest.mark.parametrize("da", [0, 2, 5])
def test_it_predicts_the_masked_patches_and_gradients_reach_all_parameters(
    da, assert_gradients_reach_all
):
    network = tiny().double()
    depth = (16, 8, 4, 2, 2, 1)[da]
    patches = 1 * 2 * 3 if da == 5 else 12
    is_masked = random_mask(2, patches, ratio=RATIO)

    logits = network(
        torch.rand(2, 1, depth, 16, 24, dtype=torch.float64), Anisotropy(da), is_masked
    )

    assert logits.shape == (is_masked.sum(), 11)
    target = torch.rand(2, patches, 11, dtype=torch.float64).softmax(-1)
    assert_gradients_reach_all(network, F.cross_entropy(logits, target[is_masked]))


def test_masked_patches_show_neither_content_nor_absolute_position():
    network, anisotropy = tiny(), Anisotropy(0)
    x, is_masked = torch.rand(1, 1, 16, 16, 16), torch.zeros(1, 8, dtype=torch.bool)
    is_masked[0, 5] = True  # grid position (1, 0, 1)
    before = network(x, anisotropy, is_masked)

    with torch.no_grad():
        x[:, :, 8:, :8, 8:] += 1.0
        network.vit.position_table[:, :, 1, 0, 1] += 1.0

    torch.testing.assert_close(network(x, anisotropy, is_masked), before, rtol=0, atol=0)


def test_masked_patches_still_know_where_they_are_by_rotation():
    logits = tiny()(torch.rand(1, 1, 16, 16, 16), Anisotropy(0), random_mask(1, 8, ratio=RATIO))

    assert (logits[0] - logits[1]).abs().max() > 0


def test_a_ratio_outside_0_to_1_and_a_mask_for_another_grid_are_refused():
    for ratio in (-0.1, 1.1):
        with pytest.raises(ValueError, match="mask ratio"):
            random_mask(1, 8, ratio=ratio)
    with pytest.raises(ValueError, match="mask must have shape"):
        tiny()(torch.rand(1, 1, 16, 16, 16), Anisotropy(0), random_mask(1, 7, ratio=RATIO))
