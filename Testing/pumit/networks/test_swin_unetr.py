"""Swin UNETR and its pre-training: any field, slices, and both orders of patch merging."""

from typing import Any

import pytest
import torch
from monai.networks.nets.swin_unetr import SwinUNETR
from pumit.errors import PumitError
from pumit.networks.build import build_network
from pumit.networks.swin_merging import CORNERS_BEFORE_2025, SUFFIX, merging_evidence, merging_layer
from torch import Tensor, nn
from torch.nn import functional as F

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


def test_it_answers_as_monais_network_does():
    ours = tiny()
    theirs = SwinUNETR(in_channels=2, out_channels=3, **TINY).eval()
    theirs.load_state_dict(ours.network.state_dict())
    x = torch.randn(1, 2, 32, 32, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x))


def test_gradients_reach_all_parameters_from_any_field():
    network = tiny(merging="before_2025").train()
    logits = network(torch.randn(1, 2, 32, 33, 32))
    assert logits.shape == (1, 3, 32, 33, 32)
    logits.square().mean().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_every_slice_is_an_image_of_its_own_where_it_has_two_dimensions():
    network = tiny(spatial_dims=2)
    assert network.stride == (1, 32, 32)
    x = torch.randn(2, 2, 3, 40, 32)
    with torch.no_grad():
        together = network(x)
        assert together.shape == (2, 3, 3, 40, 32)
        torch.testing.assert_close(network(x[:, :, 1:2])[:, :, 0], together[:, :, 1])
        assert network(x[:, :, :1, :32]).shape == (2, 3, 1, 32, 32)  # one token at the bottom


@torch.no_grad()
def test_a_field_that_was_enlarged_is_answered_on_its_own_grid():
    network = tiny()
    assert network(torch.randn(1, 2, 32, 32, 32)).shape[2:] == (32, 32, 32)
    x = torch.randn(1, 2, 32, 40, 32)
    enlarged = torch.cat([x, x[:, :, :, -1:].expand(-1, -1, -1, 24, -1)], dim=3)
    torch.testing.assert_close(network(x), network(enlarged)[:, :, :, :40])


def test_the_old_order_reads_two_corners_twice_and_two_never():
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


def test_the_orders_agree_where_there_are_two_dimensions():
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
def test_sizes_that_make_no_network_are_refused(wrong, reason):
    with pytest.raises(PumitError, match=reason):
        tiny(**wrong)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((1, 2, 16, 64, 64), "16 x 64 x 64 voxels is smaller"), ((1, 1, 32, 32, 32), "reads 2 image")],
)
def test_images_that_do_not_fit_are_refused(shape, reason):
    with pytest.raises(PumitError, match=reason):
        tiny()(torch.zeros(shape))


def tiny_ssl(**changes: Any) -> nn.Module:
    torch.manual_seed(0)
    return build_network("swin_ssl", **{**TINY, "contrast_size": 6, **changes})


@pytest.mark.parametrize("name", ["swin_ssl", "swin_ssl_small"])
def test_the_pre_trained_encoder_is_that_of_the_network_it_is_for(name):
    with torch.device("meta"):
        ours = build_network(name).swinViT.state_dict()
        theirs = build_network(name.replace("ssl", "unetr")).network.swinViT.state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}


def test_gradients_of_the_pre_training_reach_all_parameters():
    network = tiny_ssl(in_channels=3)
    answer = network(torch.randn(2, 3, 32, 64, 32))
    assert answer.turns.shape == (2, 4)
    assert answer.contrast.shape == (2, 6)
    assert answer.image.shape == (2, 3, 32, 64, 32)
    parts = (answer.turns, answer.contrast, answer.image)
    torch.stack([part.square().mean() for part in parts]).sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in network.parameters())


def test_each_head_reads_the_mean_of_all_tokens_or_one_where_it_is_official():
    x = torch.randn(1, 1, 32, 64, 32)
    with torch.no_grad():
        for official in (False, True):
            network = tiny_ssl(official_tokens=official).eval()
            tokens = network.swinViT(x)[-1].flatten(2)[0]  # (C, 2)
            mean = tokens.mean(1)
            first, second = (tokens[:, 0], tokens[:, 1]) if official else (mean, mean)
            answer = network(x)
            torch.testing.assert_close(answer.turns[0], network.turns(first))
            torch.testing.assert_close(answer.contrast[0], network.contrast(second))


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((1, 1, 32, 48, 64), "multiple of"),
        ((1, 1, 32, 32, 32), "two cells"),
        ((1, 2, 32, 64, 64), "reads 1 image channel"),
    ],
)
def test_views_that_do_not_fit_are_refused(shape, reason):
    with pytest.raises(PumitError, match=reason):
        tiny_ssl()(torch.zeros(shape))


def slopes(image: Tensor, k: int) -> Tensor:
    """How much brighter the far half of each cell of k^3 voxels is, along each axis."""
    n = image.shape[2] // k
    halves = F.avg_pool3d(image, k // 2).reshape(n, 2, n, 2, n, 2)
    d = (halves[:, 1] - halves[:, 0]).mean((2, 4))
    h = (halves[:, :, :, 1] - halves[:, :, :, 0]).mean((1, 4))
    w = (halves[..., 1] - halves[..., 0]).mean((1, 3))
    return torch.stack([d, h, w])[None]


def trained(merging: str, steps: int) -> dict[str, Tensor]:
    """An encoder that has learned for a while to tell the slopes of cells."""
    torch.manual_seed(0)
    encoder = build_network("swin_ssl", merging=merging, **TINY).swinViT
    heads = nn.ModuleList(nn.Conv3d(12 << i, 3, 1) for i in range(1, 5))
    optimizer = torch.optim.AdamW([*encoder.parameters(), *heads.parameters()], lr=3e-3)
    for _ in range(steps):
        image = F.interpolate(torch.randn(1, 1, 16, 16, 16), (32, 32, 32), mode="trilinear")
        levels = zip(encoder(image)[1:], heads, (4, 8, 16, 32), strict=True)
        loss = torch.stack([F.mse_loss(head(x), slopes(image, k)) for x, head, k in levels])
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
    return encoder.state_dict()


@pytest.mark.parametrize("merging", ["current", "before_2025"])
def test_training_of_a_few_steps_shows_the_order(merging):
    assert merging_evidence(trained(merging, 16)).verdict == merging


def test_initial_weights_show_none():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        state = {
            f"layers{i}.0.downsample.reduction.weight": torch.rand(
                (24 << i, 96 << i), generator=generator
            )
            - 0.5
            for i in range(2)
        }
        assert merging_evidence(state).verdict is None
    with pytest.raises(ValueError, match="no mergings"):
        merging_evidence({"a.weight": torch.zeros(2, 16)})


def test_what_the_two_pairs_have_in_common_decides():
    """Noise, and changes that all groups of columns have in common, or the two pairs alone."""
    generator = torch.Generator().manual_seed(0)
    noise = (torch.rand(96, 8, 48, generator=generator) - 0.5) * 12**0.5
    common = 0.7 * torch.randn(96, 1, 48, generator=generator)
    change = 0.7 * torch.randn(96, 8, 48, generator=generator)
    new = merging_evidence({SUFFIX: (noise + common + change).flatten(1)})
    assert new.verdict == "current"
    assert new.alike == pytest.approx(0.25, abs=0.03)
    assert new.gap == pytest.approx(0, abs=0.03)
    change[:, 5], change[:, 6] = change[:, 2], change[:, 3]
    old = merging_evidence({SUFFIX: (noise + common + change).flatten(1)})
    assert old.verdict == "before_2025"
    assert old.twice == pytest.approx(0.5, abs=0.03)
    assert old.gap == pytest.approx(0.25, abs=0.03)
    assert old.noise == pytest.approx((96 * 48) ** -0.5)


def test_neighbours_that_are_alike_are_no_evidence_of_the_old_order():
    """Each corner's change is a sum over its coordinates, so that neighbours share most."""
    generator = torch.Generator().manual_seed(0)
    now = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1)]
    along = torch.randn(3, 2, 96, 48, generator=generator)
    change = torch.stack([sum(along[a, c[a]] for a in range(3)) for c in now], dim=1)
    found = merging_evidence({SUFFIX: (change + torch.rand(96, 8, 48)).flatten(1)})
    assert found.verdict == "current"
