"""Image preparation for pre-training: depth first, normalised, cropped, limited in size.

The depth axis of a scan, along which its slices are stacked, is detected.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from pumit.errors import PumitError, VolumeError
from pumit.geometry import PLANAR_SLICE_SPACING_MM, window_of
from pumit.io.read import read_image
from pumit.preprocessing.network_axes import NetworkAxes
from pumit.preprocessing.normalization import Normalization, Scaling
from pumit.volume import Volume

# Intensities in [0, 1], (C, D, H, W), and the voxel size along (d, h, w), mm.
Prepared = tuple[npt.NDArray[np.float32], tuple[float, float, float]]

# World axis (L, P, S) across each anatomical plane.
PLANES = {"sagittal": 0, "coronal": 1, "axial": 2, "transverse": 2}
NEARLY_EQUAL = 0.01  # tolerance of log spacings, for rounding in headers
_AXES = {name: axis for axis in range(3) for name in (str(axis), f"axis {axis}")}
MAX_SHORT_SIDE = 512
_PERCENTILES = Normalization("percentiles", (0.5, 99.5), (0.0, 1.0), above_minimum=True)
_PICTURE = Normalization("range", (0.0, 255.0), (0.0, 1.0))


def find_depth_axis(
    volume: Volume, description: str | None = None, *, scanned_axis: int | None = None
) -> int:
    """Find the depth axis by description, then by metadata, then by spacing.

    An axis with a single voxel always is the depth. For a DICOM series, the metadata is its slice
    stack. By spacing, it is the axis that differs most from the others' geometric mean, coarser or
    finer, since slices may be thinner than pixels, as in PET: the first if all are nearly equal,
    the coarser of two with equal ratios. `network_axes.depth_first` takes the coarsest instead.

    Args:
        description: Publisher's description of the scan: the plane of its slices ("axial",
            "sagittal", "coronal"; the nearest axis of an oblique scan), or an axis of the array
            (D, H, W), "axis 0" to "axis 2". A NIfTI file's third axis is axis 0.
        scanned_axis: Axis according to the scan's file; see `FileImage.slice_axis`.

    Returns:
        Index in the volume's array (D, H, W).

    Raises:
        PumitError: If the description is unknown.

    Source:
        PUMIT, appendix "Pre-training Data and Pre-processing".
    """
    described = None if description is None else _described(volume, description)
    if 1 in volume.shape:
        return volume.shape.index(1)
    if described is not None:
        return described
    if volume.source is not None:  # a DICOM series, whose slices are stacked along axis 0
        return 0
    if scanned_axis is not None:
        return scanned_axis
    logs = np.log(np.asarray(volume.spacing_mm, dtype=np.float64))
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


def prepare(
    volume: Volume,
    depth_axis: str | None = None,
    *,
    scanned_axis: int | None = None,
    is_upright: bool = False,
) -> Prepared:
    """Prepare an image for pre-training.

    1. Move the depth axis first; nothing is flipped or resampled.
    2. Divide 8-bit images, grey or colour, by 255. In all others, map each channel to 0..1 between
       the percentiles 0.5 and 99.5 of the voxels above its minimum.
    3. Crop to the voxels that are then above 0 in any channel.
    4. If the shorter in-plane side has more than 512 voxels, down-sample it to 512 by area
       averaging, and adapt the spacing. The number of slices stays.

    Args:
        depth_axis: Description of the depth axis; see `find_depth_axis`.
        scanned_axis: As in `find_depth_axis`.
        is_upright: Whether to flip and swap axes in the end, so that they run towards superior,
            posterior and left; see `NetworkAxes.upright`. The depth axis stays first.

    Returns:
        Intensities in [0, 1], (C, D, H, W), and the voxel size along (d, h, w), mm;
        `PLANAR_SLICE_SPACING_MM` first for a 2D image, whose degree of anisotropy is 5.

    Raises:
        PumitError: If the description is unknown.
        VolumeError: If the image is empty (all voxels equal, or a black 8-bit image), or has voxels
            that are not finite.

    Source:
        PUMIT, appendix "Pre-training Data and Pre-processing".
    """
    depth = find_depth_axis(volume, depth_axis, scanned_axis=scanned_axis)
    order = (depth, *(axis for axis in range(3) if axis != depth))
    channels = [c.transpose(order) for c in volume.array.reshape(-1, *volume.shape)]
    scalings = [_scaling(channel) for channel in channels]
    box = _foreground_box(channels, scalings)
    d, h, w = (volume.spacing_mm[a] for a in order)
    if channels[0].shape[0] == 1:
        d = PLANAR_SLICE_SPACING_MM
    slices, rows, columns = (side.stop - side.start for side in box)
    shape = _limited(rows, columns)
    array = np.empty((len(channels), slices, *shape), dtype=np.float32)
    for channel, scaling, out in zip(channels, scalings, array, strict=True):
        for plane, result in zip(channel[box], out, strict=True):
            result[...] = _reduced(scaling.scaled(plane).astype(np.float32), shape)
    spacing = (d, h * (rows / shape[0]), w * (columns / shape[1]))
    if not is_upright:
        return array, spacing
    axes = NetworkAxes.upright(volume.direction, depth)
    moved = NetworkAxes(tuple(order.index(a) for a in axes.order), axes.flipped)  # type: ignore[arg-type]
    d, h, w = (spacing[a] for a in moved.order)
    return np.ascontiguousarray([moved.apply(channel) for channel in array]), (d, h, w)


def prepare_file(
    path: Path,
    depth_axis: str | None = None,
    *,
    series: str | None = None,
    is_upright: bool = False,
) -> Prepared:
    """Read and `prepare` a scan; without a description, the file may give the depth axis.

    Raises:
        VolumeError: If it cannot be read or used.
        PumitError: If the description is unknown.
    """
    image = read_image(path, series=series)
    volume = Volume.from_steps(image.array, image.steps_mm, image.origin_lps, image.source)
    return prepare(volume, depth_axis, scanned_axis=image.slice_axis, is_upright=is_upright)


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


def _foreground_box(
    channels: Sequence[npt.NDArray[Any]], scalings: Sequence[Scaling]
) -> tuple[slice, ...]:
    """Return the bounding box of voxels above 0 after scaling, in any channel (D, H, W)."""
    is_foreground = np.zeros(channels[0].shape, dtype=bool)
    for channel, scaling in zip(channels, scalings, strict=True):
        for plane, found in zip(channel, is_foreground, strict=True):  # no copy of all voxels
            found |= scaling.scaled(plane) > 0
    box = window_of(is_foreground)
    if box is None:
        raise VolumeError(
            "The image is empty: no voxel is brighter than its background; leave it out."
        )
    return box
