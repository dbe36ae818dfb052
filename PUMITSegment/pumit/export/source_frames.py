"""Frames of a DICOM series, and resampling of masks onto them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset

from pumit.errors import ExportError, VolumeError
from pumit.file_image import DicomSource
from pumit.geometry import Floats
from pumit.io.dicom.files import DicomFile
from pumit.io.dicom.slices import DicomSlice, frame_count, slices_of
from pumit.segmentation import Mask
from pumit.volume import Volume

# A frame counts as a slice of the volume if no pixel is off by more: the reader does not resample
# slices with a little jitter or drift.
GRID_TOLERANCE_VOXELS = 0.51


@dataclass(frozen=True, eq=False)
class PlacedFrame:
    """Position and orientation of a frame.

    Attributes:
        position_lps: Centre of the first pixel, LPS mm.
        axes_lps: 3 x 2, columns: unit vectors of increasing column and row index; LPS.
    """

    position_lps: Floats
    axes_lps: Floats
    pixel_spacing_mm: tuple[float, float]


@dataclass(frozen=True)
class SourceFrame:
    """One frame of a series.

    Attributes:
        geometry: None for a projection image.
        number: Frame number in a multi-frame file, from 1; None for single-frame files, and for a
            cine, all of whose frames show one slice.
    """

    rows: int
    columns: int
    geometry: PlacedFrame | None
    number: int | None = None


def source_frames(
    headers: Sequence[Dataset], source: DicomSource, *, slices: int | None = None
) -> list[SourceFrame]:
    """List the frames that a volume was read from, in file order.

    Args:
        headers: Header of each file of the source.
        slices: Slices of a volume whose reader stacks all frames of a file, as Slicer does.

    Raises:
        ExportError: If a header lacks a usable size or geometry, or frames cannot be referenced.
    """
    first = headers[0]
    has_groups = "PerFrameFunctionalGroupsSequence" in first
    if len(headers) > 1 and (has_groups or any(frame_count(header) > 1 for header in headers)):
        raise ExportError(
            "The source DICOM series is in several multi-frame files, which one DICOM object "
            "cannot reference together; write .seg.nrrd instead."
        )
    try:
        if source.frame is not None:
            return [SourceFrame(int(first.Rows), int(first.Columns), None, source.frame)]
        found = [
            each
            for file, header in zip(source.files, headers, strict=True)
            for each in slices_of(DicomFile(file, header))
        ]
        if has_groups and len(found) > 1 and any(s.position_lps is None for s in found):
            raise VolumeError("Frames have no position.")
        is_numbered = has_groups or len(found) > len(headers)
        frames = [
            SourceFrame(*s.size[:2], _geometry(s), s.frame + 1 if is_numbered else None)
            for s in found
        ]
    except ExportError:
        raise
    except (AttributeError, TypeError, ValueError):
        raise ExportError(
            "A header of the source DICOM series has no usable size, position or orientation; "
            "write .seg.nrrd instead."
        ) from None
    if source.frame_numbers:
        return [frame for frame in frames if frame.number in source.frame_numbers]
    places: dict[tuple[float, ...], SourceFrame] = {}
    for frame in frames:
        if frame.geometry is not None:
            places.setdefault(tuple(frame.geometry.position_lps), frame)
    count = frame_count(first)
    if slices is not None and count > len(places) > 0 and (slices == count or len(places) == 1):
        raise ExportError(
            "The source DICOM file has several frames at one position, which were read as slices; "
            "write .seg.nrrd instead."
        )
    # Frames may also differ by time or echo; use the first at each position.
    return list(places.values()) if has_groups and places else frames


def _geometry(found: DicomSlice) -> PlacedFrame | None:
    if found.position_lps is None:
        return None
    if found.pixel_spacing_mm is None:
        raise ExportError(
            "The source DICOM images state a position, but no pixel size, so a DICOM object cannot "
            "be on their grid; write .seg.nrrd instead."
        )
    return PlacedFrame(found.position_lps, found.axes_lps, found.pixel_spacing_mm)


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
