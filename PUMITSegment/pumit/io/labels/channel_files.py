"""Reader of multi-channel scans with one file per channel, NAME_0000 and so on as for nnU-Net."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pumit.errors import VolumeError
from pumit.io.labels.grid_match import same_grid
from pumit.volume import Volume

_FIRST = re.compile(r"^(?P<stem>.+)_0000(?P<suffix>\.[^_]+)$")


def scan_name(first: Path) -> str | None:
    """Return NAME of NAME_0000.nii.gz; None for another file name."""
    match = _FIRST.match(first.name)
    return match["stem"] if match else None


def channel_files(first: Path) -> list[Path]:
    """List NAME_0000 and the files that follow it without a gap."""
    match = _FIRST.match(first.name)
    if match is None:
        return [first]
    found = [first]
    while True:
        following = first.with_name(f"{match['stem']}_{len(found):04d}{match['suffix']}")
        if not following.is_file():
            return found
        found.append(following)


def read_channels(files: Sequence[Path]) -> Volume:
    """Read files as the channels of one volume, (C, D, H, W); a single file unchanged.

    Raises:
        VolumeError: If a file cannot be read, or is on another grid than the first.
    """
    return joined_channels([path.name for path in files], [Volume.read(path) for path in files])


def joined_channels(names: Sequence[str], volumes: Sequence[Volume]) -> Volume:
    """Concatenate the channels of volumes, (C, D, H, W); return a single volume unchanged.

    Raises:
        VolumeError: If a volume is on another grid than the first.
    """
    if len(volumes) == 1:
        return volumes[0]
    for name, other in zip(names[1:], volumes[1:], strict=True):
        require_same_grid(volumes[0], other, name)
    arrays = [v.array if v.array.ndim == 4 else v.array[None] for v in volumes]
    return replace(volumes[0], array=np.concatenate(arrays), source=None)


def require_same_grid(volume: Volume, other: Volume, what: str) -> None:
    """Check that two volumes have the same shape and axes, and coincide within half a voxel.

    Raises:
        VolumeError: If they do not; the message says how they differ.
    """
    found = same_grid(other, volume, what)
    if found.order != (0, 1, 2) or any(found.flipped):
        raise VolumeError(
            f"{what} has its axes in another order or direction than the image; save both with the "
            "same axes."
        )
