"""Swin UNETR: published sizes, any field, slices, and both orders of patch merging."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from monai.networks.nets.swin_unetr import SwinUNETR
from pumit.errors import PumitError
from pumit.networks.build import build_network
from pumit.networks.swin_merging import CORNERS_BEFORE_2025, merging_layer
from torch import nn

TINY: dict[str, Any] = {
    "feature_size": 12,
    "depths": (1, 1, 1, 1),
    "num_heads": (1, 1, 2, 2),
    "window_size": 2,
}


def tiny(**changes: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"in_channels": 2, "num_classes": 3, **TINY, **changes}
    return build_network("swin_unetr", **sizes).eval()


def test_it_answers_as_monais_network_does() -> None:
    ours = tiny()
    theirs = SwinUNETR(
        in_channels=2,
        out_channels=3,
        feature_size=12,
        depths=(1, 1, 1, 1),
        num_heads=(1, 1, 2, 2),
        window_size=2,
    ).eval()
    theirs.load_state_dict(ours.network.state_dict())
    x = torch.randn(1, 2, 32, 32, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("merging", ["current", "before_2025"])
@pytest.mark.parametrize("size", [(33, 40, 32), (32, 32, 32)])
def test_gradients_reach_all_parameters_from_any_field(
    size: tuple[int, int, int], merging: str
) -> None:
    network = tiny(merging=merging).train()
    logits = network(torch.randn(1, 2, *size))
    assert logits.shape == (1, 3, *size)
    logits.square().mean().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_every_slice_is_an_image_of_its_own_where_it_has_two_dimensions() -> None:
    network = tiny(spatial_dims=2)
    assert network.stride == (1, 32, 32)
    x = torch.randn(2, 2, 3, 40, 32)
    with torch.no_grad():
        together = network(x)
        assert together.shape == (2, 3, 3, 40, 32)
        torch.testing.assert_close(network(x[:, :, 1:2])[:, :, 0], together[:, :, 1])
        assert network(x[:, :, :1, :32]).shape == (2, 3, 1, 32, 32)  # one token at the bottom


def test_a_field_that_was_enlarged_is_answered_on_its_own_grid() -> None:
    network = tiny()
    x = torch.randn(1, 2, 32, 40, 32)
    enlarged = torch.cat([x, x[:, :, :, -1:].expand(-1, -1, -1, 24, -1)], dim=3)
    with torch.no_grad():
        torch.testing.assert_close(network(x), network(enlarged)[:, :, :, :40])


def test_the_old_order_reads_two_corners_twice_and_two_never() -> None:
    merge = merging_layer("before_2025")(dim=3, spatial_dims=3)
    x = torch.randn(1, 4, 4, 2, 3, dtype=torch.float64)
    merge.double()
    slow = torch.empty(1, 2, 2, 1, 6, dtype=torch.float64)
    for d in range(2):
        for h in range(2):
            groups = [x[0, 2 * d + i, 2 * h + j, k] for i, j, k in CORNERS_BEFORE_2025]
            slow[0, d, h, 0] = merge.reduction(merge.norm(torch.cat(groups)))
    torch.testing.assert_close(merge(x), slow)
    x.requires_grad_()
    merge(x).sum().backward()
    read = x.grad[0, :2, :2, :2].abs().sum(-1) > 0
    assert [tuple(c) for c in (~read).nonzero().tolist()] == [(0, 1, 1), (1, 1, 0)]


def test_the_orders_agree_where_there_are_two_dimensions() -> None:
    a, b = (tiny(spatial_dims=2, merging=m) for m in ("current", "before_2025"))
    x = torch.randn(1, 2, 2, 32, 64)
    with torch.no_grad():
        torch.testing.assert_close(a(x), b(x))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"merging": "old"}, "current or before_2025"),
        ({"num_heads": (1, 5, 2, 2)}, "5 heads do not divide the width 24"),
        ({"depths": (2, 2, 2)}, "four stages"),
        ({"num_classes": 0}, "at least 1"),
        ({"spatial_dims": 1}, "2 or 3"),
        ({"feature_size": 16}, "divisible by 12"),
    ],
)
def test_sizes_that_make_no_network_are_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(PumitError, match=reason):
        tiny(**wrong)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((1, 2, 16, 64, 64), "16 x 64 x 64 voxels is smaller"), ((1, 1, 32, 32, 32), "reads 2 image")],
)
def test_images_that_do_not_fit_are_refused(shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(PumitError, match=reason):
        tiny()(torch.zeros(shape))
