"""The middle line of an area, on shapes whose middle is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path
from PUMITSegmentLib.prompts.geometry import middle_line


def inSpace(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of a plane, (N, 2), in an oblique one in space, and its axes (2, 3)."""
    axes = np.linalg.qr(np.array([[1.0, 2, 3], [0, 1, 4], [5, 6, 0]]).T)[0][:, :2].T
    return flat @ axes + np.array([10.0, -20, 30]), axes


def outline(flat: np.ndarray) -> np.ndarray:
    return inSpace(np.asarray(flat, dtype=float))[0]


def test_the_line_runs_along_the_middle_of_a_bar():
    bar = [(0, 0), (100, 0), (100, 20), (0, 20)]
    line = middle_line(outline(bar), 0.8)
    flat = (line - [10.0, -20, 30]) @ inSpace(np.zeros((1, 2)))[1].T
    assert np.abs(flat[:, 1] - 10).max() < 3
    assert flat[:, 0].min() < 15
    assert flat[:, 0].max() > 85


def test_the_deepest_point_of_a_disc_is_its_middle():
    turn = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    disc = outline(np.stack((np.cos(turn), np.sin(turn)), axis=1) * 30)
    (point,) = middle_line(disc, 1.0)
    assert np.linalg.norm(point - disc.mean(axis=0)) < 1.5


@pytest.mark.parametrize(
    "flat", [[(0, 0)], [(0, 0), (5, 5)], [(0, 0), (5, 5), (10, 10)], [(3, 3)] * 5]
)
def test_what_encloses_nothing_is_a_point(flat):
    points = outline(flat)
    np.testing.assert_allclose(middle_line(points, 0.8), points.mean(axis=0)[None])


@given(seed=st.integers(0, 10**6), inner=st.sampled_from([0.0, 0.5, 0.8, 1.0]))
def test_the_line_lies_within_any_star(seed, inner):
    random = np.random.default_rng(seed)
    turn = np.sort(random.uniform(0, 2 * np.pi, 12))
    if np.diff(np.append(turn, turn[0] + 2 * np.pi)).max() > np.pi:
        return  # the middle may lie outside then
    star = np.stack((np.cos(turn), np.sin(turn)), axis=1) * random.uniform(20, 60, (12, 1))
    line = middle_line(outline(star), inner)
    flat = (line - [10.0, -20, 30]) @ inSpace(np.zeros((1, 2)))[1].T
    if len(line) > 1 or inner == 1.0:
        assert Path(star).contains_points(flat, radius=1e-6).all() or (
            Path(star[::-1]).contains_points(flat, radius=1e-6).all()
        )
