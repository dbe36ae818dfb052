"""Crops of real images have the degree that is asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK
import torch
from pumit.errors import PumitError
from pumit.preprocessing.fields import Pyramid
from pumit.training.real_images import RealImages, draw_crop, load_image


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pyramid(shape: tuple[int, int, int], spacing: tuple[float, float, float]) -> Pyramid:
    d, h, w = (np.linspace(0, 1, n) for n in shape)
    values = 60 + 190 * d[:, None, None] * (0.5 + 0.5 * h[:, None] * w)
    return Pyramid(values.astype(np.uint8), spacing)


def write(path: Path, array: np.ndarray, spacing: tuple[float, float, float]) -> Path:
    image = SimpleITK.GetImageFromArray(array)
    image.SetSpacing(spacing[::-1])
    SimpleITK.WriteImage(image, str(path))
    return path


@pytest.mark.parametrize("da0", range(6))
def test_an_isotropic_image_gives_every_degree(da0: int) -> None:
    source = pyramid((48, 48, 48), (1.0, 1.0, 1.0))
    shape = (1 if da0 == 5 else 32 >> da0, 32, 32)
    crop = draw_crop(source, da0, shape, random())
    assert crop is not None
    assert crop.shape == shape
    assert 0.1 < float(crop.mean()) < 1


def test_thick_slices_are_never_made_thinner() -> None:
    """At degree 0 a stack of 4 mm slices is seen with wide voxels, and not with invented slices."""
    source = pyramid((24, 96, 96), (4.0, 1.0, 1.0))
    flat = Pyramid(source.array[:2], source.spacing_mm)
    crop = draw_crop(source, 0, (16, 16, 16), random())
    assert crop is not None
    # 16 slices of at least 2 mm each: much of the depth of 96 mm, so much of the ramp.
    means = crop.mean((1, 2))
    assert float(means.max() - means.min()) > 0.1
    assert draw_crop(flat, 0, (16, 64, 64), random()) is None


def test_a_place_without_foreground_is_not_taken() -> None:
    empty = Pyramid(np.zeros((16, 32, 32), np.uint8), (1.0, 1.0, 1.0))
    assert draw_crop(empty, 0, (16, 16, 16), random()) is None


def test_images_are_read_by_percentiles_with_the_coarsest_axis_first(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    array = rng.normal(100, 10, (20, 24, 6)).astype(np.float32)
    array[0, 0, 0] = 1e6  # a single bright voxel shall not darken the rest
    image = load_image(write(tmp_path / "a.nii.gz", array, (1.0, 1.0, 5.0)), "a")
    assert image.pyramid.array.shape == (6, 20, 24)
    assert image.pyramid.spacing_mm == pytest.approx((5.0, 1.0, 1.0))
    assert 100 < float(np.median(image.pyramid.array)) < 155
    assert not image.is_flat


def test_a_slice_serves_as_a_2d_image_only(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(1, 255, (1, 40, 40)).astype(np.uint8)
    images = RealImages([(write(tmp_path / "a.nrrd", array, (1.0, 1.0, 1.0)), "a")])
    assert images.images[0].is_flat
    assert images.draw(0, (16, 16, 16), random()) is None
    found = images.draw(5, (1, 16, 16), random())
    assert found is not None
    assert found[0].shape == (1, 1, 16, 16)
    assert found[1] == "a"


def test_no_images_are_refused() -> None:
    with pytest.raises(PumitError, match="no images"):
        RealImages([])
