"""A spacing guessed from the voxels alone."""

import numpy as np
import pytest
from pumit.preprocessing.guessed_spacing import guess_spacing
from scipy import ndimage


def textured(spacing, shape, *, noise=0.0):
    """A smooth random texture, the same in all directions, sampled with a spacing."""
    fine = np.random.default_rng(0).normal(
        size=[int(n * s) for n, s in zip(shape, spacing, strict=True)]
    )
    smooth = ndimage.gaussian_filter(fine, 4)
    smooth /= smooth.std()
    image = smooth[tuple(slice(None, None, int(s)) for s in spacing)]
    return image + noise * np.random.default_rng(1).normal(size=image.shape)


@pytest.mark.parametrize(("ratio", "axis", "noise"), [(2, 0, 0.2), (4, 1, 0.0), (4, 2, 0.2)])
def test_the_coarse_axis_is_found_to_within_a_third(ratio, axis, noise):
    spacing, shape = [1, 1, 1], [96, 96, 96]
    spacing[axis], shape[axis] = ratio, 96 // ratio
    guess = guess_spacing(textured(spacing, shape, noise=noise))
    assert guess[axis] == pytest.approx(ratio, rel=1 / 3)
    assert [g for a, g in enumerate(guess) if a != axis] == [1, 1]


def test_an_isotropic_image_stays_so():
    assert guess_spacing(textured((1, 1, 1), (60, 60, 60))) == (1, 1, 1)
    assert guess_spacing(textured((1, 1, 1), (40, 80, 80)))[0] < 1.2


def test_the_guess_gives_no_axis_more_extent_than_the_others():
    noise = np.random.default_rng(0).normal(size=(20, 60, 80))
    noise = ndimage.gaussian_filter(noise, (0, 6, 6))  # nothing in common between slices
    assert guess_spacing(noise) == (3, 1, 1)


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 9, 9)),
        np.full((4, 9, 9), np.nan),
        np.arange(81).reshape(1, 9, 9),
        np.arange(8).reshape(2, 2, 2),
        np.arange(2).reshape(1, 1, 2),
        np.zeros((3, 4, 9, 9), bool),
    ],
)
def test_images_that_tell_nothing_are_taken_as_isotropic(image):
    assert guess_spacing(image) == (1, 1, 1)


def test_large_whole_numbers_do_not_wrap():
    image = textured((3, 1, 1), (30, 90, 90))
    wide = (image * 10000).clip(-32768, 32767).astype(np.int16)
    assert guess_spacing(wide)[0] == pytest.approx(3, rel=1 / 3)
