"""Assembly of a volume from the slices of a DICOM series: order, gaps and gantry tilt."""

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.file_image import DicomSource, FileImage
from pumit.geometry import PLANAR_SLICE_SPACING_MM, Array, Floats
from pumit.io.dicom.choice import Stack
from pumit.io.dicom.files import first_value
from pumit.io.dicom.gdcm_process import GdcmProcess
from pumit.io.dicom.pixel_size import warn_if_slicer_differs
from pumit.io.dicom.pixels import intensity_unit, read_pixels
from pumit.io.dicom.slices import DicomSlice, frame_count

logger = logging.getLogger(__name__)

# Positions may deviate from an even grid by this fraction of the spacing, because headers round.
GAP_JITTER = 0.1
# Gaps within this factor of the median are interpolated. A larger difference means that slices are
# missing, or that two acquisitions are mixed.
GAP_FACTOR = 1.5
# At least this many equal wide gaps at an end of a scan are planned, not missing slices.
PLANNED_GAPS = 3
# Slices may be shifted in-plane by this fraction of a pixel.
SHIFT_PIXELS = 0.5


def read_stack(stack: Stack, gdcm: GdcmProcess, *, keep_alive: Any = None) -> FileImage:
    """Read a stack of slices as a volume whose slices ascend along their normal.

    The normal is right-handed with rows and columns. Gaps within `GAP_JITTER` of an even grid count
    as even; gaps within `GAP_FACTOR` of the median are resampled linearly to an even grid. The
    source lists the original files in slice order, even after resampling. A gantry tilt stays as
    shear in the steps, which `Volume.from_steps` resamples.

    Args:
        gdcm: Process for pixel data that pydicom does not decode.
        keep_alive: Object on whose lifetime the files depend, such as a temporary folder.

    Raises:
        VolumeError: If slices are missing (the message says where), repeated, or shifted
            in-plane, or pixels cannot be read.
    """
    slices = _sorted(stack.slices)
    uid = stack.choice.partition("#")[0]
    # A multi-frame file is listed once.
    files = tuple(dict.fromkeys(s.file.path for s in slices))
    first = slices[0]
    header = first.file.header
    instances = {str(first_value(s.file.header, "SOPInstanceUID") or "") for s in slices} - {""}
    is_one_of_several = first.is_separate and first.times < frame_count(header)
    source = DicomSource(
        files,
        uid,
        keep_alive,
        instances=tuple(sorted(instances)),
        frame=first.frame + 1 if is_one_of_several else None,
        frame_numbers=_frame_numbers(slices),
        intensity_unit=intensity_unit(header),
    )
    row_mm, column_mm = _pixel_spacing(slices)
    if not first_value(header, "PerFrameFunctionalGroupsSequence"):
        warn_if_slicer_differs(header)
    in_plane = first.axes_lps * np.array([column_mm, row_mm])
    origin = np.zeros(3) if first.position_lps is None else first.position_lps
    if len(slices) == 1:
        thickness = float(_thicknesses(slices)[0])
        step = first.normal_lps * (thickness if thickness > 0 else PLANAR_SLICE_SPACING_MM)
        array = read_pixels(slices, gdcm)
    else:
        positions = np.stack([_position(s) for s in slices])
        offsets = (positions - positions[0]) @ first.normal_lps
        _check_gaps(offsets, positions, _thicknesses(slices))
        _check_shift(offsets, positions, min(row_mm, column_mm))
        array = _evenly_spaced(read_pixels(slices, gdcm), offsets)
        step = (positions[-1] - positions[0]) / (array.shape[-3] - 1)
        step = _straightened(step, first.normal_lps, array.shape[-3], min(row_mm, column_mm))
    steps = np.column_stack([in_plane, step])
    return FileImage(array, steps, origin, source, first.has_spacing, first.has_position)


def _frame_numbers(slices: list[DicomSlice]) -> tuple[int, ...]:
    """Return the numbers of a multi-frame file's frames that show slices; else nothing."""
    is_one_file = len({s.file.path for s in slices}) == 1 and frame_count(slices[0].file.header) > 1
    if not is_one_file or any(s.is_separate or s.times > 1 for s in slices):
        return ()
    return tuple(sorted(s.frame + 1 for s in slices))


def _position(s: DicomSlice) -> Floats:
    assert s.position_lps is not None
    return s.position_lps


def _sorted(slices: list[DicomSlice]) -> list[DicomSlice]:
    if len(slices) == 1:
        return slices
    normal = slices[0].normal_lps
    return sorted(slices, key=lambda s: float(_position(s) @ normal))


def _pixel_spacing(slices: list[DicomSlice]) -> tuple[float, float]:
    spacing = slices[0].pixel_spacing_mm
    if spacing is None:
        if len(slices) == 1:
            # Projections and photographs may lack a pixel spacing.
            return (1.0, 1.0)
        raise VolumeError("DICOM PixelSpacing is missing; export the series again.")
    if any(
        s.pixel_spacing_mm is None or not np.allclose(s.pixel_spacing_mm, spacing, rtol=1e-3)
        for s in slices
    ):
        raise VolumeError(
            "DICOM PixelSpacing differs between the slices of the series; it mixes acquisitions: "
            "put the images of one acquisition into a separate folder."
        )
    return spacing


def _is_planned(gaps: Floats, wide: npt.NDArray[np.int64], thicknesses: Floats) -> bool:
    """Whether wide gaps are part of the protocol, so that no slice is missing."""
    # 1. Slice thickness varies, and every wide gap fits the thickness of a slice beside it.
    if np.isfinite(thicknesses).all() and np.ptp(thicknesses) > 0:
        beside = np.maximum(thicknesses[wide], thicknesses[wide + 1])
        return bool((gaps[wide] <= GAP_FACTOR * beside).all())
    # 2. At least `PLANNED_GAPS` gaps of one size in a row, at an end of the scan.
    runs = np.split(wide, np.flatnonzero(np.diff(wide) > 1) + 1)
    at_end = [run for run in runs if run[0] == 0 or run[-1] == len(gaps) - 1]
    return len(runs) == len(at_end) and all(
        len(run) >= PLANNED_GAPS and np.ptp(gaps[run]) <= GAP_JITTER * gaps[run].mean()
        for run in runs
    )


def _thicknesses(slices: list[DicomSlice]) -> Floats:
    """Return SliceThickness in mm; NaN where it is missing."""
    values = [first_value(s.file.header, "SliceThickness") for s in slices]
    try:
        return np.array([np.nan if v is None else float(v) for v in values])
    except (TypeError, ValueError):
        return np.full(len(values), np.nan)


def _check_gaps(offsets: Floats, positions: Floats, thicknesses: Floats) -> None:
    gaps = np.diff(offsets)
    usual = float(np.median(gaps))
    wide = np.flatnonzero(gaps > GAP_FACTOR * usual)
    if len(wide) and _is_planned(gaps, wide, thicknesses):
        raise VolumeError(
            f"The slices are spaced unequally, {gaps.min():.2f} to {gaps.max():.2f} mm apart, by "
            "the scan protocol; resample the series to equal spacing, or export each part as a "
            "separate series."
        )
    if len(wide):
        k = int(wide[0])
        missing = sum(max(round(float(gaps[j]) / usual) - 1, 1) for j in wide)
        near = positions[k] + (positions[k + 1] - positions[k]) * (usual / gaps[k])
        raise VolumeError(
            f"{missing} slice{'s are' if missing > 1 else ' is'} missing: between slices {k + 1} "
            f"and {k + 2} of {len(offsets)} the gap is {gaps[k]:.2f} mm where {usual:.2f} mm is "
            f"usual, so one belongs near LPS {_text(near)} mm; export the series again."
        )
    narrow = np.flatnonzero(gaps < usual / GAP_FACTOR)
    if len(narrow):
        k = int(narrow[0])
        raise VolumeError(
            f"Slices {k + 1} and {k + 2} of {len(offsets)} are {gaps[k]:.2f} mm apart where "
            f"{usual:.2f} mm is usual, near LPS {_text(positions[k])} mm; the series mixes "
            "acquisitions or is spaced unequally: resample it, or export one acquisition."
        )


def _check_shift(offsets: Floats, positions: Floats, pixel_mm: float) -> None:
    line = positions[0] + np.outer(offsets / offsets[-1], positions[-1] - positions[0])
    shift = np.linalg.norm(positions - line, axis=1)
    k = int(shift.argmax())
    if shift[k] > SHIFT_PIXELS * pixel_mm:
        raise VolumeError(
            f"Slice {k + 1} of {len(offsets)} is shifted sideways by {shift[k]:.2f} mm; the "
            "series mixes acquisitions, or the patient was moved: export one acquisition."
        )


def _evenly_spaced(array: Array, offsets: Floats) -> Array:
    """Interpolate slices linearly to even offsets, unless they are even within `GAP_JITTER`."""
    number = np.arange(len(offsets))
    slope, first = np.polyfit(number, offsets, 1)
    if np.abs(offsets - (first + slope * number)).max() <= GAP_JITTER * slope:
        return array
    usual = float(np.median(np.diff(offsets)))
    count = max(round(float(offsets[-1]) / usual) + 1, 2)
    index = np.interp(np.linspace(0.0, offsets[-1], count), offsets, number)
    below = np.minimum(index.astype(np.int64), len(offsets) - 2)
    channels = array.reshape((-1, *array.shape[-3:]))
    result = np.empty((len(channels), count, *array.shape[-2:]), dtype=array.dtype)
    for channel, out in zip(channels, result, strict=True):
        for k, (low, part) in enumerate(zip(below, index - below, strict=True)):
            mixed = channel[low] * (1 - part) + channel[low + 1] * part
            out[k] = np.rint(mixed) if array.dtype.kind in "biu" else mixed
    logger.warning("The slices are spaced unequally; they are interpolated to equal spacing.")
    return result.reshape((*array.shape[:-3], count, *array.shape[-2:]))


def _straightened(step: Floats, normal: Floats, count: int, pixel_mm: float) -> Floats:
    """Drop an in-plane drift that stays within `SHIFT_PIXELS` over the whole stack."""
    along = float(step @ normal)
    drift = float(np.linalg.norm(step - along * normal)) * (count - 1)
    return np.asarray(along * normal) if drift <= SHIFT_PIXELS * pixel_mm else step


def _text(position_lps: Floats) -> str:
    return "(" + ", ".join(f"{x:.1f}" for x in position_lps) + ")"
