"""A scan of any size becomes the classifier's grid, the same however it is stored."""

import numpy as np
import pytest
import torch
from pumit.errors import CheckpointError, VolumeError
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.preprocessing.normalization import Normalization
from pumit.volume import Volume
from torch.nn import functional as F

BYTES = Normalization("range", (0, 255), (0, 1))


def test_a_medmnist_image_is_enlarged_as_in_the_source(rng):
    """28^3 bytes to 0..1 and then 40^3 by trilinear interpolation."""
    array = rng.integers(0, 256, (28, 28, 28)).astype(np.uint8)
    form = ClassifierInput((40, 40, 40), 3, BYTES, "stored")
    image = form.prepare(Volume(array))
    x = torch.from_numpy(array)[None, None].float() / 255
    expected = F.interpolate(x, size=(40, 40, 40), mode="trilinear", align_corners=False)
    torch.testing.assert_close(image, expected[0], atol=1e-5, rtol=0)


def test_an_image_of_the_right_size_is_only_scaled(rng):
    array = rng.integers(0, 256, (8, 9, 10)).astype(np.uint8)
    before = array.copy()
    image = ClassifierInput((8, 9, 10), 1, BYTES, "stored").prepare(Volume(array))
    np.testing.assert_allclose(image[0].numpy(), array / 255, atol=1e-6)
    np.testing.assert_array_equal(array, before)


def test_a_scan_looks_the_same_however_it_is_stored(rng):
    array = rng.normal(size=(6, 12, 10))
    volume = Volume(array, (3.0, 1.0, 1.0))
    turned = Volume(
        array.transpose(2, 0, 1)[:, ::-1],
        (1.0, 3.0, 1.0),
        direction=np.array([[0, 0, 1.0], [1, 0, 0], [0, -1.0, 0]]),
    )
    form = ClassifierInput((4, 8, 8), 1)
    torch.testing.assert_close(form.prepare(turned), form.prepare(volume))


def test_colours_are_kept_and_grey_stands_for_all(rng):
    colours = rng.integers(0, 256, (3, 1, 8, 8)).astype(np.uint8)
    form = ClassifierInput((1, 8, 8), 3, BYTES, "stored")
    image = form.prepare(Volume(colours))
    np.testing.assert_allclose(image.numpy(), colours / 255, atol=1e-6)
    assert form.prepare(Volume(colours[0])).shape == (1, 1, 8, 8)
    opaque = np.concatenate((colours, np.full_like(colours[:1], 255)))
    torch.testing.assert_close(form.prepare(Volume(opaque)), image)


def test_the_recipe_says_it_all():
    form = ClassifierInput((4, 5, 6), 3, Normalization("zscore"), "stored", 0.5)
    assert ClassifierInput.from_recipe({"input": form.as_recipe()}) == form


@pytest.mark.parametrize(
    "change",
    [
        {"size": [4, 4]},
        {"size": [4, 4, 0]},
        {"channels": 0},
        {"orientation": "upwards"},
        {"factor": float("nan")},
        {"intensity": {"method": "magic"}},
        {"intensity": None},
    ],
)
def test_a_damaged_recipe_is_refused(change):
    row = {**ClassifierInput((4, 4, 4), 1).as_recipe(), **change}
    with pytest.raises(CheckpointError):
        ClassifierInput.from_recipe({"input": row})
    with pytest.raises(CheckpointError):
        ClassifierInput.from_recipe({})


@pytest.mark.parametrize(
    ("scan", "network", "dtype"), [(4, 3, np.int16), (3, 1, np.float32), (2, 3, np.uint8)]
)
def test_channels_that_are_no_colours_are_not_left_out(scan, network, dtype):
    """Of four sequences of MR, a network of three channels would see the first one only."""
    volume = Volume(np.arange(scan * 64).reshape(scan, 4, 4, 4).astype(dtype))
    with pytest.raises(VolumeError, match=f"{scan} channels, but the classifier needs {network}"):
        ClassifierInput((4, 4, 4), network).prepare(volume)


@pytest.mark.parametrize("method", ["percentiles", "zscore", "range"])
def test_a_voxel_that_is_no_number_is_refused(rng, method):
    array = rng.normal(size=(4, 4, 4))
    array[1, 2, 3] = np.nan
    with pytest.raises(VolumeError, match="NaN"):
        ClassifierInput((2, 2, 2), 1, Normalization(method, (0, 1), (0, 1))).prepare(Volume(array))
