"""Figures that tell unusual images from usual ones."""

import math

import numpy as np
import pytest
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.inference.tokenizer.image_figures import colour_of, figures_of
from pumit.inference.tokenizer.token_use import TokenUse
from pumit.volume import Volume
from scipy.ndimage import gaussian_filter

USE = TokenUse(np.array([0.5, 0.25, 0.25, 0.0]), 0.3)
USUAL = np.array([0.25, 0.25, 0.25, 0.25])


def made(shape: tuple[int, int, int], width: tuple[float, float, float]) -> np.ndarray:
    """Smooth noise, 0..1, of the given width in voxels along each axis."""
    smooth = gaussian_filter(np.random.default_rng(0).normal(size=shape), width)
    return ((smooth - smooth.min()) / np.ptp(smooth)).astype(np.float32)


def figures(
    seen: np.ndarray,
    back: np.ndarray | None = None,
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> dict[str, float]:
    return figures_of(
        seen,
        seen if back is None else back,
        use=USE,
        usual_shares=USUAL,
        cell=(16, 16, 16),
        spacing=spacing,
        colour=0.0,
    )


def test_detail_lost_compares_with_what_a_coarse_grid_keeps():
    seen = made((40, 70, 50), (2, 2, 2))
    means = seen.copy()
    for d in range(0, 40, 16):
        for h in range(0, 70, 16):
            for w in range(0, 50, 16):
                means[d : d + 16, h : h + 16, w : w + 16] = seen[
                    d : d + 16, h : h + 16, w : w + 16
                ].mean()
    assert figures(seen, means)["detail_lost_db"] == pytest.approx(0, abs=0.7)
    half = (seen + means) / 2
    assert figures(seen, half)["detail_lost_db"] == pytest.approx(-6, abs=0.7)
    assert figures(seen, seen)["detail_lost_db"] < -20
    flat = np.full_like(seen, 0.5)  # without detail there is none to lose
    assert figures(flat, flat)["detail_lost_db"] == pytest.approx(0)


def test_slices_in_a_world_that_is_alike_in_all_directions_are_as_expected():
    for ratio in (1, 6):
        seen = made((96, 96, 96), (4, 4, 4))[::ratio]
        at_ratio = figures(seen, spacing=(ratio, 1.0, 1.0))["slice_step"]
        assert at_ratio == pytest.approx(0, abs=0.15)


def test_wrong_order_and_wrong_spacing_show_in_the_steps():
    seen = made((96, 96, 96), (4, 4, 4))[::6]
    spacing = (6.0, 1.0, 1.0)
    assert figures(seen.swapaxes(0, 1), spacing=spacing)["slice_step"] < -1
    assert figures(seen.swapaxes(0, 1), spacing=spacing)["row_step"] > 1
    assert figures(seen, spacing=(1.0, 1.0, 1.0))["slice_step"] > 1
    for axis in (1, 2):
        swapped = seen.swapaxes(0, axis)
        assert figures(swapped, spacing=spacing)["axis_order"] > 1
    assert figures(seen, spacing=spacing)["axis_order"] == 0
    assert "axis_order" not in figures(made((48, 48, 48), (4, 4, 4)))  # all orders fit
    shuffled = seen[np.random.default_rng(1).permutation(len(seen))]
    assert (
        figures(shuffled, spacing=spacing)["slice_step"]
        > figures(seen, spacing=spacing)["slice_step"]
    )
    narrow = seen[:, :, ::3]
    assert figures(narrow, spacing=(6.0, 1.0, 3.0))["row_step"] < 0.2
    assert figures(narrow, spacing=spacing)["row_step"] > 1


def test_borders_are_reported_from_noise_of_any_width():
    for width in (0, 1.5, 3):
        noise = made((8, 128, 128), (0, width, width))
        assert figures(noise)["border_kurtosis"] == pytest.approx(math.log(3), abs=0.15)
        pieces = np.where(noise > np.quantile(noise, 0.97), 0.8, 0.2).astype(np.float32)
        assert figures(pieces)["border_kurtosis"] > math.log(3) + 0.5


def test_noise_is_rough_and_masks_have_few_grey_levels():
    smooth, noise = made((8, 64, 64), (3, 3, 3)), made((8, 64, 64), (0, 0, 0))
    assert figures(noise)["fineness"] == pytest.approx(0, abs=0.05)
    assert figures(smooth)["fineness"] < -1
    mask = (smooth > 0.5).astype(np.float32)
    assert figures(mask)["grey_levels_nats"] < math.log(2) + 1e-6
    assert figures(smooth)["grey_levels_nats"] > 2


def test_tokens_are_compared_with_the_usual_use():
    measured = figures(made((8, 32, 32), (2, 2, 2)))
    assert measured["token_rarity_nats"] == pytest.approx(math.log(4))
    assert measured["token_mix_nats"] == pytest.approx(math.log(4) - USE.entropy)
    assert measured["cell_entropy_nats"] == 0.3
    image = made((1, 32, 32), (0, 2, 2))
    alone = figures_of(
        image,
        image,
        use=USE,
        usual_shares=None,
        cell=(1, 16, 16),
        spacing=(1e8, 1.0, 1.0),
        colour=0.0,
    )
    assert not {"token_rarity_nats", "token_mix_nats", "slice_step"} & set(alone)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 7), (2, 2, 2), (3, 17, 2), (70, 1, 1)])
def test_small_images_have_finite_figures(shape):
    seen = np.linspace(0, 1, math.prod(shape), dtype=np.float32).reshape(shape)
    measured = figures(seen)
    assert all(math.isfinite(value) for value in measured.values())


def test_only_colour_counts_as_colour():
    grey = np.tile(np.arange(60, dtype=np.uint8).reshape(1, 1, 6, 10), (3, 1, 1, 1))
    spacing = (PLANAR_SLICE_SPACING_MM, 1.0, 1.0)
    assert colour_of(Volume(grey, spacing)) == 0
    red = grey.copy()
    red[0] = 255
    assert colour_of(Volume(red, spacing)) > 0.7
    assert colour_of(Volume(grey.astype(np.int16), spacing)) == 0
    assert colour_of(Volume(grey[0])) == 0
