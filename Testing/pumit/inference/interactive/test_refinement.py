"""Windows are blended into a coarse answer without a seam, and where something is foreground."""

import numpy as np
from pumit.inference.interactive.grid_transfer import LogitBox
from pumit.inference.interactive.refinement import Window, merge
from pumit.preprocessing.fields import Field
from scipy import ndimage

SHAPE = (30, 40, 44)


def blended_everywhere(coarse: LogitBox, windows: list[Window]) -> np.ndarray:
    """Slow reference: the weighted mean at every voxel of the volume."""
    total = np.full(SHAPE, -4.0)
    total[coarse.window] = coarse.logits.clip(-8, 8)
    total *= 0.15
    weights = np.full(SHAPE, 0.15)
    index = np.stack(np.indices(SHAPE), axis=-1).reshape(-1, 3)
    for window in windows:
        at = window.field.to_field(index).T
        low, high = window.field.bounds()
        covered = ((index >= low - 1e-9) & (index <= high + 1e-9)).all(-1)
        weight = covered.astype(np.float64)
        for place, n in zip(at, window.field.shape, strict=True):
            middles = (np.arange(n) + 0.5) / n
            ramp = (np.minimum(middles, 1 - middles) / 0.2).clip(0, 1)
            weight *= np.interp(place, np.arange(n), ramp)
        values = ndimage.map_coordinates(window.logits, at, order=1, mode="nearest")
        total += (weight * values.clip(-8, 8)).reshape(SHAPE)
        weights += weight.reshape(SHAPE)
    return total / weights


def blobs(shape: tuple[int, int, int], seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(shape)
    smooth = ndimage.gaussian_filter(noise, 2)
    return (smooth / smooth.std() * 3 - 4).astype(np.float32)


def test_windows_are_blended_as_over_the_whole_volume():
    coarse = LogitBox((5, 8, 9), blobs((12, 20, 16), 0))
    windows = [
        Window(
            Field((12.3, 14.6, 20.2), (1.1, 0.9, 1.2), (16, 24, 24), 1.0, 0), blobs((16, 24, 24), 1)
        ),
        Window(
            Field((25.1, 30.0, 36.0), (1.0, 1.3, 1.1), (12, 16, 16), 1.0, 0), blobs((12, 16, 16), 2)
        ),
    ]
    answer, expected = merge(coarse, windows, SHAPE), blended_everywhere(coarse, windows)
    mask = np.zeros(SHAPE, dtype=bool)
    mask[answer.window] = answer.logits > 0
    assert mask.any()
    np.testing.assert_array_equal(mask, expected > 0)
    np.testing.assert_allclose(answer.logits, expected[answer.window], atol=1e-3)


def test_what_windows_are_sure_is_background_takes_no_room():
    coarse = LogitBox((5, 8, 9), np.full((4, 5, 6), 2.0, np.float32))
    wide = Field((15.0, 20.0, 22.0), (1.0, 1.0, 1.0), SHAPE, 1.0, 0)
    answer = merge(coarse, [Window(wide, np.full(SHAPE, -5.0, np.float32))], SHAPE)
    assert (answer.start, answer.logits.shape) == (coarse.start, coarse.logits.shape)
