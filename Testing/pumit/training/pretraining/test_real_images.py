"""Crops of real images have the degree that is requested."""

from pathlib import Path

import numpy as np
import pytest
import torch
from labelled_scans import write
from pumit.errors import PumitError, VolumeError
from pumit.preprocessing.fields import Pyramid
from pumit.training.data.volume_cache import VolumeCache
from pumit.training.pretraining.image_source import CACHE_SETTINGS, ImageFile, RealImages, draw_crop


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pyramid(shape: tuple[int, int, int], spacing: tuple[float, float, float]) -> Pyramid:
    d, h, w = (np.linspace(0, 1, n) for n in shape)
    values = 60 + 190 * d[:, None, None] * (0.5 + 0.5 * h[:, None] * w)
    return Pyramid(values.astype(np.uint8), spacing)


@pytest.mark.parametrize("da0", range(6))
def test_an_isotropic_image_gives_every_degree(da0):
    source = pyramid((48, 48, 48), (1.0, 1.0, 1.0))
    shape = (1 if da0 == 5 else 32 >> da0, 32, 32)
    crop = draw_crop([source], da0, shape, random())
    assert crop.shape == (1, *shape)
    assert 0.1 < float(crop.mean()) < 1


def test_thick_slices_are_never_made_thinner():
    """At degree 0 a stack of 4 mm slices is seen with wide voxels, and not with invented slices."""
    source = pyramid((24, 96, 96), (4.0, 1.0, 1.0))
    flat = Pyramid(source.array[:2], source.spacing_mm)
    crop = draw_crop([source], 0, (16, 16, 16), random())
    # 16 slices of at least 2 mm each: much of the depth of 96 mm, so much of the ramp.
    means = crop[0].mean((1, 2))
    assert float(means.max() - means.min()) > 0.1
    assert draw_crop([flat], 0, (16, 64, 64), random()) is None


def test_a_place_without_foreground_is_seldom_taken():
    empty = Pyramid(np.zeros((16, 32, 32), np.uint8), (1.0, 1.0, 1.0))
    generator = random()
    taken = [draw_crop([empty], 0, (16, 16, 16), generator) is not None for _ in range(60)]
    assert 3 <= sum(taken) <= 18


def images(tmp_path: Path, array: np.ndarray, spacing: tuple[float, float, float]) -> RealImages:
    path = write(tmp_path / "a.nrrd", array, spacing)
    return RealImages([ImageFile(path, "a")])


def test_images_are_read_by_percentiles_with_the_coarsest_axis_first(tmp_path):
    array = np.random.default_rng(0).normal(100, 10, (20, 24, 6)).astype(np.float32)
    array[0, 0, 0] = 1e6  # a single bright voxel shall not darken the rest
    image = images(tmp_path, array, (1.0, 1.0, 5.0)).image(0)
    assert image[0].array.shape == (6, 20, 24)
    assert image[0].spacing_mm == pytest.approx((5.0, 1.0, 1.0))
    assert 100 < float(np.median(image[0].array)) < 155
    assert len(image[0].array) > 1


def test_a_slice_serves_as_a_2d_image_only_and_what_is_empty_as_none(tmp_path):
    array = np.random.default_rng(0).integers(1, 255, (1, 40, 40)).astype(np.uint8)
    flat = images(tmp_path, array, (1.0, 1.0, 1.0))
    assert len(flat.image(0)[0].array) == 1
    assert flat.draw(0, (16, 16, 16), random()) is None
    found = flat.draw(5, (1, 16, 16), random())
    assert found[0].shape == (1, 1, 16, 16)
    assert found[1] == "a"
    empty = images(tmp_path, np.zeros((4, 20, 20), np.int16), (1.0, 1.0, 1.0))
    with pytest.raises(VolumeError, match=r"^a: ") as caught:
        empty.draw(0, (16, 16, 16), random())
    assert str(tmp_path) not in str(caught.value)
    with pytest.raises(PumitError, match="no images"):
        RealImages([])


def test_colours_stay_together_and_of_other_channels_one_is_drawn():
    ramp = pyramid((24, 24, 24), (1.0, 1.0, 1.0))
    half = Pyramid((ramp.array // 2).astype(np.uint8), ramp.spacing_mm)
    colour = draw_crop([ramp, half, half], 2, (4, 16, 16), random())
    assert colour.shape == (3, 4, 16, 16)
    torch.testing.assert_close(colour[1], colour[2])
    torch.testing.assert_close(colour[1], colour[0] / 2, atol=0.01, rtol=0)
    modalities = draw_crop([ramp, half], 2, (4, 16, 16), random())
    assert modalities.shape == (1, 4, 16, 16)


def test_images_stay_in_memory_while_there_is_room_and_on_disk_for_good(tmp_path):
    rng = np.random.default_rng(0)
    files = []
    for name in "abc":
        array = rng.integers(1, 255, (8, 20, 20)).astype(np.int16)
        files.append(ImageFile(write(tmp_path / f"{name}.nrrd", array, (1.0, 1.0, 1.0)), name))
    cache = VolumeCache(tmp_path / "cache", CACHE_SETTINGS)
    found = RealImages(files, cache=cache, in_memory=2)
    first = found.image(0)
    assert found.image(0) is first
    found.image(1)
    found.image(2)
    again = found.image(0)
    assert again is not first
    np.testing.assert_array_equal(again[0].array, first[0].array)
    assert len(list((tmp_path / "cache").rglob("levels.npy"))) == 3


def test_processes_share_many_images_out_and_a_few_not(tmp_path):
    many = [ImageFile(tmp_path / str(i), str(i)) for i in range(33)]
    shares = [RealImages(many, share=(k, 2)).files for k in range(2)]
    assert [f.name for f in shares[0][:3]] == ["0", "2", "4"]
    assert sorted(f.name for share in shares for f in share) == sorted(f.name for f in many)
    assert RealImages(many[:31], share=(1, 2)).files == many[:31]


def test_heavier_images_are_drawn_more_often(tmp_path):
    array = np.random.default_rng(0).integers(1, 255, (1, 20, 20)).astype(np.uint8)
    path = write(tmp_path / "a.nrrd", array, (1.0, 1.0, 1.0))
    found = RealImages([ImageFile(path, "rare", 1.0), ImageFile(path, "often", 4.0)])
    generator = random()
    names = [found.draw(5, (1, 16, 16), generator)[1] for _ in range(100)]
    assert 70 <= names.count("often") <= 90


def test_it_is_said_where_scans_have_no_crop_of_a_degree(tmp_path, caplog):
    """2D images have one of degree 5 only; all else would be generated unnoticed."""
    flat = np.random.default_rng(0).integers(1, 900, (1, 40, 40)).astype(np.int16)
    source = images(tmp_path, flat, (1.0, 1.0, 1.0))
    assert source.draw(5, (1, 32, 32), random()) is not None
    assert not caplog.records
    for _ in range(2):
        assert source.draw(2, (8, 32, 32), random()) is None
    (record,) = caplog.records
    assert "none has a crop of degree 2" in record.getMessage()


def test_weights_of_zero_leave_nothing_to_draw():
    with pytest.raises(PumitError, match="All images have a weight of 0"):
        RealImages([ImageFile(Path("a.nrrd"), "a", 0.0)])
