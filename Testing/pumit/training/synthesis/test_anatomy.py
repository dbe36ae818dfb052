"""Hearts and trunks have the parts that a user would ask for, where they belong."""

import pytest
import torch
from pumit.training.synthesis.appearance import region_means
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.heart import heart
from pumit.training.synthesis.shapes import Layout, paint


def heart_of(seed: int) -> tuple[Grid, Layout]:
    grid = Grid(10, 40, 5.0, 1, torch.Generator().manual_seed(seed))
    layout = Layout(torch.zeros(grid.shape, dtype=torch.long))
    heart(grid, layout, grid.coordinates())
    return grid, layout


@pytest.mark.parametrize("seed", range(4))
def test_the_wall_goes_round_the_cavity(seed):
    _, layout = heart_of(seed)
    wall, cavity = (torch.isin(layout.labels, torch.tensor(parts)) for parts in layout.objects[:2])
    assert wall.any()
    assert cavity.any()
    # A slice that shows the cavity shows at least some wall about it.
    slices = cavity.any(-1).any(-1)
    assert float(wall.any(-1).any(-1)[slices].float().mean()) > 0.7


def test_wall_and_blood_are_mostly_distinguished():
    apart = 0
    for seed in range(20):
        grid, layout = heart_of(seed)
        means = region_means(grid, layout)
        wall, cavity = (means[parts[0]] for parts in layout.objects[:2])
        apart += bool((wall - cavity).abs() > 0.05)
    assert apart >= 15


def test_a_label_painted_over_is_not_given_again_and_decided_means_hold():
    layout = Layout(torch.zeros(1, 8, 8, dtype=torch.long))
    everywhere = torch.ones(1, 8, 8, dtype=torch.bool)
    assert [paint(layout, everywhere) for _ in range(3)] == [1, 2, 3]
    assert layout.count == 4
    layout.means[3] = 0.37
    grid = Grid(1, 8, 5.0, 1, torch.Generator().manual_seed(0))
    assert float(region_means(grid, layout)[3]) == pytest.approx(0.37)
