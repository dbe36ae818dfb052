"""Headers of the source series, completed so that a DICOM-SEG or RTSTRUCT can reference them."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
from pydicom import dcmread
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.errors import InvalidDicomError
from pydicom.uid import (
    CTImageStorage,
    EnhancedCTImageStorage,
    MRImageStorage,
    PositronEmissionTomographyImageStorage,
    SecondaryCaptureImageStorage,
    generate_uid,
)
from pydicom.valuerep import DSfloat

from pumit.errors import ExportError
from pumit.export.source_frames import PlacedFrame, SourceFrame, slice_spacing_mm
from pumit.export.spacing import PLANAR_THICKNESS_MM
from pumit.file_image import DicomSource

logger = logging.getLogger(__name__)

# Type 2 attributes, required but possibly empty; de-identified files often lack them.
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
# Attributes that a single Secondary Capture is presented without. highdicom would write a pixel
# spacing without a slice thickness, and then refuse to read the file.
_NOT_OF_A_PICTURE = (
    "PixelSpacing",
    "NumberOfFrames",
    "FrameOfReferenceUID",
    "SharedFunctionalGroupsSequence",
    "PerFrameFunctionalGroupsSequence",
)
# Classes whose images highdicom takes as single frames with a position, as they are.
_SINGLE_FRAME = (CTImageStorage, MRImageStorage, PositronEmissionTomographyImageStorage)
# Direction cosines that differ by less are the same orientation, rounded differently.
COSINE_TOLERANCE = 1e-2


def read_headers(source: DicomSource | None) -> list[Dataset]:
    """Read the headers of a series, without pixel data, in slice order.

    Raises:
        ExportError: If there is no source, or a file is gone, damaged, replaced by another image's
            or cannot be referenced.
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
    if "MOSAIC" in (headers[0].get("ImageType") or ()):
        raise ExportError(
            "A DICOM object cannot reference the slices of a mosaic, which are tiles of one "
            "picture; write .seg.nrrd instead."
        )
    names = {str(header.get("SOPInstanceUID")) for header in headers}
    if len(names) < len(headers):
        raise ExportError(
            "Several images of the source series have the same SOPInstanceUID, so a DICOM object "
            "cannot reference one of them; write .seg.nrrd instead."
        )
    for keyword in ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "SOPClassUID"):
        if any(not header.get(keyword) for header in headers):
            raise ExportError(
                f"The source DICOM files have no {keyword}, so they cannot be referenced; write "
                ".seg.nrrd instead."
            )
    # Another patient's images may have the same names, and their headers name the patient.
    if source.instances and names != set(source.instances):
        raise ExportError(
            "Files of the source DICOM series were replaced since the scan was opened; open it "
            "again, then write the result."
        )
    for keyword in ("StudyInstanceUID", "FrameOfReferenceUID"):
        if len({str(header.get(keyword) or "") for header in headers}) > 1:
            raise ExportError(
                f"The source DICOM images have several values of {keyword}, so they cannot be "
                "referenced together; write .seg.nrrd instead."
            )
    return headers


def name_true_class(seg: Dataset, told: str, uid: str) -> None:
    """Restore the SOP class of the source files in references to them.

    Args:
        told: SOP class that `complete_headers` set in their headers.
        uid: SOP class of the files.
    """

    def correct(_: Dataset, element: DataElement) -> None:
        if element.keyword == "ReferencedSOPClassUID" and element.value == told:
            element.value = uid

    if uid != told:
        seg.walk(correct)


def name_true_frames(seg: Dataset, numbers: Mapping[int, int]) -> None:
    """Restore the frame numbers of the source file in references to it.

    Args:
        numbers: Numbers of the frames that were read, by the numbers that highdicom gives them; it
            gives none, which is 1 here, to a source image that was treated as single-frame.
    """
    derivations = (
        derivation
        for group in seg.PerFrameFunctionalGroupsSequence
        for derivation in group.get("DerivationImageSequence", ())
    )
    # Segments on one frame share its item.
    items = {id(item): item for d in derivations for item in d.SourceImageSequence}
    for item in items.values():
        item.ReferencedFrameNumber = numbers[int(item.get("ReferencedFrameNumber") or 1)]


def complete_headers(headers: Sequence[Dataset], frames: Sequence[SourceFrame]) -> None:
    """Complete the headers in memory with attributes that the result needs; files stay unchanged.

    Text becomes Unicode, missing type 2 attributes become empty, and orientations that differ by
    rounding become equal. SpacingBetweenSlices is computed from positions: it is often absent, and
    some scanners state the gap between slices. A slice without a thickness gets one of 1 mm, which
    a DICOM-SEG must state. A multi-frame file gets the given frames only, which highdicom will
    number from 1.
    """
    # Patient and study are copied from the first header.
    first = headers[0]
    for keyword in _MAY_BE_EMPTY:
        if keyword not in first:
            setattr(first, keyword, "")
    _to_unicode(first)
    if frames[0].geometry is None:
        # An image without a position is presented to highdicom as a single Secondary Capture;
        # `name_true_class` and `name_true_frames` correct the references to it.
        first.SOPClassUID = SecondaryCaptureImageStorage
        for keyword in _NOT_OF_A_PICTURE:
            first.pop(keyword, None)
        return
    if not first.get("FrameOfReferenceUID"):
        logger.warning(
            "The source series has no frame of reference; a new one is generated for the result."
        )
        uid = generate_uid()
        for header in headers:
            header.FrameOfReferenceUID = uid
    measures = first
    if frames[0].number is not None:
        measures = _add_groups(first, frames)
    else:
        _as_single_frames(headers, frames)
    spacing = slice_spacing_mm(frames)
    if spacing:
        measures.SpacingBetweenSlices = DSfloat(spacing, auto_format=True)
    if not measures.get("SliceThickness"):
        thickness_mm = spacing or PLANAR_THICKNESS_MM
        measures.SliceThickness = DSfloat(thickness_mm, auto_format=True)


def _as_single_frames(headers: Sequence[Dataset], frames: Sequence[SourceFrame]) -> None:
    """Present files of one image each to highdicom as single frames with a place and a pixel size.

    Nuclear medicine, angiography and others may hold several frames, even if they hold one; their
    SOP class is replaced, and `name_true_class` corrects the references. They may state their place
    by detector, and projections their pixel size elsewhere.
    """
    classes = {str(header.get("SOPClassUID")) for header in headers}
    first = frames[0].geometry
    for header, frame in zip(headers, frames, strict=True):
        if frame.geometry is not None and first is not None:
            size_mm = frame.geometry.pixel_spacing_mm
            header.PixelSpacing = [DSfloat(v, auto_format=True) for v in size_mm]
            _set_position(header, frame.geometry)
            off = np.abs(frame.geometry.axes_lps - first.axes_lps).max()
            _set_orientation(header, first if off < COSINE_TOLERANCE else frame.geometry)
        if len(classes) == 1 and not classes.intersection(_SINGLE_FRAME):
            header.SOPClassUID = CTImageStorage
            header.pop("NumberOfFrames", None)


def _add_groups(header: Dataset, frames: Sequence[SourceFrame]) -> Dataset:
    """Replace or add functional groups of a multi-frame object by those of the given frames.

    The header gets an enhanced SOP class; `name_true_class` corrects the references to it.

    Returns:
        The pixel measures, which all frames share.
    """
    placed = [frame.geometry for frame in frames if frame.geometry is not None]
    measures, orientation, shared = Dataset(), Dataset(), Dataset()
    measures.PixelSpacing = [DSfloat(v, auto_format=True) for v in placed[0].pixel_spacing_mm]
    measures.SliceThickness = _thickness(header)
    _set_orientation(orientation, placed[0])
    shared.PixelMeasuresSequence = [measures]
    shared.PlaneOrientationSequence = [orientation]
    groups = []
    for geometry in placed:
        position, group = Dataset(), Dataset()
        _set_position(position, geometry)
        group.PlanePositionSequence = [position]
        groups.append(group)
    # With these, highdicom would use the first frame's geometry for all.
    for keyword in ("ImagePositionPatient", "ImageOrientationPatient"):
        header.pop(keyword, None)
    header.SOPClassUID, header.NumberOfFrames = EnhancedCTImageStorage, len(placed)
    header.SharedFunctionalGroupsSequence = [shared]
    header.PerFrameFunctionalGroupsSequence = groups
    return measures


def _set_position(item: Dataset, frame: PlacedFrame) -> None:
    item.ImagePositionPatient = [DSfloat(v, auto_format=True) for v in frame.position_lps]


def _set_orientation(item: Dataset, frame: PlacedFrame) -> None:
    cosines = frame.axes_lps.T.ravel()
    item.ImageOrientationPatient = [DSfloat(v, auto_format=True) for v in cosines]


def _thickness(header: Dataset) -> float | None:
    groups = [header]
    for keyword in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        for group in (header.get(keyword) or ())[:1]:
            groups += group.get("PixelMeasuresSequence", ())
    return next((g.SliceThickness for g in groups if g.get("SliceThickness")), None)


def _to_unicode(header: Dataset) -> None:
    """Convert text from the file's SpecificCharacterSet to UTF-8."""
    header.decode()
    for element in header:
        if element.VR == "PN" and element.VM == 1:
            element.value = str(element.value)
    header.SpecificCharacterSet = "ISO_IR 192"
