"""Headers of a source series, completed so that a DICOM-SEG or RTSTRUCT can reference them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from pydicom import dcmread
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.errors import InvalidDicomError
from pydicom.uid import EnhancedCTImageStorage, generate_uid
from pydicom.valuerep import DSfloat

from pumit.errors import ExportError
from pumit.export.source_frames import SourceFrame, slice_spacing_mm
from pumit.file_image import DicomSource

logger = logging.getLogger(__name__)

# Required in every object, though possibly empty; de-identified files often lack them.
_MAY_BE_EMPTY = (
    "PatientID",
    "PatientName",
    "PatientBirthDate",
    "PatientSex",
    "AccessionNumber",
    "StudyID",
    "StudyDate",
    "StudyTime",
    "ReferringPhysicianName",
)
# Cosines of one series that differ by less are one orientation, rounded differently.
COSINE_TOLERANCE = 1e-2


def read_headers(source: DicomSource | None) -> list[Dataset]:
    """Read the headers of a series, without pixels, in slice order.

    Raises:
        ExportError: If there is no source, or a file is gone, damaged or without identifiers.
    """
    if source is None or not source.files:
        raise ExportError(
            "DICOM-SEG and RTSTRUCT reference a DICOM series, and this image has none; "
            "write .seg.nrrd or .nii.gz instead, or open the DICOM folder of the scan."
        )
    headers = []
    for file in source.files:
        try:
            headers.append(dcmread(file, stop_before_pixels=True))
        except (OSError, InvalidDicomError):
            raise ExportError(
                "A file of the source DICOM series is gone or damaged; "
                "open the scan again, then write the result."
            ) from None
    _refuse_unreferable(headers)
    for keyword in ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "SOPClassUID"):
        if any(not header.get(keyword) for header in headers):
            raise ExportError(
                f"The source DICOM files carry no {keyword}, so nothing can reference them; "
                "write .seg.nrrd instead."
            )
    return headers


def _refuse_unreferable(headers: Sequence[Dataset]) -> None:
    """Refuse slices that no object can name."""
    if "MOSAIC" in (headers[0].get("ImageType") or ()):
        raise ExportError(
            "No DICOM object can refer to the slices of a mosaic, which are tiles of one picture; "
            "write .seg.nrrd instead."
        )
    names = [str(header.get("SOPInstanceUID")) for header in headers]
    if len(set(names)) < len(names):
        raise ExportError(
            "Several images of the source series have the same SOPInstanceUID, so a DICOM object "
            "cannot refer to one of them; write .seg.nrrd instead."
        )


def name_true_class(seg: Dataset, uid: str) -> None:
    """Let references to source images state the class that their files have.

    Args:
        seg: Object that refers to them.
        uid: Class of the files.
    """

    def correct(_: Dataset, element: DataElement) -> None:
        if element.keyword == "ReferencedSOPClassUID" and element.value == EnhancedCTImageStorage:
            element.value = uid

    if uid != EnhancedCTImageStorage:
        seg.walk(correct)


def complete_headers(headers: Sequence[Dataset], frames: Sequence[SourceFrame]) -> None:
    """Fill in memory what the result copies from its source; no file changes.

    Text becomes Unicode, missing patient and study attributes become empty, orientations that
    differ by rounding become one, and the slice spacing becomes that of the slices' positions:
    the attribute is often absent, and with some scanners means the gap between slices.
    """
    # Patient and study are copied from the first header.
    first = headers[0]
    for keyword in _MAY_BE_EMPTY:
        if keyword not in first:
            setattr(first, keyword, "")
    _to_unicode(first)
    if frames[0].geometry is None:
        return
    if "FrameOfReferenceUID" not in first:
        logger.warning("The source series has no frame of reference; the result gets its own.")
        uid = generate_uid()
        for header in headers:
            header.FrameOfReferenceUID = uid
    if "PerFrameFunctionalGroupsSequence" not in first and len(frames) > len(headers):
        _add_groups(first, frames)
    measures = first
    if "PerFrameFunctionalGroupsSequence" in first:
        shared = first.SharedFunctionalGroupsSequence[0]
        measures = shared.get("PixelMeasuresSequence", [Dataset()])[0]
    else:
        _unify_orientation(headers)
    spacing = slice_spacing_mm(frames)
    if spacing:
        measures.SpacingBetweenSlices = DSfloat(spacing, auto_format=True)
    if not measures.get("SliceThickness"):
        measures.SliceThickness = DSfloat(spacing, auto_format=True) if spacing else None


def _add_groups(header: Dataset, frames: Sequence[SourceFrame]) -> None:
    """Say in functional groups where the frames of an older multi-frame object are.

    The header gets a class of which several frames are expected; `name_true_class` undoes that in
    what refers to it.
    """
    placed = [frame.geometry for frame in frames if frame.geometry is not None]
    measures, orientation, shared = Dataset(), Dataset(), Dataset()
    measures.PixelSpacing = [DSfloat(v, auto_format=True) for v in placed[0].pixel_spacing_mm]
    measures.SliceThickness = header.get("SliceThickness")
    cosines = (*placed[0].row_lps, *placed[0].column_lps)
    orientation.ImageOrientationPatient = [DSfloat(v, auto_format=True) for v in cosines]
    shared.PixelMeasuresSequence = [measures]
    shared.PlaneOrientationSequence = [orientation]
    groups = []
    for geometry in placed:
        position, group = Dataset(), Dataset()
        position.ImagePositionPatient = [
            DSfloat(v, auto_format=True) for v in geometry.position_lps
        ]
        group.PlanePositionSequence = [position]
        groups.append(group)
    # highdicom would take the first frame's place for that of all.
    for keyword in ("ImagePositionPatient", "ImageOrientationPatient"):
        header.pop(keyword, None)
    header.SOPClassUID = EnhancedCTImageStorage
    header.SharedFunctionalGroupsSequence = [shared]
    header.PerFrameFunctionalGroupsSequence = groups


def _to_unicode(header: Dataset) -> None:
    """Decode names from the file's character set, which may be an old or an empty one."""
    header.decode()
    for element in header:
        if element.VR == "PN" and element.VM == 1:
            element.value = str(element.value)
    header.SpecificCharacterSet = "ISO_IR 192"


def _unify_orientation(headers: Sequence[Dataset]) -> None:
    cosines = headers[0].ImageOrientationPatient
    for header in headers:
        if np.allclose(header.ImageOrientationPatient, cosines, atol=COSINE_TOLERANCE):
            header.ImageOrientationPatient = cosines
