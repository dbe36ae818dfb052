"""Sheared grids become perpendicular ones without moving anything."""

import numpy as np
import pytest
from generated_scans import rotation
from hypothesis import given, settings
from hypothesis import strategies as st
from pumit.errors import VolumeError
from pumit.geometry import is_sheared
from pumit.volume import Volume

SHAPE = (6, 7, 8)
ORIGIN = np.array([-12.0, 34, 56])


def steps(shear: float, angle: float = 0.0, hand: int = 1) -> np.ndarray:
    """Steps W, H, D of a grid whose slices slide along H."""
    plain = np.array([[0.7, 0, 0], [0, 0.9, shear], [0, 0, 2.5 * hand]])
    return np.asarray(rotation(angle, -angle, 2 * angle) @ plain)


def linear(points_lps: np.ndarray) -> np.ndarray:
    """An intensity that linear interpolation reproduces exactly."""
    return points_lps @ np.array([3.0, -2.0, 1.5]) + 500


@settings(max_examples=25, deadline=None)
@given(st.floats(-1.5, 1.5), st.floats(-90, 90), st.sampled_from([1, -1]))
def test_world_intensities_are_kept_inside(shear, angle, hand):
    grid = steps(shear, angle, hand)
    index = np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij"), axis=-1)
    array = linear(index[..., ::-1] @ grid.T + ORIGIN)
    volume = Volume.from_steps(array, grid, ORIGIN)
    target = np.stack(np.meshgrid(*map(np.arange, volume.shape), indexing="ij"), axis=-1)
    world = volume.index_to_world(target)
    source = (world - ORIGIN) @ np.linalg.inv(grid).T
    inside = ((source > 1e-6) & (source < np.array(SHAPE[::-1]) - 1 - 1e-6)).all(axis=-1)
    assert inside.any()
    np.testing.assert_allclose(volume.array[inside], linear(world)[inside], atol=1e-6)
    assert np.linalg.det(volume.direction) == pytest.approx(hand)


def test_every_corner_is_covered():
    grid = steps(1.3, 25)
    volume = Volume.from_steps(np.zeros(SHAPE), grid, ORIGIN)
    for k in (0, SHAPE[0] - 1):
        for j in (0, SHAPE[1] - 1):
            for i in (0, SHAPE[2] - 1):
                assert volume.contains(ORIGIN + grid @ (i, j, k))


def test_whole_numbers_stay_whole_outside_is_the_smallest_and_shear_is_said_once(caplog):
    array = np.full((2, *SHAPE), 7, np.int16)
    array[0, 0, 0, 0] = -1000
    volume = Volume.from_steps(array, steps(1.5), ORIGIN)
    assert volume.array.dtype == np.int16
    assert volume.array[0, -1, 0, 0] == -1000
    assert set(np.unique(volume.array[1])) == {7}  # channels are interpolated one by one
    assert len([r for r in caplog.records if r.name == "pumit.geometry"]) == 1


def test_perpendicular_grid_is_left_alone():
    array = np.zeros(SHAPE)
    assert Volume.from_steps(array, steps(0.0, 33), ORIGIN).array is array
    assert not is_sheared(steps(0.0, 33))
    assert is_sheared(steps(0.1, 33))


def test_a_grid_that_is_hardly_sheared_is_left_alone_however_it_is_turned():
    array = np.zeros(SHAPE)
    # Upper triangle: each two axes have a cosine of 0.0009.
    nearly = np.linalg.cholesky(np.full((3, 3), 0.0009) + np.diag([0.9991] * 3)).T
    for angle in range(0, 180, 15):
        assert (
            Volume.from_steps(array, rotation(angle, -angle, 2 * angle) @ nearly, ORIGIN).array
            is array
        )


def test_steps_that_differ_beyond_all_measure_are_refused():
    grid = np.array([[1e-30, 0, 0], [0, 1, 1e25], [0, 0, 1e25]])
    with pytest.raises(VolumeError, match="times the voxels"):
        Volume.from_steps(np.zeros(SHAPE), grid, ORIGIN)


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_step_that_is_no_length_is_refused(bad):
    grid = steps(0.0)
    grid[:, 1] = bad
    with pytest.raises(VolumeError, match="Spacing"):
        Volume.from_steps(np.zeros(SHAPE), grid, ORIGIN)


@pytest.mark.parametrize("side", [1, -1])
def test_planar_image_keeps_its_handedness(side):
    grid = np.diag([0.5, 0.5, 3.0 * side])
    volume = Volume.from_steps(np.zeros((1, 4, 5)), grid, ORIGIN)
    assert volume.spacing_mm == (1e8, 0.5, 0.5)
    assert np.linalg.det(volume.direction) == side
