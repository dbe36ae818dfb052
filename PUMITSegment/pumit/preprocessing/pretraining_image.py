"""Image preparation for pre-training: depth first, normalised, cropped, limited in size.

The depth axis of a scan, along which its slices are stacked, is detected.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from pumit.errors import PumitError, VolumeError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.io.read import scanned_axis as axis_in_file
from pumit.preprocessing.normalization import Normalization, Scaling
from pumit.volume import Volume

Rule = Literal["single slice", "description", "metadata", "spacing"]

# World axis (L, P, S) across each anatomical plane.
PLANES = {"sagittal": 0, "coronal": 1, "axial": 2, "transverse": 2}
NEARLY_EQUAL = 0.01  # tolerance of log spacings, for rounding in headers
_AXES = {name: axis for axis in range(3) for name in (str(axis), f"axis {axis}")}
Box = tuple[slice, slice, slice]
MAX_SHORT_SIDE = 512
_PERCENTILES = Normalization("percentiles", (0.5, 99.5), (0.0, 1.0), above_minimum=True)
_PICTURE = Normalization("range", (0.0, 255.0), (0.0, 1.0))


@dataclass(frozen=True)
class DepthAxis:
    """The depth axis of a volume.

    Attributes:
        axis: Index in the volume's array (D, H, W).
    """

    axis: int
    rule: Rule

    @property
    def order(self) -> tuple[int, int, int]:
        """Axis order with the depth first and the others in order."""
        h, w = (a for a in range(3) if a != self.axis)
        return (self.axis, h, w)


def find_depth_axis(
    volume: Volume, description: str | None = None, *, scanned_axis: int | None = None
) -> DepthAxis:
    """Find the depth axis by description, then by metadata, then by spacing.

    An axis with a single voxel always is the depth. For a DICOM series, the metadata is its slice
    stack. By spacing, it is the axis that differs most from the others, coarser or finer, since
    slices may be thinner than pixels, as in PET.

    Args:
        description: Publisher's description of the scan: the plane of its slices ("axial",
            "sagittal", "coronal"; the nearest axis of an oblique scan), or an axis of the array
            (D, H, W), "axis 0" to "axis 2". A NIfTI file's third axis is axis 0.
        scanned_axis: Axis according to the scan's file; see `pumit.io.read.scanned_axis`.

    Raises:
        PumitError: If the description is unknown.

    Source:
        PUMIT, appendix "Pre-training Data and Pre-processing".
    """
    described = None if description is None else _described(volume, description)
    if 1 in volume.shape:
        return DepthAxis(volume.shape.index(1), "single slice")
    if described is not None:
        return DepthAxis(described, "description")
    if volume.source is not None:  # a DICOM series, whose slices are stacked along axis 0
        return DepthAxis(0, "metadata")
    if scanned_axis is not None:
        return DepthAxis(scanned_axis, "metadata")
    return DepthAxis(most_anisotropic(volume.spacing_mm), "spacing")


def most_anisotropic(spacing_mm: Sequence[float]) -> int:
    """Return the axis whose spacing differs most from the others' geometric mean, as a ratio.

    The first if all are nearly equal; of two with equal ratios, the coarser. If slices are thinner
    than pixels, this differs from `network_axes.depth_first`, which takes the coarsest axis.
    """
    logs = np.log(np.asarray(spacing_mm, dtype=np.float64))
    if np.ptp(logs) <= NEARLY_EQUAL:
        return 0
    apart = np.abs(logs - (logs.sum() - logs) / 2).round(6)
    return max(range(3), key=lambda axis: (apart[axis], logs[axis]))


def _described(volume: Volume, description: str) -> int:
    name = " ".join(str(description).lower().split())
    if name in _AXES:
        return _AXES[name]
    if name not in PLANES:
        known = [*PLANES, *(f"axis {axis}" for axis in range(3))]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}."
        raise PumitError(f"Unknown depth axis {description!r}{hint}")
    # Columns of the direction are the W, H and D axes.
    across = np.abs(volume.direction[PLANES[name], ::-1])
    return int(np.argmax(across))


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
