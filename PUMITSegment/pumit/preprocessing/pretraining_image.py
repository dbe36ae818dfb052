"""Image preparation for pre-training: depth first, normalised, cropped, limited in size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from pumit.errors import VolumeError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.io.read import scanned_axis as axis_in_file
from pumit.preprocessing.depth_axis import DepthAxis, find_depth_axis
from pumit.preprocessing.normalization import Normalization, Scaling
from pumit.volume import Volume

Box = tuple[slice, slice, slice]

MAX_SHORT_SIDE = 512
_PERCENTILES = Normalization("percentiles", (0.5, 99.5), (0.0, 1.0), above_minimum=True)
_PICTURE = Normalization("range", (0.0, 255.0), (0.0, 1.0))


@dataclass(frozen=True, eq=False)
class PreparedImage:
    """An image ready for pre-training, with its position in the volume.

    Attributes:
        array: Intensities in [0, 1], float32, (C, D, H, W), the depth axis first.
        spacing_mm: Voxel size along (d, h, w); `PLANAR_SLICE_SPACING_MM` first for a 2D image,
            whose degree of anisotropy is 5.
        depth: The volume's depth axis, and the rule that determined it.
        start: First voxel of the crop along (d, h, w), in voxels of the volume.
        step: Volume voxels per voxel along (d, h, w); 1 unless down-sampled.
    """

    array: npt.NDArray[np.float32]
    spacing_mm: tuple[float, float, float]
    depth: DepthAxis
    start: tuple[int, int, int]
    step: tuple[float, float, float]

    def to_volume(self, index: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Map indices (d, h, w) of this image, (..., 3), to those of the volume's array."""
        step, start = np.asarray(self.step), np.asarray(self.start)
        # The outer borders of the two grids coincide, not their first voxel centres.
        at = (np.asarray(index, dtype=np.float64) + 0.5) * step - 0.5 + start
        return at[..., np.argsort(self.depth.order)]


def prepare(
    volume: Volume, depth_axis: str | None = None, *, scanned_axis: int | None = None
) -> PreparedImage:
    """Prepare an image for pre-training.

    1. Move the depth axis first; nothing is flipped or resampled.
    2. Divide 8-bit images, grey or colour, by 255. In all others, map each channel to 0..1 between
       the percentiles 0.5 and 99.5 of the voxels above its minimum.
    3. Crop to the voxels that are then above 0 in any channel.
    4. If the shorter in-plane side has more than 512 voxels, down-sample it to 512 by area
       averaging, and adapt the spacing. The number of slices stays.

    Args:
        depth_axis: Description of the depth axis; see `find_depth_axis`.
        scanned_axis: Axis according to the scan's file; see `find_depth_axis`.

    Raises:
        PumitError: If the description is unknown.
        VolumeError: If the image is empty (all voxels equal, or a black 8-bit image), or has voxels
            that are not finite.

    Source:
        PUMIT, appendix "Pre-training Data and Pre-processing".
    """
    depth = find_depth_axis(volume, depth_axis, scanned_axis=scanned_axis)
    channels = [c.transpose(depth.order) for c in volume.array.reshape(-1, *volume.shape)]
    scalings = [_scaling(channel) for channel in channels]
    box = _foreground_box(channels, scalings)
    d, h, w = (volume.spacing_mm[a] for a in depth.order)
    if channels[0].shape[0] == 1:
        d = PLANAR_SLICE_SPACING_MM
    size = tuple(side.stop - side.start for side in box)
    shape = _limited(size[1], size[2])
    array = np.empty((len(channels), size[0], *shape), dtype=np.float32)
    for channel, scaling, out in zip(channels, scalings, array, strict=True):
        for plane, result in zip(channel[box], out, strict=True):
            result[...] = _reduced(scaling.scaled(plane).astype(np.float32), shape)
    step = (1.0, size[1] / shape[0], size[2] / shape[1])
    start = (box[0].start, box[1].start, box[2].start)
    return PreparedImage(array, (d, h * step[1], w * step[2]), depth, start, step)


def prepare_file(
    path: Path, depth_axis: str | None = None, *, series: str | None = None
) -> PreparedImage:
    """Read and prepare a scan; without a description, the file may give the depth axis.

    Raises:
        VolumeError: If it cannot be read or used.
        PumitError: If the description is unknown.
    """
    volume = Volume.read(path, series=series)
    return prepare(volume, depth_axis, scanned_axis=axis_in_file(path))


def _scaling(channel: npt.NDArray[Any]) -> Scaling:
    if channel.dtype == np.uint8:
        return _PICTURE.scaling(channel)
    if channel.dtype.kind == "f" and not np.isfinite(channel).all():
        raise VolumeError("The image holds NaN or infinite voxels; replace them first.")
    return _PERCENTILES.scaling(channel)


def _limited(height: int, width: int) -> tuple[int, int]:
    """Return the in-plane size, scaled to at most `MAX_SHORT_SIDE` along the shorter side."""
    factor = min(MAX_SHORT_SIDE / min(height, width), 1.0)
    return (round(height * factor), round(width * factor))


def _reduced(plane: npt.NDArray[np.float32], shape: tuple[int, int]) -> npt.NDArray[np.float32]:
    if plane.shape == shape:
        return plane
    small = F.interpolate(torch.from_numpy(plane)[None, None], size=shape, mode="area")
    return np.asarray(small[0, 0].numpy())


def _foreground_box(channels: Sequence[npt.NDArray[Any]], scalings: Sequence[Scaling]) -> Box:
    """Return the bounding box of voxels above 0 after scaling, in any channel.

    Args:
        channels: Intensities, each (D, H, W).

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
