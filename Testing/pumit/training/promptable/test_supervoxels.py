"""Supervoxels and their merging: regions of an image that has known ones."""

import numpy as np
import pytest
from pumit.training.promptable.supervoxels import merge_regions, region_pieces, supervoxels
from scipy import ndimage


def two_halves(noise: float = 0.05) -> np.ndarray:
    """Dark half, bright half, (12, 24, 24)."""
    rng = np.random.default_rng(0)
    image = np.zeros((12, 24, 24), np.float32)
    image[:, :, 12:] = 0.8
    return (image + noise * rng.standard_normal(image.shape)).astype(np.float32)


@pytest.mark.parametrize("shape", [(12, 24, 24), (1, 32, 32)])
def test_every_voxel_belongs_to_a_connected_supervoxel(shape):
    image = np.random.default_rng(1).random(shape).astype(np.float32)
    labels = supervoxels(image, 1.0, 2.0)
    assert labels.min() == 1
    for label in np.unique(labels)[:10]:
        assert ndimage.label(labels == label, np.ones((3, 3, 3)))[1] == 1


def test_merging_keeps_a_border_and_removes_noise():
    image = two_halves()
    labels = supervoxels(image, 1.0, 1.0)
    regions = merge_regions(image, labels, 20.0)
    left, right = regions[:, :, :10], regions[:, :, 14:]
    assert np.bincount(left.ravel()).max() > 0.95 * left.size
    assert np.bincount(right.ravel()).max() > 0.95 * right.size
    assert np.bincount(left.ravel()).argmax() != np.bincount(right.ravel()).argmax()
    # A larger scale leaves fewer regions.
    noisy = two_halves(0.1)
    labels = supervoxels(noisy, 0.7, 1.0)
    counts = [merge_regions(noisy, labels, scale).max() for scale in (0.0, 1.0, 30.0)]
    assert counts[0] > counts[1] > counts[2]


def test_without_a_scale_only_what_is_equal_merges():
    image = np.zeros((1, 4, 6), np.float32)
    image[..., 3:] = 1.0
    labels = np.arange(1, 25, dtype=np.int32).reshape(1, 4, 6)
    regions = merge_regions(image, labels, 0.0)
    assert set(np.unique(regions)) == {1, 2}
    assert (regions[..., :3] == regions[0, 0, 0]).all()


def test_region_pieces_are_usable_targets():
    image, inside = two_halves(), np.ones((12, 24, 24), bool)
    image[:, 12:] = 0.4 + 0.5 * image[:, 12:]  # four quarters
    inside[:, :2] = False
    found = []
    for seed in range(8):
        found += region_pieces(image, inside, 1.5, np.random.default_rng(seed))
    assert found
    for piece in found:
        assert piece.dtype == bool
        assert piece.mean() >= 0.004
        assert not piece[:, 0].any()
