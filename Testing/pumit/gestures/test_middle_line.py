"""The path along the middle of an area, on grids of any number of axes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pumit.gestures.middle_line import deepest_cell, inner_path, longest_path
from scipy import ndimage


def depth_of(mask: np.ndarray, cell_size: tuple[float, ...] | None = None) -> np.ndarray:
    within = (slice(1, -1),) * mask.ndim
    return ndimage.distance_transform_edt(np.pad(mask, 1), sampling=cell_size)[within]


def test_the_path_of_a_bar_runs_along_its_middle() -> None:
    path = np.array(inner_path(depth_of(np.ones((9, 60), bool)), 0.8))
    assert (path[1:-1, 0] == 4).all()
    assert np.ptp(path[:, 1]) >= 50


def test_the_path_of_a_tube_runs_through_space() -> None:
    tube = np.ones((40, 7, 7), bool)
    path = np.array(longest_path(np.where(depth_of(tube) >= 3, 4.0, 0.0)))
    assert np.ptp(path[:, 0]) >= 30
    assert (np.abs(path[:, 1:] - 3) <= 1).all()


def test_the_length_of_cells_decides_which_ends_are_far_apart() -> None:
    cross = np.zeros((11, 31))
    cross[5], cross[:, 15] = 1.0, 1.0
    across = {cell[0] for cell in longest_path(cross)}
    along = {cell[0] for cell in longest_path(cross, (10.0, 1.0))}
    assert across <= {4, 5, 6}
    assert along == set(range(11))


def test_an_inner_part_of_one_is_the_deepest_cell() -> None:
    depth = depth_of(np.ones((7, 9, 11), bool))
    assert inner_path(depth, 1.0) == [deepest_cell(depth)]


def test_only_the_part_with_the_deepest_cell_counts() -> None:
    depth = np.zeros((5, 20))
    depth[2, :6], depth[2, 10:] = 1.0, 0.5
    assert {cell[1] for cell in longest_path(depth)} == set(range(6))


@given(seed=st.integers(0, 10**6), axes=st.integers(1, 3), inner=st.sampled_from([0.0, 0.5, 0.8]))
def test_paths_go_from_cell_to_neighbour_within_the_part(seed, axes, inner) -> None:
    random = np.random.default_rng(seed)
    mask = random.random(tuple(random.integers(2, 12, axes))) < 0.7
    if not mask.any():
        return
    size = tuple(random.uniform(0.3, 5, axes).tolist())
    depth = depth_of(mask, size)
    path = inner_path(depth, inner, size)
    assert len(set(path)) == len(path)
    assert all(depth[cell] >= inner * depth.max() and mask[cell] for cell in path)
    steps = np.abs(np.diff(np.array(path), axis=0))
    assert (steps.max(axis=1, initial=0) <= 1).all()


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_single_cell_is_its_own_path(axes: int) -> None:
    depth = np.zeros((3,) * axes)
    depth[(1,) * axes] = 2.0
    assert longest_path(depth) == [(1,) * axes]
