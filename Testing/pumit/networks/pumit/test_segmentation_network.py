"""Segmentation network at tiny sizes: outputs, gradients, sizes that do not fit."""

import pytest
import torch
from pumit.errors import PumitError
from pumit.networks.pumit.segmentation_network import SegmentationHead, SegmentationNetwork

SIZES = {
    "dim": 16,
    "depth": 4,
    "num_heads": 2,
    "hidden": 24,
    "position_table": (4, 2, 2),
    "fixed_patch": (4, 16, 16),
    "detail_widths": (2, 4),
    "pyramid_widths": (4, 6, 8, 8),
    "taps": (1, 2, 3, 4),
    "num_supervised_levels": 4,
}


def tiny(**changes: object) -> SegmentationNetwork:
    torch.manual_seed(0)
    return SegmentationNetwork(in_channels=2, num_classes=3, **{**SIZES, **changes})


@pytest.mark.parametrize("size", [(8, 64, 32), (16, 32, 64)])
def test_logits_lie_on_the_images_grid(size):
    network = tiny()
    x = torch.randn(1, 2, *size)

    logits = network(x)
    deep = network(x, deep_supervision=True)

    assert logits.shape == (1, 3, *size)
    torch.testing.assert_close(deep[0], logits)
    d, h, w = size
    assert [tuple(level.shape[2:]) for level in deep] == [
        (d, h, w),
        (d, h // 2, w // 2),
        (d, h // 4, w // 4),
        (d // 2, h // 8, w // 8),
    ]


@pytest.mark.parametrize(
    ("patch", "details", "flat"),
    [
        ((8, 8, 8), (2, 4, 6), 0),
        ((4, 16, 16), (2, 4, 4), 2),
        ((4, 8, 8), (2,), 1),
        ((8, 16, 16), (2, 4), 1),
        ((16, 16, 16), (2, 4), 0),
    ],
)
def test_nearer_slices_have_deeper_patches_and_kernels(patch, details, flat):
    network = tiny(fixed_patch=patch, detail_widths=details).double()
    size = [4 * patch[0], 2 * patch[1], 2 * patch[2]]
    x = torch.randn(1, 2, *size, dtype=torch.float64)
    levels = network(x, deep_supervision=True)
    depths = [size[0] // 2 ** max(0, level - flat) for level in range(4)]
    assert [tuple(level.shape[2:]) for level in levels] == [
        (depth, size[1] // 2**level, size[2] // 2**level) for level, depth in enumerate(depths)
    ]
    assert network.detail_full[0][0].kernel_size == ((3, 3, 3) if flat == 0 else (1, 3, 3))
    sum(level.square().mean() for level in levels).backward()
    assert all(p.grad is not None for p in network.parameters())


# Biases that an instance norm takes out again; the published networks have them.
CANCELLED = {
    "vit.norm.bias",
    "pyramid.norms.2.bias",
    "pyramid.norms.3.bias",
    "pyramid.scales.0.0.bias",
    "pyramid.scales.0.3.bias",
    "pyramid.scales.1.bias",
}


def test_gradients_reach_all_parameters_but_cancelled_biases():
    network = tiny().double()

    levels = network(torch.randn(1, 2, 16, 64, 64, dtype=torch.float64), deep_supervision=True)
    sum(level.square().mean() for level in levels).backward()

    gradients = {name: p.grad for name, p in network.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())
    assert {name for name, g in gradients.items() if g.abs().max() < 1e-12} == CANCELLED


def test_a_narrow_head_begins_as_any_and_moves_its_logits_as_a_wide_one():
    torch.manual_seed(0)
    plain = SegmentationHead(8, 3, 0)
    torch.manual_seed(0)
    quick = SegmentationHead(8, 3, 64)
    x = torch.rand(1, 8, 2, 2, 2)
    torch.testing.assert_close(quick(x), plain(x))
    moved = []
    for head in (plain, quick):
        before = head(x).detach()
        with torch.no_grad():
            head.weight += 0.01  # one step of an optimiser
        moved.append(head(x).detach() - before)
    torch.testing.assert_close(moved[1], 8 * moved[0])


def test_three_levels_need_one_patch_only():
    network = tiny(pyramid_widths=(4, 6, 8), taps=(1, 2, 4)).double()
    x = torch.randn(1, 2, 4, 48, 16, dtype=torch.float64)
    assert network(x).shape == (1, 3, 4, 48, 16)


@pytest.mark.parametrize("size", [(12, 64, 64), (16, 48, 64), (16, 64, 40)])
def test_images_that_do_not_fit_are_refused(size):
    with pytest.raises(PumitError, match="multiple of"):
        tiny()(torch.zeros(1, 2, *size))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fixed_patch": (2, 16, 16)}, "fixed_patch"),
        ({"fixed_patch": (8, 8, 8), "detail_widths": (2, 5)}, "detail_widths"),
        ({"fixed_patch": (16, 8, 8), "detail_widths": (2,)}, "fixed_patch|detail_widths"),
        ({"pyramid_widths": (4, 6, 8)}, "3 ascending blocks"),
        ({"pyramid_widths": (4, 6), "taps": (1, 2)}, "three or four"),
        *(({"taps": t}, "blocks") for t in ((1, 2, 3), (4, 3, 2, 1), (0, 1, 2, 3), (2, 3, 4, 5))),
    ],
)
def test_sizes_without_a_decoder_are_refused(changes, reason):
    with pytest.raises(ValueError, match=reason):
        tiny(**changes)
