"""Answers move between a field's grid and the volume's without a shift."""

import tracemalloc

import numpy as np
import pytest
from pumit.inference.interactive.grid_transfer import (
    LogitBox,
    covered_box,
    on_box,
    patch_of,
    to_field,
    to_volume,
)
from pumit.preprocessing.fields import Field
from scipy import ndimage

SHAPE = (20, 40, 44)

FIELDS = {
    "the volume's own voxels": Field((10.0, 19.0, 21.0), (1.0, 1.0, 1.0), (9, 17, 17), 1.0, 0),
    "coarser": Field((9.7, 18.3, 20.6), (1.7, 2.2, 1.9), (8, 16, 16), 1.0, 0),
    "finer": Field((9.7, 18.3, 20.6), (1.0, 0.6, 0.4), (4, 24, 24), 1.0, 0),
    "over the edge": Field((1.2, 38.1, 2.3), (1.5, 1.3, 1.2), (8, 16, 16), 1.0, 0),
    "larger than the volume": Field((9.5, 19.5, 21.5), (3.0, 3.0, 3.0), (12, 24, 24), 1.0, 0),
    "one slice": Field((7.0, 18.3, 20.7), (1.0, 1.3, 1.2), (1, 16, 16), 40.0, 5),
}


def logits_of(shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(shape)
    smooth = ndimage.gaussian_filter(noise, [0 if n == 1 else 1.5 for n in shape])
    return (smooth / smooth.std() * 3).astype(np.float32)


def on_volume(logits: np.ndarray, field: Field) -> tuple[np.ndarray, np.ndarray]:
    """Slow reference: logits at every voxel of the volume, and which voxels the field covers."""
    index = np.stack(np.indices(SHAPE), axis=-1)
    at = field.to_field(index.reshape(-1, 3)).T
    values = ndimage.map_coordinates(logits, at, order=1, mode="nearest").reshape(SHAPE)
    low, high = field.bounds()
    covered = ((index >= low - 1e-9) & (index <= high + 1e-9)).all(-1)
    return values, covered


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_answers_on_the_volume_equal_trilinear_look_up(field):
    logits = logits_of(field.shape)
    patch = to_volume(logits, field, SHAPE)
    expected, covered = on_volume(logits, field)
    np.testing.assert_allclose(patch.logits, expected[patch.window], atol=1e-3)
    mask = np.zeros(SHAPE, dtype=bool)
    mask[patch.window] = patch.logits > 0
    np.testing.assert_array_equal(mask, (expected > 0) & covered)
    # All of the field, background too.
    box = covered_box(field, SHAPE)
    whole = on_box(logits, field, box)
    np.testing.assert_allclose(whole.logits, expected[whole.window], atol=1e-3)
    window = np.zeros(SHAPE, dtype=bool)
    window[whole.window] = True
    np.testing.assert_array_equal(window, covered)


def test_only_the_box_of_the_foreground_is_computed():
    field = FIELDS["the volume's own voxels"]
    logits = np.full(field.shape, -5.0, np.float32)
    logits[4, 8:10, 8] = 5.0
    patch = to_volume(logits, field, SHAPE)
    assert patch.logits.size <= 5 * 6 * 5


def test_nothing_is_no_patch_and_no_patch_is_background():
    coarse = FIELDS["coarser"]
    assert to_volume(np.full(coarse.shape, -1.0, np.float32), coarse, SHAPE) is None
    np.testing.assert_array_equal(to_field(None, coarse), np.zeros(coarse.shape))
    field = Field((500.0, 20.0, 20.0), (1.0, 1.0, 1.0), (4, 8, 8), 1.0, 0)
    assert to_volume(np.ones(field.shape, np.float32), field, SHAPE) is None
    assert covered_box(field, SHAPE) is None


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_probabilities_in_a_field_equal_trilinear_look_up(field):
    start = (3, 5, 7)
    logits = logits_of((10, 25, 20), seed=1)
    out = to_field(LogitBox(start, logits), field)
    index = np.stack(np.indices(field.shape), axis=-1)
    at = field.to_volume(index) - np.array(start)
    values = ndimage.map_coordinates(logits, at.reshape(-1, 3).T, order=1, mode="nearest").reshape(
        field.shape
    )
    inside = ((at > -0.5) & (at < np.array(logits.shape) - 0.5)).all(-1)
    np.testing.assert_allclose(out[inside], 1 / (1 + np.exp(-values[inside])), atol=1e-3)
    assert not out[~inside].any()


def test_a_mask_as_large_as_the_scan_becomes_logits_in_single_precision_only():
    mask = np.ones((40, 200, 200), dtype=bool)
    tracemalloc.start()
    try:
        patch = patch_of(mask)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert patch.logits.dtype == np.float32
    assert peak < 1.2 * patch.logits.nbytes
