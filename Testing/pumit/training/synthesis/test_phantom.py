"""The phantom is one scan for everybody: its organs are where they are said to be."""

import numpy as np
import pytest
from pumit.training.synthesis.phantom import ORGANS, SHAPE, SPACING_MM, Phantom, torso_phantom

NAMES = {*ORGANS, "liver lesion", "aorta"}


@pytest.fixture(scope="module")
def phantom() -> Phantom:
    return torso_phantom()


def test_every_organ_has_a_mask_on_the_scans_grid(phantom):
    assert phantom.masks.keys() == NAMES
    assert phantom.volume.shape == SHAPE
    assert phantom.volume.spacing_mm == SPACING_MM
    assert phantom.volume.array.dtype == np.int16
    for mask in phantom.masks.values():
        assert mask.shape == SHAPE
        assert mask.dtype == np.bool_
        assert mask.sum() > 500
    assert np.sum([phantom.masks[name] for name in ORGANS], axis=0).max() == 1
    assert not (phantom.masks["liver lesion"] & ~phantom.masks["liver"]).any()


def test_intensities_are_those_of_contrast_enhanced_ct(phantom):
    hu = phantom.volume.array
    assert hu.min() >= -1024
    assert np.median(hu[:, :5]) < -900  # air in front of the patient
    for name, (_, _, value) in ORGANS.items():
        assert abs(float(np.median(hu[phantom.masks[name]])) - value) < 30, name
    assert np.median(hu[phantom.masks["liver lesion"]]) < 70


def test_sides_are_the_patients(phantom):
    """LPS: left is larger L, so that the demonstration's names are right."""
    for name, mask in phantom.masks.items():
        index = phantom.volume.world_to_index(phantom.centre_lps(name))
        assert mask[tuple(np.round(index).astype(int))], name
    left, right = (phantom.centre_lps(f"{side} kidney") for side in ("left", "right"))
    assert left[0] > 0 > right[0]
    assert phantom.centre_lps("liver")[0] < 0
    assert phantom.centre_lps("left kidney")[1] > phantom.centre_lps("stomach")[1]


def test_the_seed_decides(phantom):
    assert (torso_phantom(8).volume.array != phantom.volume.array).any()
