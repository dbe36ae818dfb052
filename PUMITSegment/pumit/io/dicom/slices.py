"""Slices of a DICOM series: files, frames of a multi-frame file, or tiles of a mosaic."""

import logging
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from pydicom.dataset import Dataset

from pumit.errors import VolumeError
from pumit.geometry import Floats
from pumit.io.dicom.files import DIFFERENCES, FRAME_VECTORS, DicomFile, first_value
from pumit.io.dicom.pixel_size import numbers, pixel_size
from pumit.io.parser_errors import is_absurd, parser_errors

logger = logging.getLogger(__name__)

# Like `DIFFERENCES`, in the functional groups of a multi-frame object: sequence and attribute.
_GROUP_DIFFERENCES = (
    ("MREchoSequence", "EffectiveEchoTime"),
    ("FrameContentSequence", "TemporalPositionIndex"),
    ("FrameContentSequence", "StackID"),
    ("CardiacSynchronizationSequence", "NominalCardiacTriggerDelayTime"),
    ("MRDiffusionSequence", "DiffusionBValue"),
    ("MRImageFrameTypeSequence", "FrameType"),
    ("CTImageFrameTypeSequence", "FrameType"),
    ("FrameContentSequence", "FrameAcquisitionDateTime"),
)
# Attributes in FrameIncrementPointer which mean that the next frame is the next slice.
_SPACE_POINTERS = {
    0x00180050: "SliceThickness",
    0x00180088: "SpacingBetweenSlices",
    0x00200032: "ImagePositionPatient",
    0x00201041: "SliceLocation",
    0x00540080: "SliceVector",
}
# Modalities whose frames at one position are slices, unless the header says that they are time.
_SLICED = ("CT", "MR", "PT", "NM")
# A file with more frames or tiles than these is damaged.
_MOST_FRAMES, _MOST_TILES = 50_000, 4096
_SIEMENS_HEADER, _SIEMENS_CSA, _MOST_TAGS = "SIEMENS MR HEADER", "SIEMENS CSA HEADER", 1000
# Direction cosines are written with few digits; a larger error is invalid.
COSINE_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class DicomSlice:
    """Geometry of a slice, and the scaling of its stored values to intensities.

    Attributes:
        frame: Index of the frame in the file, 0 for a single-frame file.
        position_lps: Centre of the first pixel, LPS mm; None for a projection image.
        axes_lps: 3 x 2, columns: unit vectors of increasing column and row index; LPS.
        pixel_spacing_mm: Distance between rows, between columns (H, W order); None if unknown.
        differences: Attributes by keyword that may distinguish slices at the same position.
        times: Number of frames, from `frame` on, that show the slice at successive times.
        tile: First row, first column, rows and columns within the frame; None for the whole frame.
        is_slope_guessed: Whether the header states a slope of 0, replaced by 1.
        has_spacing: Whether the header states a pixel size.
        has_position: Whether the header states a position and orientation.
        is_separate: Whether it is an image in itself, which no stack includes: one without a
            position, or a frame of a colour cine.
    """

    file: DicomFile
    frame: int
    position_lps: Floats | None
    axes_lps: Floats
    pixel_spacing_mm: tuple[float, float] | None
    slope: float
    intercept: float
    differences: dict[str, str] = field(default_factory=dict)
    times: int = 1
    tile: tuple[int, int, int, int] | None = None
    is_slope_guessed: bool = False
    has_spacing: bool = True
    has_position: bool = True
    is_separate: bool = False

    @property
    def size(self) -> tuple[int, int, int]:
        """Rows, columns, samples per pixel."""
        header = self.file.header
        is_palette = str(header.get("PhotometricInterpretation", "")) == "PALETTE COLOR"
        samples = 3 if is_palette else int(header.get("SamplesPerPixel") or 1)
        if self.tile is not None:
            return (*self.tile[2:], samples)
        return (int(header.Rows), int(header.Columns), samples)

    @property
    def normal_lps(self) -> Floats:
        """Unit normal of the slice, right-handed with its axes."""
        return np.asarray(np.cross(self.axes_lps[:, 0], self.axes_lps[:, 1]))


def slices_of(file: DicomFile) -> list[DicomSlice]:
    """List the slices of a file.

    A multi-frame file without functional groups has one position. Its frames are slices if the
    header states their spacing. They are time points, read as channels, if the header says so or
    has no position (cine, angiography). Those of a colour cine, at its position, and frames with
    functional groups but without a position, are separate images.

    Raises:
        VolumeError: If positions, orientation or pixel spacing are not numbers, a file does not
            say whether its frames are slices or time, or it announces more than it can hold.
    """
    header = file.header
    frames = first_value(header, "PerFrameFunctionalGroupsSequence")
    if frames:
        shared = (first_value(header, "SharedFunctionalGroupsSequence") or [Dataset()])[0]
        return [_slice_of_frame(file, index, frame, shared) for index, frame in enumerate(frames)]
    count = frame_count(header)
    if count > 1:
        _check_count(file, count)
        return _slices_of_frames(file, count)
    only = _slice(file, 0, places_of(header)[0], header, header, _differences(header))
    if "MOSAIC" in (first_value(header, "ImageType") or ()):
        return _tiles_of(only)
    return [only]


def frame_count(header: Dataset) -> int:
    """Return NumberOfFrames, at least 1."""
    try:
        return max(int(first_value(header, "NumberOfFrames") or 1), 1)
    except (TypeError, ValueError):
        return 1


def places_of(header: Dataset) -> list[Dataset]:
    """Return where position and orientation are stated: the header, or detectors (NM)."""
    detectors = first_value(header, "DetectorInformationSequence") or []
    return [header if first_value(header, "ImagePositionPatient") else d for d in detectors] or [
        header
    ]


def _check_count(file: DicomFile, count: int) -> None:
    """Refuse more frames than a file can hold, before memory is allocated for them."""
    header, held = file.header, file.path.stat().st_size
    values = int(header.Rows) * int(header.Columns) * int(header.get("SamplesPerPixel") or 1)
    if count > min(held, _MOST_FRAMES) or is_absurd(count * values, held):
        raise VolumeError(
            f"A DICOM file states {count} frames, far more than it can hold: it is damaged; "
            "export it again."
        )


def _tiles_of(picture: DicomSlice) -> list[DicomSlice]:
    """List the slices of a Siemens mosaic, whose position is that of a slice of its full size."""
    count, toward, gap_mm = _mosaic(picture.file.path)
    if picture.position_lps is None or picture.pixel_spacing_mm is None:
        raise VolumeError("DICOM PixelSpacing is missing; export the series again.")
    # 1. The image is a square of tiles, the last of which may be empty.
    rows, columns, _ = picture.size
    across = math.isqrt(count - 1) + 1
    if count > _MOST_TILES or across > min(rows, columns):
        raise VolumeError(
            f"The DICOM file is a Siemens mosaic and states {count} tiles, more than its "
            f"{rows} x {columns} pixels can hold: it is damaged; export it again."
        )
    height, width = rows // across, columns // across
    # 2. The first slice has the centre of the whole image.
    row_mm, column_mm = picture.pixel_spacing_mm
    shift = np.array([(columns - width) / 2 * column_mm, (rows - height) / 2 * row_mm])
    first = picture.position_lps + picture.axes_lps @ shift
    # 3. The others follow along the exact normal of the axes; the private one gives only the sign.
    side = 1.0 if float(toward @ picture.normal_lps) > 0 else -1.0
    step = side * gap_mm * picture.normal_lps
    return [
        replace(
            picture,
            position_lps=first + k * step,
            tile=(k // across * height, k % across * width, height, width),
        )
        for k in range(count)
    ]


def _mosaic(path: Path) -> tuple[int, Floats, float]:
    """Return a mosaic's number of slices, the direction to the next one (LPS), and the gap, mm.

    Raises:
        VolumeError: If the private header that states these is gone or incomplete.
    """
    header = pydicom.dcmread(path, stop_before_pixels=True, force=True)
    private = _private_values(header)
    try:
        count = int(header.private_block(0x0019, _SIEMENS_HEADER)[0x0A].value)
    except parser_errors():
        count = int(float((private.get("NumberOfImagesInMosaic") or ["0"])[0]))
    try:
        toward = np.array([float(text) for text in private.get("SliceNormalVector", [])[:3]])
    except ValueError:
        toward = np.zeros(0)
    gap = first_value(header, "SpacingBetweenSlices") or first_value(header, "SliceThickness")
    is_vector = toward.shape == (3,) and np.isfinite(toward).all() and toward.any()
    if count < 1 or not is_vector or not gap:
        raise VolumeError(
            "The DICOM file is a Siemens mosaic, slices as tiles of one picture, without the "
            "private header that states their number and order; export the series from the "
            "scanner again, either not as mosaics or with all private attributes."
        )
    return count, toward, abs(float(gap))


def _private_values(header: Dataset) -> dict[str, list[str]]:
    """Read the CSA image header as values by name; empty if it is gone or damaged.

    Source:
        Layout as documented by nibabel, https://nipy.org/nibabel/dicom/siemens_csa.html.
    """
    try:
        data = bytes(header.private_block(0x0029, _SIEMENS_CSA)[0x10].value)
        return _csa(data)
    except parser_errors():
        return {}


def _csa(data: bytes) -> dict[str, list[str]]:
    is_second = data[:4] == b"SV10"
    at = 8 if is_second else 0
    (tags, _), at = struct.unpack_from("<2I", data, at), at + 8
    found: dict[str, list[str]] = {}
    base = 0
    for number in range(min(tags, _MOST_TAGS)):
        name, _, _, _, items, _ = struct.unpack_from("<64si4s3i", data, at)
        at += 84
        base = items if number == 0 else base
        texts = []
        for _ in range(items):
            lengths = struct.unpack_from("<4i", data, at)
            at += 16
            length = lengths[1] if is_second else lengths[0] - base
            if length < 0 or at + length > len(data):
                break
            texts.append(data[at : at + length].split(b"\0")[0].decode("latin-1").strip())
            at += -(-length // 4) * 4
        found[name.split(b"\0")[0].decode("latin-1")] = [text for text in texts if text]
    return found


def _differences(header: Dataset) -> dict[str, str]:
    found = ((keyword, first_value(header, keyword)) for keyword in DIFFERENCES)
    return {keyword: _text(value) for keyword, value in found if value is not None}


def _slices_of_frames(file: DicomFile, count: int) -> list[DicomSlice]:
    """List the slices of a multi-frame file without functional groups."""
    header = file.header
    places = places_of(header)
    first = _slice(file, 0, places[0], header, header, _differences(header))
    pointers = set(_whole_numbers(header, "FrameIncrementPointer"))
    slice_numbers = _vector(header, "SliceVector", count)
    is_space = slice_numbers is not None or not pointers.isdisjoint(_SPACE_POINTERS)
    is_placed = first.position_lps is not None
    if not is_space and (pointers or not is_placed):
        if first.size[2] > 1:
            return [replace(first, frame=k, is_separate=True) for k in range(count)]
        return [replace(first, times=count)]
    gap = _frame_gap(header)
    modality = str(first_value(header, "Modality") or "")
    if gap is None or not (is_space or modality in _SLICED):
        raise VolumeError(
            f"A DICOM file holds {count} frames at one position and does not state whether they "
            "are slices, with which spacing, or time points; export it as single-frame images."
        )
    if not is_placed:
        first, gap = _without_place(first, gap)
    # 1. Slice number, detector and other indices of each frame.
    vectors = {k: v for k in FRAME_VECTORS if (v := _vector(header, k, count)) is not None}
    steps = slice_numbers or list(range(1, count + 1))
    detector = vectors.get("DetectorVector", [1] * count)
    # 2. The first slice of a detector is at the detector's position; the others follow along the
    #    normal, or in nuclear medicine against it if the spacing is negative (PS3.3 C.8.4.15).
    slices = []
    for index in range(count):
        start = first
        if is_placed and 1 < detector[index] <= len(places):
            start = _slice(file, 0, places[detector[index] - 1], header, header, {})
        if start.position_lps is None:
            raise VolumeError(
                "A detector of a DICOM file has no position; export the series again."
            )
        differences = first.differences | {k: str(v[index]) for k, v in vectors.items()}
        position = start.position_lps + (steps[index] - 1) * gap * start.normal_lps
        slices.append(replace(start, frame=index, position_lps=position, differences=differences))
    return slices


def _without_place(first: DicomSlice, gap: float) -> tuple[DicomSlice, float]:
    """Place slices without a position at the origin; pixels without a size become 1 mm."""
    logger.warning(
        "The DICOM file does not state the position and orientation of its frames; they are put "
        "at the origin along the patient's axes, which may be wrong."
    )
    if first.pixel_spacing_mm is None:
        logger.warning(
            "The DICOM file does not state its pixel spacing; voxels of 1 mm are assumed: do not "
            "measure in it."
        )
        first, gap = replace(first, pixel_spacing_mm=(1.0, 1.0)), 1.0
    return replace(first, position_lps=np.zeros(3), is_separate=False), gap


def _whole_numbers(header: Dataset, keyword: str) -> list[int]:
    value: Any = first_value(header, keyword)
    if value is None:
        return []
    return [int(v) for v in (value if isinstance(value, Sequence) else [value])]


def _vector(header: Dataset, keyword: str, count: int) -> list[int] | None:
    entries = _whole_numbers(header, keyword)
    if len(entries) not in (0, count):
        raise VolumeError(
            f"DICOM {keyword} has {len(entries)} entries for {count} frames; export the series "
            "again."
        )
    return entries or None


def _frame_gap(header: Dataset) -> float | None:
    """Return the distance between frames along the normal, mm, signed for NM; None if unknown."""
    for keyword in ("SpacingBetweenSlices", "SliceThickness"):
        gap = numbers(first_value(header, keyword), 1, keyword)
        if gap is not None and gap[0]:
            is_signed = str(first_value(header, "Modality") or "") == "NM"
            return float(gap[0] if is_signed else abs(gap[0]))
    return None


def _slice_of_frame(file: DicomFile, index: int, frame: Dataset, shared: Dataset) -> DicomSlice:
    def group(keyword: str) -> Dataset:
        items = first_value(frame, keyword) or first_value(shared, keyword) or [Dataset()]
        return items[0]

    place = Dataset()
    for sequence, keyword in (
        ("PlanePositionSequence", "ImagePositionPatient"),
        ("PlaneOrientationSequence", "ImageOrientationPatient"),
    ):
        if (value := first_value(group(sequence), keyword)) is not None:
            setattr(place, keyword, value)
    differences = {
        keyword: _text(value)
        for sequence, keyword in _GROUP_DIFFERENCES
        if (value := first_value(group(sequence), keyword)) is not None
    }
    measures = group("PixelMeasuresSequence")
    # A secondary capture may state it for all frames, outside of the groups (PS3.3 C.8.6.3).
    rescale = group("PixelValueTransformationSequence") or file.header
    return _slice(file, index, place, measures, rescale, differences)


def _slice(
    file: DicomFile,
    index: int,
    place: Dataset,
    measures: Dataset,
    rescale: Dataset,
    differences: dict[str, str],
) -> DicomSlice:
    position = numbers(first_value(place, "ImagePositionPatient"), 3, "ImagePositionPatient")
    cosines = numbers(first_value(place, "ImageOrientationPatient"), 6, "ImageOrientationPatient")
    is_placed = position is not None and cosines is not None
    pixel_spacing_mm = pixel_size(measures)
    slope, intercept = (first_value(rescale, k) for k in ("RescaleSlope", "RescaleIntercept"))
    return DicomSlice(
        file=file,
        frame=index,
        position_lps=position if is_placed else None,
        axes_lps=_axes(cosines) if is_placed and cosines is not None else np.eye(3)[:, :2],
        pixel_spacing_mm=pixel_spacing_mm,
        # A slope of 0 would make all voxels equal; like GDCM, take it as not filled in.
        slope=float(slope or 1.0) or 1.0,
        intercept=0.0 if intercept is None else float(intercept),
        differences=differences,
        is_slope_guessed=slope == 0,
        has_spacing=pixel_spacing_mm is not None,
        has_position=is_placed,
        is_separate=not is_placed,
    )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _axes(cosines: Floats) -> Floats:
    """Return orthonormal vectors (columns) of increasing column and row index."""
    along_row, along_column = cosines[:3], cosines[3:]
    gram = [along_row @ along_row, along_column @ along_column, along_row @ along_column]
    if not np.allclose(gram, [1, 1, 0], atol=COSINE_TOLERANCE):
        raise VolumeError(
            "DICOM ImageOrientationPatient must hold two perpendicular unit vectors, got "
            f"{np.round(cosines, 4).tolist()}; export the series again."
        )
    first = along_row / np.linalg.norm(along_row)
    second = along_column - (along_column @ first) * first
    return np.column_stack([first, second / np.linalg.norm(second)])
