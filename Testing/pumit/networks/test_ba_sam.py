"""BA-SAM's length scale and bias-mode mask: the paper's figures and the mask's structure."""

import math

import pytest
import torch
from pumit.networks.ba_sam import bias_mode_mask, length_scale


@pytest.mark.parametrize(("factor", "expected"), [(1, 1.0), (4, 1.1666667), (16, 1.3333333)])
def test_length_scale_gives_the_published_figures(factor: int, expected: float) -> None:
    assert length_scale(4096 * factor, 4096) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("lengths", [(0, 4096), (4096, 0), (-1, 1)])
def test_length_scale_refuses_lengths_below_one(lengths: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        length_scale(*lengths)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_mask_is_minus_slope_times_euclidean_distance_on_the_grid(axes: int) -> None:
    grid = torch.stack(torch.meshgrid(*[torch.arange(4)] * axes, indexing="ij"), -1)
    positions = grid.reshape(-1, axes)
    slopes = torch.tensor([0.0, 0.1, 2.5], dtype=torch.float64)

    mask = bias_mode_mask(positions, slopes)

    for i, j in ((0, 0), (0, 1), (1, len(positions) - 1), (3, 2)):
        distance = math.dist(positions[i].tolist(), positions[j].tolist())
        torch.testing.assert_close(mask[:, i, j], -slopes * distance)
    assert torch.equal(mask, mask.transpose(1, 2))


def test_mask_keeps_an_exact_zero_diagonal_far_from_the_origin() -> None:
    positions = torch.rand(40, 3) * 1e4

    assert (bias_mode_mask(positions, 1.0).diagonal(dim1=-2, dim2=-1) == 0).all()


@pytest.mark.parametrize("shape", [(5,), (5, 4), (5, 0)])
def test_mask_refuses_positions_without_one_to_three_axes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Positions need shape"):
        bias_mode_mask(torch.zeros(shape), 0.1)


def test_mask_refuses_slopes_that_are_not_one_per_head() -> None:
    with pytest.raises(ValueError, match="Slopes need shape"):
        bias_mode_mask(torch.zeros(5, 2), torch.ones(2, 2))
