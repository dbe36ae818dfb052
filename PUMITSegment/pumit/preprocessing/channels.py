"""Selection and validation of image channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.volume import Volume


@dataclass(frozen=True)
class ExpectedChannels:
    """Channels that a network was trained on.

    Attributes:
        names: Names of the channels, such as T1 and FLAIR, in order; empty if unnamed.
        repeats_single: Whether a single-channel scan may be repeated for all of them.
    """

    names: tuple[str, ...] = ()
    repeats_single: bool = True

    @staticmethod
    def from_recipe(recipe: Mapping[str, Any]) -> ExpectedChannels:
        """Read `training` of a checkpoint's recipe; without it, any channels are accepted."""
        training = recipe.get("training")
        if not isinstance(training, Mapping) or "repeat_single_channel" not in training:
            return ANY_CHANNELS
        names = tuple(str(name) for name in training.get("channels") or ())
        return ExpectedChannels(names, bool(training["repeat_single_channel"]))

    def check(self, given: int, count: int) -> None:
        """Check that a scan has the number of channels that a network needs.

        A network with one channel accepts any scan: it uses the chosen channel, or the grey image.

        Raises:
            VolumeError: If the number does not fit.
        """
        if count in (1, given) or (self.repeats_single and given == 1):
            return
        names = f" ({', '.join(self.names)})" if self.names else ""
        raise VolumeError(
            f"The model needs {count} channels{names} in this order, but the scan has {given}; "
            "give one image that holds them all (on the command line --channel-files joins "
            "NAME_0000, NAME_0001 and so on)."
        )


ANY_CHANNELS = ExpectedChannels()


def is_colour(volume: Volume) -> bool:
    """Return whether the image is 8-bit RGB or RGBA."""
    return volume.channels in (3, 4) and volume.array.dtype == np.uint8


def grey(volume: Volume, channel: int) -> npt.NDArray[Any]:
    """Return one channel (D, H, W): luminance of a colour image, else the chosen channel.

    Raises:
        VolumeError: If there is no such channel.
    """
    if volume.channels == 1:
        return volume.array.reshape(volume.shape)
    if is_colour(volume):
        weights = np.array([0.299, 0.587, 0.114], dtype=np.float32)
        return np.tensordot(weights, volume.array[:3], axes=1)
    if not 0 <= channel < volume.channels:
        raise VolumeError(
            f"The volume has {volume.channels} channels, numbered from 0; there is no channel "
            f"{channel}."
        )
    return volume.array[channel]


def check_contrast(array: npt.NDArray[Any]) -> None:
    """Check that voxels are finite and not all equal.

    Raises:
        VolumeError: If they are all equal, or some are not finite in single precision.
    """
    low, high = array.min(), array.max()  # NaN if any voxel is
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(np.float32(low)) and np.isfinite(np.float32(high))
    if not is_finite:
        raise VolumeError(
            "The volume has voxels that are NaN, infinite or beyond single precision; repair the "
            "scan or export it again."
        )
    if low == high:
        raise VolumeError(f"Every voxel has the same value ({low}); there is nothing to segment.")


def image_channels(volume: Volume, count: int, *, channel: int = 0) -> list[npt.NDArray[Any]]:
    """Return the channels for a network, each (D, H, W).

    A volume with exactly `count` channels gives all of them, and RGBA its colours for three;
    otherwise the grey image or the chosen channel is repeated.
    """
    if volume.channels == count > 1 or (is_colour(volume) and count == 3):
        return list(volume.array[:count])
    return [grey(volume, channel)] * count
