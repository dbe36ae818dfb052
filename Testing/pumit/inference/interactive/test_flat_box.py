"""A box on a slice becomes one in space, on oblique slices too."""

from __future__ import annotations

import numpy as np
import pytest
from pumit.inference.interactive.index_prompts import extrude_flat_box, to_index
from pumit.prompts import BoxPrompt
from pumit.volume import Volume

SQUARE = np.array([(0.0, 0.0, 0.0), (20.0, 0.0, 0.0), (20.0, 10.0, 0.0), (0.0, 10.0, 0.0)])


def rotation(seed: int) -> np.ndarray:
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    return q


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1), (3, 1, 2, 0)])
@pytest.mark.parametrize("seed", range(5))
def test_flat_box_is_as_deep_as_its_sides_mean(order: tuple[int, ...], seed: int) -> None:
    turned = SQUARE[list(order)] @ rotation(seed).T + 30.0
    found = extrude_flat_box(turned)
    assert found.shape == (8, 3)
    upright = (found - 30.0) @ rotation(seed)
    np.testing.assert_allclose(upright.min(0), (0, 0, -7.5), atol=1e-9)
    np.testing.assert_allclose(upright.max(0), (20, 10, 7.5), atol=1e-9)


@pytest.mark.parametrize("axis", range(3))
def test_flat_box_of_two_corners_is_extruded_as_well(axis: int) -> None:
    upper = np.array([20.0, 20.0, 20.0])
    upper[axis] = 0.0
    found = extrude_flat_box(BoxPrompt.from_bounds((0, 0, 0), upper).corners_lps)
    assert np.ptp(found, axis=0) == pytest.approx((20, 20, 20))
    assert found.mean(axis=0) == pytest.approx(upper / 2)


def test_box_with_depth_stays_as_it_is() -> None:
    corners = BoxPrompt.from_bounds((0, 0, 0), (20, 10, 3)).corners_lps
    assert np.array_equal(extrude_flat_box(corners), np.array(corners))


def test_flat_box_on_a_volume_spans_slices_and_on_an_image_does_not() -> None:
    volume = Volume(np.zeros((20, 40, 40), np.int16), (2.0, 1.0, 1.0))
    box = BoxPrompt.from_bounds((10, 10, 18), (22, 22, 18))
    low, high = to_index([box], volume, (0, 1, 2)).box or pytest.fail("no box")
    np.testing.assert_allclose(low, (6, 10, 10))
    np.testing.assert_allclose(high, (12, 22, 22))
    image = Volume(np.zeros((1, 40, 40), np.int16), (1e8, 1.0, 1.0))
    low, high = to_index([box], image, (0, 1, 2)).box or pytest.fail("no box")
    np.testing.assert_allclose(high - low, (0, 12, 12))


def test_a_box_that_was_drawn_on_one_slice_is_known_as_such() -> None:
    volume = Volume(np.zeros((20, 40, 40), np.int16), (2.0, 1.0, 1.0))
    flat = BoxPrompt.from_bounds((10, 10, 18), (22, 22, 18))
    whole = BoxPrompt.from_bounds((10, 10, 10), (22, 22, 22))
    assert to_index([flat], volume, (0, 1, 2)).is_depth_guessed
    assert not to_index([flat, whole], volume, (0, 1, 2)).is_depth_guessed
    image = Volume(np.zeros((1, 40, 40), np.int16), (1e8, 1.0, 1.0))
    assert not to_index([flat], image, (0, 1, 2)).is_depth_guessed
