"""The order of patch merging, known from weights."""

from __future__ import annotations

import pytest
import torch
from pumit.networks.build import build_network
from pumit.networks.swin_merging import SUFFIX, merging_evidence
from torch import Tensor, nn
from torch.nn import functional as F


def slopes(image: Tensor, k: int) -> Tensor:
    """How much brighter the far half of each cell of k^3 voxels is, along each axis."""
    n = image.shape[2] // k
    halves = F.avg_pool3d(image, k // 2).reshape(n, 2, n, 2, n, 2)
    d = (halves[:, 1] - halves[:, 0]).mean((2, 4))
    h = (halves[:, :, :, 1] - halves[:, :, :, 0]).mean((1, 4))
    w = (halves[..., 1] - halves[..., 0]).mean((1, 3))
    return torch.stack([d, h, w])[None]


def trained(merging: str, steps: int, seed: int = 0) -> dict[str, Tensor]:
    """An encoder that has learned for a while to tell the slopes of cells."""
    torch.manual_seed(seed)
    encoder = build_network(
        "swin_ssl",
        merging=merging,
        feature_size=12,
        depths=(1, 1, 1, 1),
        num_heads=(1, 1, 2, 2),
        window_size=2,
    ).swinViT
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


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("merging", ["current", "before_2025"])
def test_training_of_a_few_steps_shows_the_order(merging: str, seed: int) -> None:
    assert merging_evidence(trained(merging, 16, seed)).verdict == merging


def test_initial_weights_show_none() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        state = {
            f"layers{i}.0.downsample.reduction.weight": torch.rand(
                (24 << i, 96 << i), generator=generator
            )
            - 0.5
            for i in range(2)
        }
        assert merging_evidence(state).verdict is None


def test_what_the_two_pairs_have_in_common_decides() -> None:
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


def test_neighbours_that_are_alike_are_no_evidence_of_the_old_order() -> None:
    """Each corner's change is a sum over its coordinates, so that neighbours share most."""
    generator = torch.Generator().manual_seed(0)
    now = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1)]
    along = torch.randn(3, 2, 96, 48, generator=generator)
    change = torch.stack([sum(along[a, c[a]] for a in range(3)) for c in now], dim=1)
    found = merging_evidence({SUFFIX: (change + torch.rand(96, 8, 48)).flatten(1)})
    assert found.verdict == "current"


def test_weights_without_mergings_are_refused() -> None:
    with pytest.raises(ValueError, match="no mergings"):
        merging_evidence({"a.weight": torch.zeros(2, 16)})
