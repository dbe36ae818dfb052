"""Fields show the right place of a volume, without aliasing and at a bounded cost."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pumit.preprocessing.fields import Field, Pyramid, averaged, field_channels, field_shape
from pumit.preprocessing.network_axes import depth_first
from scipy import ndimage


def smooth(shape: tuple[int, int, int], sigma: float = 1.5) -> np.ndarray:
    noise = np.random.default_rng(0).standard_normal(shape)
    return ndimage.gaussian_filter(noise, sigma).astype(np.float32)


def ramp(shape: tuple[int, int, int], slope: tuple[float, float, float]) -> np.ndarray:
    d, h, w = np.indices(shape)
    return (slope[0] * d + slope[1] * h + slope[2] * w).astype(np.float32)


def field_of(
    centre: tuple[float, float, float],
    step: tuple[float, float, float],
    shape: tuple[int, int, int],
) -> Field:
    return Field(centre, step, shape, 1.0, 0)


def reference(array: np.ndarray, field: Field) -> np.ndarray:
    """The field by slow trilinear look-up, edges replicated."""
    index = np.stack(np.indices(field.shape), axis=-1).reshape(-1, 3)
    at = field.to_volume(index).T
    return ndimage.map_coordinates(array, at, order=1, mode="nearest").reshape(field.shape)


# Field


def test_field_and_volume_indices_round_trip(rng):
    field = field_of((10.3, 20.7, -5.1), (2.5, 0.7, 1.3), (6, 16, 12))
    points = rng.uniform(-50, 50, (40, 3))
    np.testing.assert_allclose(field.to_field(field.to_volume(points)), points, atol=1e-9)
    low, high = field.bounds()  # the outer faces of the outer voxels
    np.testing.assert_allclose(low, field.to_volume((-0.5, -0.5, -0.5)))
    np.testing.assert_allclose(high, field.to_volume((5.5, 15.5, 11.5)))


def test_depth_halves_with_every_degree_to_one_slice_whose_prompts_have_no_depth():
    assert [field_shape(da0, 48)[0] for da0 in range(6)] == [48, 24, 12, 6, 3, 1]
    assert Field((0, 0, 0), (1, 1, 1), (1, 8, 8), 64.0, 5).prompt_ratio == 0.0
    assert Field((0, 0, 0), (1, 1, 1), (8, 8, 8), 3.0, 1).prompt_ratio == 3.0
    planar = Field((0.0, 30.0, 35.0), (1.0, 1.5, 1.5), field_shape(5, 64), 1e8, 5)
    image, inside = Pyramid(smooth((1, 60, 70)), (1e8, 1.0, 1.0)).sample(planar)
    assert image.shape == (1, 64, 64)
    assert inside[0, 16:48, 16:48].all()


# depth_first


def test_the_coarsest_axis_becomes_depth_or_a_single_slice_whatever_its_pixels():
    for spacing, order in (
        ((1.0, 5.0, 1.0), (1, 0, 2)),
        ((1.0, 1.0, 5.0), (2, 0, 1)),
        ((1.0, 1.0, 1.005), (0, 1, 2)),
        ((1e8, 0.5, 0.3), (0, 1, 2)),
    ):
        assert depth_first(spacing) == order
    # A slice of 1 mm with pixels of 1 x 3 mm has its depth along the slice, not the pixels.
    for shape, order in (((40, 1, 50), (1, 0, 2)), ((40, 50, 1), (2, 0, 1))):
        for spacing in ((3.0, 1.0, 1.0), (1.0, 3.0, 1.0), (1.0, 1.0, 3.0)):
            assert depth_first(spacing, shape) == order


# Pyramid.sample


@pytest.mark.parametrize(
    "field",
    [
        field_of((10, 14, 18), (1, 1, 1), (8, 8, 8)),
        field_of((9.4, 13.2, 17.7), (1.0, 0.6, 0.8), (6, 10, 12)),
        field_of((9.4, 13.2, 17.7), (1.3, 1.9, 1.1), (6, 6, 8)),
        field_of((2.2, 3.2, 30.2), (1, 1, 1), (8, 12, 12)),
    ],
    ids=["on voxels", "between voxels", "coarser", "over the edge"],
)
def test_sample_at_full_resolution_equals_trilinear_look_up(field):
    array = smooth((21, 29, 35))
    image, inside = Pyramid(array, (1.0, 1.0, 1.0)).sample(field)
    index = np.stack(np.indices(field.shape), axis=-1)
    at = field.to_volume(index)
    expected_inside = ((at > -0.5) & (at < np.array(array.shape) - 0.5)).all(-1)
    np.testing.assert_array_equal(inside > 0, expected_inside)
    np.testing.assert_allclose(
        image[expected_inside], reference(array, field)[expected_inside], atol=2e-4
    )


def test_every_voxel_type_is_sampled():
    for dtype in (bool, np.uint8, np.int16, np.uint16, np.int32, np.float64, ">i2"):
        array = (np.arange(8 * 10 * 12).reshape(8, 10, 12) % 2).astype(dtype)
        image, _ = Pyramid(array, (1.0, 1.0, 1.0)).sample(field_of((4, 4, 4), (1, 1, 1), (5, 5, 5)))
        np.testing.assert_allclose(image, array[2:7, 2:7, 2:7].astype(float), atol=1e-4)
        assert image.dtype == np.float32


@pytest.mark.parametrize("step", [1.0, 2.0, 3.3, 5.0, 8.0])
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (4.0, 1.0, 1.0), (1.0, 1.0, 2.0)])
def test_a_ramp_keeps_its_values_at_every_level(step, spacing):
    """Averages of a linear function are its values: a shifted level would show at once."""
    array = ramp((64, 96, 96), (0.5, -1.0, 2.0))
    steps = tuple(step / s if s < step else 1.0 for s in spacing)
    field = field_of((31.5, 47.5, 47.5), steps, (4, 8, 8))  # type: ignore[arg-type]
    image, inside = Pyramid(array, spacing).sample(field)
    at = field.to_volume(np.stack(np.indices(field.shape), axis=-1))
    assert inside.all()
    np.testing.assert_allclose(image, at @ np.array([0.5, -1.0, 2.0]), atol=2e-3)


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (1.0, 1.0, 2.0), (5.0, 1.0, 3.0)])
def test_a_coarse_field_keeps_the_mean_and_does_not_alias(spacing):
    """A chequerboard finer than the field becomes grey, in-plane spacings equal or not."""
    array = (np.indices((64, 128, 128)).sum(0) % 2).astype(np.float32)
    steps = (max(1.0, 8 / spacing[0]), 8 / spacing[1], 8 / spacing[2])
    field = field_of((31.5, 63.5, 63.5), steps, (6, 12, 12))
    image, inside = Pyramid(array, spacing).sample(field)
    assert inside.all()
    np.testing.assert_allclose(image, 0.5, atol=0.05)


def test_thick_slices_average_the_thin_ones_they_span():
    array = np.zeros((24, 12, 12), dtype=np.float32)
    array[1::4] = 1.0  # one of every four slices
    field = field_of((11.5, 5.5, 5.5), (4.0, 1.0, 1.0), (6, 4, 4))
    image, _ = Pyramid(array, (1.0, 1.0, 1.0)).sample(field)
    np.testing.assert_allclose(image, 0.25, atol=0.02)


def test_a_thick_slice_half_outside_averages_what_is_inside():
    array = np.full((8, 12, 12), 5.0, dtype=np.float32)
    pyramid = Pyramid(array, (1.0, 1.0, 1.0))
    image, inside = pyramid.sample(field_of((-0.5, 5.5, 5.5), (4.0, 1.0, 1.0), (2, 4, 4)))
    np.testing.assert_allclose(image[1], 5.0)
    assert not inside[0].any()
    assert inside[1].all()
    image, inside = pyramid.sample(field_of((500.0, -500.0, 3.0), (1, 1, 1), (4, 4, 4)))
    assert not inside.any()  # far outside it is empty and harmless
    assert np.isfinite(image).all()


def test_a_turned_field_equals_a_look_up_point_by_point(rng):
    array = smooth((21, 29, 35))
    spacing = np.array([2.0, 1.0, 0.8])
    pyramid = Pyramid(array, (2.0, 1.0, 0.8))
    labels = Pyramid((array * 9).astype(np.int16), (2.0, 1.0, 0.8))
    for _ in range(5):
        turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        field = field_of((9.4, 13.2, 17.7), (1.1, 1.2, 1.3), (5, 7, 6))
        offset = np.stack(np.indices(field.shape), axis=-1) - (np.array(field.shape) - 1) / 2
        at = offset * field.step * spacing @ turn.T / spacing + field.centre_index
        image, inside = pyramid.sample(field, turn)
        expected_inside = ((at > -0.5) & (at < np.array(array.shape) - 0.5)).all(-1)
        expected = ndimage.map_coordinates(array, np.moveaxis(at, -1, 0), order=1, mode="nearest")
        np.testing.assert_array_equal(inside > 0, expected_inside)
        np.testing.assert_allclose(image, expected, atol=1e-4)
        nearest = at.round().astype(int).clip(0, np.array(array.shape) - 1)
        expected_labels = labels.array[tuple(np.moveaxis(nearest, -1, 0))]
        np.testing.assert_array_equal(
            labels.sample_nearest(field, turn), np.where(expected_inside, expected_labels, 0)
        )


# Pyramid.levels


def test_levels_become_isotropic_before_depth_is_halved():
    pyramid = Pyramid(np.zeros((64, 128, 128), np.int16), (4.0, 1.0, 1.0))
    factors = [factor for _, factor in pyramid.levels]
    assert factors == [(1, 1, 1), (1, 2, 2), (1, 4, 4), (2, 8, 8), (4, 16, 16)]
    # One half as large as the volume is not kept.
    assert [level is None for level, _ in pyramid.levels] == [True, True, False, False, False]


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (1.0, 1.0, 2.5), (8.0, 1.0, 1.0)])
def test_a_coarse_field_reads_a_coarse_level(spacing):
    """The voxels read stay within a small multiple of the field's own, whatever the volume."""
    pyramid = Pyramid(np.zeros((64, 256, 256), np.int16), spacing)
    step = tuple(max(1.0, 16.0 / s) for s in spacing)
    field = field_of((31.5, 127.5, 127.5), step, (4, 16, 16))  # type: ignore[arg-type]
    tensor, factor = pyramid._level_for(np.asarray(step))
    region, _ = pyramid._region(tensor, factor, *field.bounds())
    # Two times finer along each axis at most, with a margin of two voxels on every side.
    assert region.size <= np.prod([2 * 2 * n + 6 for n in field.shape])


@pytest.mark.parametrize("shape", [(33, 65, 66), (40, 64, 12), (4, 64, 64)])
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (5.0, 0.7, 0.7), (1.0, 4.0, 1.0)])
def test_levels_are_the_averages_that_pooling_gives(shape, spacing):
    array = np.random.default_rng(1).integers(-1024, 3000, shape).astype(np.int16)
    pyramid = Pyramid(array, spacing)
    levels, everywhere = pyramid.levels, (np.zeros(3), np.array(shape))
    before, factor = torch.from_numpy(array).float(), (1, 1, 1)
    assert len(levels) > 1
    for level, of_volume in levels[1:]:
        found, offset = pyramid._region(level, of_volume, *everywhere)
        pool = [b // a for a, b in zip(factor, of_volume, strict=True)]
        expected = torch.nn.functional.avg_pool3d(before[None, None], pool)[0, 0]
        assert offset == (0, 0, 0)
        np.testing.assert_array_equal(found, expected.numpy())
        before, factor = expected, of_volume


def test_means_of_huge_values_stay_finite():
    array = np.full((4, 4, 4), 2e38, np.float32)
    array[0] = -3e38
    array[1, 1, 1] = 3
    found = averaged(array, (2, 2, 2))
    exact = array.astype(np.float64).reshape(2, 2, 2, 2, 2, 2).mean(axis=(1, 3, 5))
    np.testing.assert_allclose(found, exact, rtol=1e-6)


# field_channels


def noise(seed: int = 0, shape: tuple[int, int, int] = (6, 16, 16)) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("gain", "offset"), [(3.0, 0.0), (1e-3, 0.0), (50.0, -1024.0), (1e4, 7.0)])
def test_gain_and_offset_of_the_intensities_do_not_matter(gain, offset):
    image, inside = noise(), np.ones((6, 16, 16), np.float32)
    plain = field_channels(image, inside)
    scaled = field_channels(image * gain + offset, inside)
    np.testing.assert_allclose(scaled[0], plain[0], atol=1e-4, rtol=0)
    # A value that rounding moves into the next bin moves the equalised value a little.
    np.testing.assert_allclose(scaled[1], plain[1], atol=2e-2, rtol=0)
    np.testing.assert_allclose(scaled[2], plain[2])


def test_hounsfield_units_with_air_keep_contrast_in_soft_tissue():
    """Half of the field is air; liver and spleen 30 HU apart must not become one grey."""
    image = np.full((4, 32, 32), -1000.0, np.float32)
    image[:, :, 16:24], image[:, :, 24:] = 60.0, 90.0
    image += 5 * noise(shape=(4, 32, 32))
    linear, equal, _ = field_channels(image, np.ones_like(image))
    apart_linear = linear[:, :, 24:].mean() - linear[:, :, 16:24].mean()
    apart_equal = equal[:, :, 24:].mean() - equal[:, :, 16:24].mean()
    assert apart_equal > 2 * apart_linear > 0


def test_order_of_intensities_is_kept():
    image = noise()
    channels = field_channels(image, np.ones_like(image))
    order = image.ravel().argsort()
    for channel in channels[:2]:
        assert (np.diff(channel.ravel()[order]) >= -1e-6).all()


def test_what_lies_outside_is_zero_and_does_not_count():
    image, inside = noise(), np.ones((6, 16, 16), np.float32)
    inside[:, :4] = 0
    image[:, :4] = 1e5
    channels = field_channels(image, inside)
    assert not channels[:, :, :4].any()
    np.testing.assert_allclose(
        channels[:, :, 4:], field_channels(image[:, 4:], inside[:, 4:]), atol=1e-6, rtol=0
    )


def test_a_constant_field_is_flat_and_one_outside_of_the_volume_is_blank():
    image = np.full((2, 8, 8), 42.0, np.float32)
    channels = field_channels(image, np.ones_like(image))
    assert np.isfinite(channels).all()
    assert np.unique(channels[0]).size == np.unique(channels[1]).size == 1
    blank = field_channels(noise(), np.zeros((6, 16, 16), np.float32))
    assert blank.shape == (3, 6, 16, 16)
    assert not blank.any()


def test_two_values_are_distinguished_however_rare_one_is():
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
def test_any_intensities_give_finite_channels(values, seed):
    image = np.array(values, dtype=np.float32).reshape(1, 1, -1)
    inside = (np.random.default_rng(seed).random(image.shape) < 0.7).astype(np.float32)
    channels = field_channels(image, inside)
    assert np.isfinite(channels).all()
    assert channels.min() >= 0
    assert channels.max() <= 1 + 1e-5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e37, 1e38])
def test_huge_intensities_look_like_usual_ones(size):
    image = noise().clip(-3.3, 3.3)
    image[0, 0, 0] = 3.3
    expected = field_channels(image, np.ones_like(image))
    found = field_channels(image * np.float32(size), np.ones_like(image))
    np.testing.assert_allclose(found, expected, atol=1e-5)
