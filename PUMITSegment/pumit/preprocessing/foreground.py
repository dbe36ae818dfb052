"""The part of an image that holds something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.preprocessing.normalization import Scaling

Box = tuple[slice, slice, slice]


def foreground_box(channels: Sequence[npt.NDArray[Any]], scalings: Sequence[Scaling]) -> Box:
    """Smallest box around the voxels that are above 0 when scaled, in any channel.

    Args:
        channels: Intensities, each (D, H, W).
        scalings: How each is scaled.

    Raises:
        VolumeError: If there is no such voxel.
    """
    rows, columns, depths = (np.zeros(channels[0].shape[axis], dtype=bool) for axis in (1, 2, 0))
    for channel, scaling in zip(channels, scalings, strict=True):
        for d, plane in enumerate(channel):  # no copy of the whole volume
            is_foreground = scaling.scaled(plane) > 0
            rows |= is_foreground.any(axis=1)
            columns |= is_foreground.any(axis=0)
            depths[d] |= is_foreground.any()
    if not depths.any():
        raise VolumeError(
            "The image is empty: no voxel is brighter than its background; leave it out."
        )
    return (_extent(depths), _extent(rows), _extent(columns))


def _extent(is_taken: npt.NDArray[np.bool_]) -> slice:
    at = np.flatnonzero(is_taken)
    return slice(int(at[0]), int(at[-1]) + 1)
