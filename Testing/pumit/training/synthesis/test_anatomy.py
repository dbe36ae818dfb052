"""Hearts and trunks have the parts that a user would ask for, where they belong."""

from __future__ import annotations

import pytest
import torch
from pumit.training.synthesis.appearance import region_means
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.heart import heart
from pumit.training.synthesis.painting import Layout, paint
from pumit.training.synthesis.trunk import trunk


def grid_of(seed: int, depth: int = 10, ratio: float = 5.0, size: int = 40) -> Grid:
    return Grid(depth, size, ratio, 1, torch.Generator().manual_seed(seed))


def empty(grid: Grid) -> Layout:
    return Layout(torch.zeros(grid.shape, dtype=torch.long))


@pytest.mark.parametrize("seed", range(8))
def test_the_wall_goes_round_the_cavity(seed: int) -> None:
    grid = grid_of(seed)
    layout = empty(grid)
    heart(grid, layout, grid.coordinates(), size=10.0)
    wall, cavity = (torch.isin(layout.labels, torch.tensor(parts)) for parts in layout.objects[:2])
    assert wall.any()
    assert cavity.any()
    # A slice that shows the cavity shows at least some wall about it.
    slices = cavity.any(-1).any(-1)
    assert float(wall.any(-1).any(-1)[slices].float().mean()) > 0.7


def test_wall_and_blood_are_mostly_distinguished() -> None:
    apart = 0
    for seed in range(30):
        grid = grid_of(seed)
        layout = empty(grid)
        heart(grid, layout, grid.coordinates(), size=10.0)
        means = region_means(grid, layout)
        wall, cavity = (means[parts[0]] for parts in layout.objects[:2])
        apart += bool((wall - cavity).abs() > 0.05)
    assert apart >= 22


@pytest.mark.parametrize("seed", range(6))
def test_a_trunk_offers_organs(seed: int) -> None:
    grid = grid_of(seed, depth=40, ratio=1.0)
    layout = empty(grid)
    trunk(grid, layout, grid.coordinates())
    assert layout.objects
    assert layout.labels.max() < layout.count
    for parts in layout.objects:
        assert all(0 < label < layout.count for label in parts)


def test_a_label_painted_over_is_not_given_again() -> None:
    layout = Layout(torch.zeros(1, 8, 8, dtype=torch.long))
    everywhere = torch.ones(1, 8, 8, dtype=torch.bool)
    assert [paint(layout, everywhere) for _ in range(3)] == [1, 2, 3]
    assert layout.count == 4


def test_decided_means_hold() -> None:
    grid = grid_of(0, depth=2)
    layout = empty(grid)
    layout.means[paint(layout, torch.ones(grid.shape, dtype=torch.bool))] = 0.37
    assert float(region_means(grid, layout)[1]) == pytest.approx(0.37)
