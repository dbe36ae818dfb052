"""A heart in its chest has what cine MR shows: bright blood in a dark ring, next to lung."""

from __future__ import annotations

import pytest
import torch
from pumit.training.synthesis import short_axis as drawn
from pumit.training.synthesis.appearance import acquire, region_means, textured
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.painting import Layout, any_of
from pumit.training.synthesis.short_axis import CINE, short_axis


def chest(seed: int) -> tuple[Grid, Layout]:
    grid = Grid(10, 48, 5.0, 1, torch.Generator().manual_seed(seed))
    layout = Layout(torch.zeros(grid.shape, dtype=torch.long))
    short_axis(grid, layout, grid.coordinates())
    return grid, layout


def masks_of(layout: Layout) -> dict[str, torch.Tensor]:
    named = {n: [i for i, m in layout.names.items() if m == n] for n in layout.names.values()}
    return {name: any_of(layout.labels, parts) for name, parts in named.items()}


@pytest.fixture
def only_cine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "SCANS", ((1.0, CINE),))


@pytest.mark.parametrize("seed", range(12))
def test_wall_and_cavity_are_targets_where_the_field_shows_them(seed: int) -> None:
    _, layout = chest(seed)
    masks = masks_of(layout)
    assert set(masks) >= {"wall", "cavity"}
    assert {"wall", "cavity"} <= {layout.names.get(parts[0]) for parts in layout.objects}
    for parts in layout.objects:
        assert all(0 < label < layout.count for label in parts)


@pytest.mark.parametrize("seed", range(12))
def test_the_wall_parts_the_cavity_from_all_else(seed: int) -> None:
    _, layout = chest(seed)
    masks = masks_of(layout)
    grown = torch.nn.functional.max_pool2d(masks["cavity"].float()[:, None], 3, 1, 1)[:, 0] > 0
    outside = grown & ~masks["cavity"] & ~masks["wall"]
    assert float(outside.sum()) <= 0.2 * float(masks["cavity"].sum())


@pytest.mark.usefixtures("only_cine")
@pytest.mark.parametrize("seed", range(12))
def test_blood_of_cine_is_bright_and_its_wall_dark(seed: int) -> None:
    grid, layout = chest(seed)
    means = region_means(grid, layout)
    for parts in layout.objects:
        name = layout.names.get(parts[0])
        if name == "wall":
            assert float(means[parts[0]]) <= CINE["wall"][1]
        elif name in ("cavity", "crescent"):
            assert float(means[parts[0]]) >= 0.7 * CINE["blood"][0]


@pytest.mark.usefixtures("only_cine")
def test_a_natural_image_is_never_turned_round() -> None:
    """What is acquired of a chest keeps its blood brighter than the wall around it."""
    for seed in range(20):
        grid, layout = chest(seed)
        image = acquire(grid, textured(grid, layout), is_natural=layout.is_natural)
        masks = masks_of(layout)
        blood, wall = (float(image[masks[name]].median()) for name in ("cavity", "wall"))
        assert blood > wall, seed


def test_the_same_seed_gives_the_same_chest() -> None:
    (_, a), (_, b) = chest(4), chest(4)
    assert torch.equal(a.labels, b.labels)
    assert a.means == b.means
    assert a.shading is not None
    assert b.shading is not None
    torch.testing.assert_close(a.shading, b.shading, rtol=0, atol=0)
