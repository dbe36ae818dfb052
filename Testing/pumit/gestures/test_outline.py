"""A lasso is what was drawn: in its slice the outline is the border."""

import numpy as np
import pytest
from pumit.gestures.outline import Outline, apply_outlines

SHAPE = (9, 30, 40)


def ring(axis: int, at: float, middle: tuple[float, float], radius: float) -> np.ndarray:
    """A circle on a slice across an axis, (N, 3)."""
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    points = np.empty((40, 3))
    across = [a for a in range(3) if a != axis]
    points[:, axis] = at
    points[:, across[0]] = middle[0] + radius * np.cos(angle)
    points[:, across[1]] = middle[1] + radius * np.sin(angle)
    return points


def disk(middle: tuple[float, float], radius: float, shape: tuple[int, ...]) -> np.ndarray:
    a, b = np.indices(shape)
    return (a - middle[0]) ** 2 + (b - middle[1]) ** 2 < radius**2


@pytest.fixture
def answer() -> np.ndarray:
    """What a network made of it: a block that is not what was drawn."""
    mask = np.zeros(SHAPE, dtype=bool)
    mask[2:7, 8:20, 18:35] = True
    return mask


@pytest.mark.parametrize(("axis", "at", "middle"), [(0, 4, (14, 15)), (1, 12, (4, 20))])
def test_in_its_slice_the_outline_is_the_border_and_others_follow_the_network(
    answer, axis, at, middle
):
    radius = 7.3 if axis == 0 else 3.3
    drawn = apply_outlines(answer, [Outline(ring(axis, at, middle, radius))])
    here = np.take(drawn, at, axis)
    expected = disk(middle, radius, here.shape)
    assert (here != expected).sum() <= 0.03 * expected.sum()  # 40 corners are no circle
    np.testing.assert_array_equal(np.delete(drawn, at, axis), np.delete(answer, at, axis))


def test_an_oblique_slice_has_one_voxel_in_each_column(answer):
    points = ring(0, 0, (14, 15), 7.3)
    points[:, 0] = 4 + 0.1 * (points[:, 1] - 14) + 0.05 * (points[:, 2] - 15)
    drawn = apply_outlines(np.zeros_like(answer), [Outline(points)])
    assert drawn.sum(axis=0).max() == 1
    assert abs(int(drawn.sum()) - np.pi * 7.3**2) < 13
    assert len(np.unique(np.nonzero(drawn)[0])) > 1


def test_a_lasso_outside_takes_its_area_and_nothing_else(answer):
    drawn = apply_outlines(answer, [Outline(ring(0, 4, (14, 25), 3.3), is_positive=False)])
    expected = answer.copy()
    expected[4][disk((14, 25), 3.3, SHAPE[1:])] = False
    assert (drawn != expected).sum() <= 3


def test_a_lasso_that_adds_leaves_what_was_there(answer):
    drawn = apply_outlines(answer, [Outline(ring(0, 4, (14, 10), 4.3), is_whole=False)])
    assert drawn[4][answer[4]].all()
    assert drawn[4, 14, 10]


def test_two_areas_on_one_slice_both_belong(answer):
    rings = [Outline(ring(0, 4, (14, x), 4.3)) for x in (8, 30)]
    drawn = apply_outlines(answer, rings)
    assert drawn[4, 14, 8]
    assert drawn[4, 14, 30]
    assert not drawn[4, 14, 19]


def test_a_later_click_has_what_it_changed_of_the_slice(answer):
    points = ring(0, 4, (14, 12), 4.3)
    said = answer.copy()
    said[4, 2:5, 2:5] = True  # another piece that the network holds for the structure
    drawn = apply_outlines(said, [Outline(points, later=[(4, 14, 30, True)])])
    assert drawn[4, 14, 30]  # where the click asks for it
    assert drawn[4, 14, 12]
    assert not drawn[4, 3, 3]
    outside = apply_outlines(said, [Outline(points, later=[(7, 14, 30, True), (4, 14, 30, False)])])
    assert not outside[4, 14, 30]


def test_what_encloses_nothing_or_leaves_the_scan_does_no_harm(answer):
    line = np.array([[4, 5, 5], [4, 6, 6], [4, 9, 9]], dtype=float)
    assert apply_outlines(answer, []) is answer
    for outline in (Outline(line), Outline(line[:2]), Outline(ring(0, 30, (14, 15), 5))):
        np.testing.assert_array_equal(apply_outlines(answer, [outline]), answer)
    over = apply_outlines(np.zeros_like(answer), [Outline(ring(0, 4, (0, 0), 6.3))])
    assert over[4, 0, 0]
    assert over.sum() < 60


def test_one_slice_image():
    mask = np.zeros((1, 30, 40), dtype=bool)
    drawn = apply_outlines(mask, [Outline(ring(0, 0.3, (14, 15), 5.3))])
    assert abs(int(drawn.sum()) - np.pi * 5.3**2) < 8
