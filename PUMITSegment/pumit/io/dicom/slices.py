"""One slice of a DICOM series, be it a file or a frame of a multi-frame file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydicom.dataset import Dataset

from pumit.errors import VolumeError
from pumit.geometry import Floats
from pumit.io.dicom.files import DicomFile, first_value

# What tells two images at one position apart, by the attribute's keyword.
_DIFFERENCES = (
    "EchoTime",
    "TemporalPositionIdentifier",
    "DiffusionBValue",
    "FrameReferenceTime",
    "TriggerTime",
    "InversionTime",
    "FlipAngle",
    "ComplexImageComponent",
    "AcquisitionNumber",
    "ImageType",
)
# The same in the functional groups of a multi-frame object: sequence, keyword.
_GROUP_DIFFERENCES = (
    ("MREchoSequence", "EffectiveEchoTime"),
    ("FrameContentSequence", "TemporalPositionIndex"),
    ("FrameContentSequence", "StackID"),
    ("MRDiffusionSequence", "DiffusionBValue"),
    ("MRImageFrameTypeSequence", "FrameType"),
    ("CTImageFrameTypeSequence", "FrameType"),
)
# Direction cosines are written with few digits; beyond this they are wrong.
COSINE_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class DicomSlice:
    """Geometry of a slice, and the scaling of its stored values to intensities.

    Attributes:
        file: The file it is in.
        frame: Index of the frame in that file, 0 for a single-frame file.
        position_lps: Centre of the first pixel, LPS mm; None for a projection image.
        axes_lps: 3 x 2, columns: unit vectors of growing column and row index; LPS.
        pixel_spacing_mm: Distance of rows, distance of columns (H, W order); None if unknown.
        slope: Rescale slope.
        intercept: Rescale intercept.
        differences: Values that may tell this slice from another at the same position.
    """

    file: DicomFile
    frame: int
    position_lps: Floats | None
    axes_lps: Floats
    pixel_spacing_mm: tuple[float, float] | None
    slope: float
    intercept: float
    differences: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> tuple[int, int, int]:
        """Rows, columns, samples per pixel."""
        header = self.file.header
        is_palette = str(header.get("PhotometricInterpretation", "")) == "PALETTE COLOR"
        samples = 3 if is_palette else int(header.get("SamplesPerPixel") or 1)
        return (int(header.Rows), int(header.Columns), samples)

    @property
    def normal_lps(self) -> Floats:
        """Unit vector across the slice, right-handed with its axes."""
        return np.asarray(np.cross(self.axes_lps[:, 0], self.axes_lps[:, 1]))


def slices_of(file: DicomFile) -> list[DicomSlice]:
    """List the slices of a file.

    A multi-frame object without positions (cine, angiography) is one slice: its frames are
    time, which becomes channels.

    Raises:
        VolumeError: If positions, orientation or pixel spacing are not numbers.
    """
    header = file.header
    frames = first_value(header, "PerFrameFunctionalGroupsSequence")
    if not frames:
        differences = {
            keyword: _text(value)
            for keyword in _DIFFERENCES
            if (value := first_value(header, keyword)) is not None
        }
        return [_slice(file, 0, header, header, header, differences)]
    shared = (first_value(header, "SharedFunctionalGroupsSequence") or [Dataset()])[0]
    return [_slice_of_frame(file, index, frame, shared) for index, frame in enumerate(frames)]


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
    rescale = group("PixelValueTransformationSequence")
    return _slice(file, index, place, measures, rescale, differences)


def _slice(
    file: DicomFile,
    index: int,
    place: Dataset,
    measures: Dataset,
    rescale: Dataset,
    differences: dict[str, str],
) -> DicomSlice:
    position = _numbers(first_value(place, "ImagePositionPatient"), 3, "ImagePositionPatient")
    cosines = _numbers(first_value(place, "ImageOrientationPatient"), 6, "ImageOrientationPatient")
    is_placed = position is not None and cosines is not None
    slope, intercept = (first_value(rescale, k) for k in ("RescaleSlope", "RescaleIntercept"))
    return DicomSlice(
        file=file,
        frame=index,
        position_lps=position if is_placed else None,
        axes_lps=_axes(cosines) if is_placed and cosines is not None else np.eye(3)[:, :2],
        pixel_spacing_mm=_pixel_spacing(measures),
        slope=1.0 if slope is None else float(slope),
        intercept=0.0 if intercept is None else float(intercept),
        differences=differences,
    )


def _pixel_spacing(measures: Dataset) -> tuple[float, float] | None:
    for keyword in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"):
        values = _numbers(first_value(measures, keyword), 2, keyword)
        if values is not None:
            if (values <= 0).any():
                raise VolumeError(
                    f"DICOM {keyword} must be positive, got {values.tolist()} mm; "
                    "correct the header, or export the series again."
                )
            return (float(values[0]), float(values[1]))
    return None


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _numbers(value: Any, count: int, keyword: str) -> Floats | None:
    if value is None:
        return None
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    items = list(value) if is_sequence else [value]
    try:
        numbers = np.array([float(v) for v in items])
    except (TypeError, ValueError):
        numbers = np.array([])
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise VolumeError(f"DICOM {keyword} must be {count} numbers; export the series again.")
    return numbers


def _axes(cosines: Floats) -> Floats:
    """Unit vectors (columns) of growing column and row index, exactly perpendicular."""
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
