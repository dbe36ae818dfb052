"""Which channels of a volume a network sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.volume import Volume


def grey(volume: Volume, channel: int) -> npt.NDArray[Any]:
    """One channel (D, H, W): luminance of a colour image, else the chosen channel."""
    if volume.channels == 1:
        return volume.array.reshape(volume.shape)
    if volume.channels in (3, 4) and volume.array.dtype == np.uint8:
        weights = np.array([0.299, 0.587, 0.114], dtype=np.float32)
        return np.tensordot(weights, volume.array[:3], axes=1)
    if not 0 <= channel < volume.channels:
        raise VolumeError(f"The volume has {volume.channels} channels; there is no {channel}.")
    return volume.array[channel]


def image_channels(volume: Volume, count: int, *, channel: int = 0) -> list[npt.NDArray[Any]]:
    """As many channels as a network takes, each (D, H, W).

    A volume of exactly so many channels gives them all; of any other its grey image, or the
    chosen channel, stands for each of them.
    """
    if volume.channels == count > 1:
        return list(volume.array)
    return [grey(volume, channel)] * count
