"""A scan with one known structure, on a grid that is turned in the world."""

import numpy as np
from pumit.volume import Volume


def ball_scan() -> tuple[Volume, np.ndarray]:
    """A bright ball off the middle of an oblique scan, and its mask."""
    shape, spacing = (24, 40, 44), (2.0, 1.0, 1.0)
    offset = np.indices(shape) - np.array([10, 18, 24]).reshape(3, 1, 1, 1)
    mask = (np.sqrt(((offset * np.array(spacing).reshape(3, 1, 1, 1)) ** 2).sum(0))) < 11
    noise = np.random.default_rng(0).normal(0, 3, shape)
    angle = 0.4
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    return Volume((100 * mask + noise).astype(np.int16), spacing, (5.0, -20.0, 60.0), turn), mask
