"""Frames of a DICOM series, and resampling of masks onto them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset

from pumit.errors import ExportError
from pumit.file_image import PlacedFrame
from pumit.geometry import Floats
from pumit.io.dicom.pixel_size import pixel_size
from pumit.io.dicom.slices import places_of
from pumit.segmentation import Mask
from pumit.volume import Volume

# A frame counts as a slice of the volume if no pixel is off by more: the reader does not resample
# slices with a little jitter or drift.
GRID_TOLERANCE_VOXELS = 0.51


@dataclass(frozen=True)
class SourceFrame:
    """One frame of a series.

    Attributes:
        geometry: None for a projection image.
        number: Frame number in a multi-frame file, from 1; None for single-frame files.
    """

    rows: int
    columns: int
    geometry: PlacedFrame | None
    number: int | None = None


def source_frames(
    datasets: Sequence[Dataset],
    placed: Sequence[PlacedFrame] = (),
    *,
    only: int | None = None,
    numbers: Sequence[int] = (),
) -> list[SourceFrame]:
    """List the frames of single-frame files, or of one multi-frame file, in file order.

    Args:
        placed: Geometry of each frame, for a multi-frame file without functional groups.
        only: Number of the frame that was read, from a file of several separate images.
        numbers: Numbers of the frames that were read, if known.

    Raises:
        ExportError: If a header lacks a usable size or geometry, or frames cannot be referenced.
    """
    first = datasets[0]
    if only is not None:
        return [SourceFrame(int(first.Rows), int(first.Columns), None, only)]
    is_older = "PerFrameFunctionalGroupsSequence" not in first
    has_frames = str(first.get("NumberOfFrames") or 1) != "1"
    has_place = bool(places_of(first)[0].get("ImagePositionPatient"))
    if is_older and not placed and has_place and has_frames:
        raise ExportError(
            "The source DICOM file states one position for all of its frames; open it again, or "
            "write .seg.nrrd instead."
        )
    if not is_older and len(datasets) > 1:
        raise ExportError(
            "The source DICOM series is in several multi-frame files, which one DICOM object "
            "cannot reference together; write .seg.nrrd instead."
        )
    try:
        if is_older:
            size = int(first.Rows), int(first.Columns)
            if len(placed) == 1:  # an image, or a cine at one place
                return [SourceFrame(*size, placed[0])]
            if placed:
                of_placed = zip(numbers or range(1, len(placed) + 1), placed, strict=True)
                return [SourceFrame(*size, f, n) for n, f in of_placed]
            return [SourceFrame(int(d.Rows), int(d.Columns), _single(d)) for d in datasets]
        shared = (first.get("SharedFunctionalGroupsSequence") or [Dataset()])[0]
        groups = first.PerFrameFunctionalGroupsSequence
        if len(groups) == 1 and not any("PlanePositionSequence" in g for g in (groups[0], shared)):
            return [SourceFrame(int(first.Rows), int(first.Columns), None, 1)]
        geometries = [_of_group(frame, shared) for frame in groups]
        # Frames may also differ by time or echo; use those that were read, or the first at each
        # position.
        places = {tuple(g.position_lps): g for g in reversed(geometries)}
        unique = [(n, geometries[n - 1]) for n in numbers] or [
            (n, g) for n, g in enumerate(geometries, 1) if places[tuple(g.position_lps)] is g
        ]
        return [SourceFrame(int(first.Rows), int(first.Columns), g, n) for n, g in unique]
    except ExportError:
        raise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        raise ExportError(
            "A header of the source DICOM series has no usable size, position or orientation; "
            "write .seg.nrrd instead."
        ) from None


def _single(ds: Dataset) -> PlacedFrame | None:
    place = places_of(ds)[0]
    if not place.get("ImagePositionPatient"):
        return None
    size_mm = pixel_size(ds)
    if size_mm is None:
        raise ExportError(
            "The source DICOM images state a position, but no pixel size, so a DICOM object cannot "
            "be on their grid; write .seg.nrrd instead."
        )
    return _geometry(place.ImagePositionPatient, place.ImageOrientationPatient, size_mm)


def _of_group(frame: Dataset, shared: Dataset) -> PlacedFrame:
    def item(keyword: str) -> Dataset:
        return (frame if keyword in frame else shared)[keyword].value[0]

    return _geometry(
        item("PlanePositionSequence").ImagePositionPatient,
        item("PlaneOrientationSequence").ImageOrientationPatient,
        item("PixelMeasuresSequence").PixelSpacing,
    )


def _geometry(
    position: Iterable[float], cosines: Iterable[float], spacing: Sequence[float]
) -> PlacedFrame:
    x, y, z = (float(p) for p in position)
    axes = np.array([float(c) for c in cosines]).reshape(2, 3).T
    return PlacedFrame(np.array((x, y, z)), axes, (float(spacing[0]), float(spacing[1])))


def pixels_lps(frame: PlacedFrame, row: npt.ArrayLike, column: npt.ArrayLike) -> Floats:
    """Return the centre of a pixel, LPS mm; or of several, with indices of shape (N, 1)."""
    (down_mm, along_mm), (along, down) = frame.pixel_spacing_mm, frame.axes_lps.T
    offset = np.asarray(column) * along_mm * along + np.asarray(row) * down_mm * down
    return np.asarray(frame.position_lps + offset)


def slice_spacing_mm(frames: Sequence[SourceFrame]) -> float | None:
    """Return the median distance between adjacent frames, or None for a single frame."""
    placed = [frame.geometry for frame in frames if frame.geometry is not None]
    if len(placed) < 2:
        return None
    normal = np.cross(*placed[0].axes_lps.T)
    offsets = np.sort([float(np.dot(g.position_lps, normal)) for g in placed])
    return float(np.median(np.diff(offsets)))


def mask_on_frames(volume: Volume, mask: Mask, frames: Sequence[SourceFrame]) -> Mask:
    """Resample a mask onto the frames of the volume's source series.

    A frame that coincides with a slice of the volume gets a copy of it, in any order of frames.
    Other frames are sampled by nearest neighbour.

    Args:
        mask: bool, (D, H, W).
        frames: F frames of one size.

    Returns:
        bool, (F, Rows, Columns).

    Raises:
        ExportError: If frames differ in size, or frames without geometry do not match the volume.
    """
    sizes = {(frame.rows, frame.columns) for frame in frames}
    if len(sizes) != 1:
        raise ExportError(
            f"The frames of the source series differ in size: {sorted(sizes)}; "
            "write .seg.nrrd instead."
        )
    rows, columns = sizes.pop()
    if any(frame.geometry is None for frame in frames):
        if (len(frames), rows, columns) != volume.shape:
            raise ExportError(
                f"The source image has {len(frames)} frames of {rows} x {columns} without "
                f"positions, the volume {volume.shape}; write .seg.nrrd instead."
            )
        return mask
    geometries = [frame.geometry for frame in frames if frame.geometry is not None]
    slices = [_slice_of(volume, g, rows, columns) for g in geometries]
    if slices == list(range(len(mask))):
        return mask
    result = np.zeros((len(frames), rows, columns), dtype=bool)
    for target, geometry, k in zip(result, geometries, slices, strict=True):
        target[:] = _sampled(volume, mask, geometry, rows, columns) if k is None else mask[k]
    return result


def _corner_indices(volume: Volume, frame: PlacedFrame, rows: int, columns: int) -> Floats:
    """Return the indices (d, h, w) of a frame's first pixel and of its column's and row's last."""
    corners = [(0, 0), (rows - 1, 0), (0, columns - 1)]
    indices = volume.world_to_index([pixels_lps(frame, *corner) for corner in corners])
    if volume.is_planar:
        # A planar image has no thickness.
        indices[:, 0] = 0.0
    return indices


def _slice_of(volume: Volume, frame: PlacedFrame, rows: int, columns: int) -> int | None:
    indices = _corner_indices(volume, frame, rows, columns)
    k = round(float(indices[:, 0].mean()))
    if volume.shape[1:] != (rows, columns) or not 0 <= k < volume.shape[0]:
        return None
    expected = np.array([(k, 0, 0), (k, rows - 1, 0), (k, 0, columns - 1)], dtype=np.float64)
    return k if np.abs(indices - expected).max() < GRID_TOLERANCE_VOXELS else None


def _sampled(
    volume: Volume, mask: Mask, frame: PlacedFrame, rows: int, columns: int
) -> npt.NDArray[np.bool_]:
    """Sample a mask at the pixels of a frame by nearest neighbour; False outside the volume."""
    origin, down, right = _corner_indices(volume, frame, rows, columns)
    # Indices are affine in (row, column): (Rows, Columns, 3)
    along_column = np.arange(rows)[:, None, None] * (down - origin) / max(rows - 1, 1)
    along_row = np.arange(columns)[None, :, None] * (right - origin) / max(columns - 1, 1)
    index = np.floor(origin + along_column + along_row + 0.5).astype(np.int64)
    inside = ((index >= 0) & (index < mask.shape)).all(axis=-1)
    result = np.zeros((rows, columns), dtype=bool)
    result[inside] = mask[tuple(index[inside].T)]
    return result
