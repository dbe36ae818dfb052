"""A generated scan of two classes."""

import numpy as np
import numpy.typing as npt
from pumit.volume import Volume

SHAPE = (12, 16, 16)


def make_scan(seed: int) -> tuple[Volume, npt.NDArray[np.uint8]]:
    """A bright ball, and a brighter one inside of it, in noise."""
    random = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij"), axis=-1)
    middle = np.array(SHAPE) / 2 + random.uniform(-1.5, 1.5, 3)
    distance = np.linalg.norm(grid - middle, axis=-1)
    labels = np.zeros(SHAPE, np.uint8)
    labels[distance < 5] = 1
    labels[distance < 2.5] = 2
    array = 100.0 * labels + random.normal(0, 5, SHAPE)
    return Volume(array.astype(np.int16), (2.0, 1.0, 1.0)), labels
