"""Resampling of scans to another grid over the same box."""

import numpy as np
from pumit.preprocessing.resize import resize


def test_a_reversed_axis_of_one_voxel_is_read():
    array = np.arange(3, dtype=np.float32).reshape(3, 1, 1)[:, ::-1, ::-1]
    assert resize(array, (3, 1, 1)).flatten().tolist() == [0, 1, 2]
