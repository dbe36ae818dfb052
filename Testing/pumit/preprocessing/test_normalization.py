"""Intensities are scaled as the recipe says, whatever the scan."""

import numpy as np
import pytest
from pumit.preprocessing.normalization import Normalization


def scaled(array: np.ndarray) -> np.ndarray:
    scaling = Normalization().scaling(array)
    return np.clip(array * scaling.factor + scaling.offset, *scaling.limits)


def test_an_image_of_two_values_keeps_both():
    """All that lies above the smallest value is one value, between whose percentiles is nothing."""
    array = np.full((4, 8, 8), -3.0)
    array[1:3, 2:5, 2:5] = 7.0
    np.testing.assert_array_equal(scaled(array), (array > 0).astype(np.float64))


def test_the_smallest_value_is_left_out_of_the_percentiles():
    array = np.full((10, 10, 10), -1000.0)
    array[:2] = np.linspace(0, 200, 200).reshape(2, 10, 10)
    found = scaled(array)
    assert found[2:].max() == 0
    low, high = np.percentile(np.linspace(0, 200, 200), (0.5, 99.5))
    np.testing.assert_allclose(
        found[:2].ravel()[100], (array[:2].ravel()[100] - low) / (high - low)
    )


def test_a_constant_image_is_flat_and_finite():
    found = scaled(np.full((2, 4, 4), 5.0))
    assert np.isfinite(found).all()
    assert np.ptp(found) == 0


@pytest.mark.parametrize("unit", [1e-15, 1e-9, 1.0, 1e9])
def test_the_unit_of_intensities_does_not_matter(rng, unit):
    """Diffusivities in square metres per second are about 1e-9."""
    array = rng.normal(3, 1, (8, 8, 8))
    found = Normalization("zscore", above_minimum=False).scaling(array * unit).scaled(array * unit)
    assert (found.mean(), found.std()) == pytest.approx((0, 1), abs=1e-6)
    flat = np.full((4, 4, 4), 0.1 * unit)
    assert np.abs(Normalization("zscore").scaling(flat).scaled(flat)).max() < 1e-3
