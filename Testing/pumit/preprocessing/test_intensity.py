"""The network sees the same whatever the scanner's units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pumit.preprocessing.fields import field_channels


def field(seed: int = 0, shape: tuple[int, int, int] = (6, 16, 16)) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_channels_lie_in_the_unit_interval() -> None:
    image = field()
    image[0, 0, 0], image[1, 1, 1] = 1e6, -1e6
    channels = field_channels(image, np.ones_like(image))
    assert channels.shape == (3, 6, 16, 16)
    assert channels.dtype == np.float32
    assert channels.min() >= 0
    assert channels.max() <= 1 + 1e-6


@pytest.mark.parametrize(("gain", "offset"), [(3.0, 0.0), (1e-3, 0.0), (50.0, -1024.0), (1e4, 7.0)])
def test_gain_and_offset_of_the_intensities_do_not_matter(gain: float, offset: float) -> None:
    image, inside = field(), np.ones((6, 16, 16), np.float32)
    plain = field_channels(image, inside)
    scaled = field_channels(image * gain + offset, inside)
    np.testing.assert_allclose(scaled[0], plain[0], atol=1e-4, rtol=0)
    # A value that rounding moves into the next bin moves the equalised value a little.
    np.testing.assert_allclose(scaled[1], plain[1], atol=2e-2, rtol=0)
    np.testing.assert_allclose(scaled[2], plain[2])


def test_hounsfield_units_with_air_keep_contrast_in_soft_tissue() -> None:
    """Half of the field is air; liver and spleen 30 HU apart must not become one grey."""
    image = np.full((4, 32, 32), -1000.0, np.float32)
    image[:, :, 16:24], image[:, :, 24:] = 60.0, 90.0
    image += 5 * field(shape=(4, 32, 32))
    linear, equal, _ = field_channels(image, np.ones_like(image))
    apart_linear = linear[:, :, 24:].mean() - linear[:, :, 16:24].mean()
    apart_equal = equal[:, :, 24:].mean() - equal[:, :, 16:24].mean()
    assert apart_equal > 2 * apart_linear > 0


def test_order_of_intensities_is_kept() -> None:
    image = field()
    channels = field_channels(image, np.ones_like(image))
    order = image.ravel().argsort()
    for channel in channels[:2]:
        assert (np.diff(channel.ravel()[order]) >= -1e-6).all()


def test_what_lies_outside_is_zero_and_does_not_count() -> None:
    image, inside = field(), np.ones((6, 16, 16), np.float32)
    inside[:, :4] = 0
    image[:, :4] = 1e5
    channels = field_channels(image, inside)
    assert not channels[:, :, :4].any()
    np.testing.assert_allclose(
        channels[:, :, 4:], field_channels(image[:, 4:], inside[:, 4:]), atol=1e-6, rtol=0
    )


def test_a_constant_field_is_flat_and_finite() -> None:
    image = np.full((2, 8, 8), 42.0, np.float32)
    channels = field_channels(image, np.ones_like(image))
    assert np.isfinite(channels).all()
    assert np.unique(channels[0]).size == 1
    assert np.unique(channels[1]).size == 1


def test_a_field_outside_of_the_volume_is_blank() -> None:
    channels = field_channels(field(), np.zeros((6, 16, 16), np.float32))
    assert channels.shape == (3, 6, 16, 16)
    assert not channels.any()


def test_two_values_are_distinguished_however_rare_one_is() -> None:
    """One bright voxel of thousands lies beyond every quantile and must still be seen."""
    image = np.zeros((8, 32, 32), np.float32)
    image[4, 16, 16] = 1.0
    linear, equal, _ = field_channels(image, np.ones_like(image))
    assert linear[4, 16, 16] == 1.0
    assert equal[4, 16, 16] > equal[0, 0, 0]


@given(
    st.lists(st.floats(-3e4, 3e4, width=32), min_size=8, max_size=64),
    st.integers(0, 2**31 - 1),
)
def test_any_intensities_give_finite_channels(values: list[float], seed: int) -> None:
    image = np.array(values, dtype=np.float32).reshape(1, 1, -1)
    inside = (np.random.default_rng(seed).random(image.shape) < 0.7).astype(np.float32)
    channels = field_channels(image, inside)
    assert np.isfinite(channels).all()
    assert channels.min() >= 0
    assert channels.max() <= 1 + 1e-5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e37, 1e38])
def test_huge_intensities_look_like_usual_ones(size: float) -> None:
    image = field().clip(-3.3, 3.3)
    image[0, 0, 0] = 3.3
    expected = field_channels(image, np.ones_like(image))
    found = field_channels(image * np.float32(size), np.ones_like(image))
    np.testing.assert_allclose(found, expected, atol=1e-5)
