"""Writer of RT Structure Sets with contours on the slices of the source series."""

import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import highdicom as hd
import numpy as np
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset
from pydicom.tag import Tag
from pydicom.uid import ImplicitVRLittleEndian, RTStructureSetStorage, generate_uid

import pumit
from pumit.errors import ExportError
from pumit.export.dicom_seg import MANUFACTURER, SERIES_NUMBER, coded, versioned
from pumit.export.mask_contours import keyhole_contours
from pumit.export.source_frames import SourceFrame, mask_on_frames, pixels_lps, source_frames
from pumit.export.source_headers import complete_headers, read_headers
from pumit.geometry import Floats
from pumit.segmentation import Mask, Segment, Segmentation
from pumit.system.files import atomic_path

# Detached Study Management SOP Class: retired, but still used in RTReferencedStudySequence.
_STUDY_CLASS = "1.2.840.10008.3.1.2.3.1"
_LABEL_LENGTH = 16
_CONTOUR_DATA = Tag("ContourData")
# RTROIInterpretedType of target volumes, recognized at the start of a segment's name.
_TARGETS = ("GTV", "CTV", "PTV")


def write_rt_struct(
    segmentation: Segmentation,
    path: str | Path,
    *,
    series_description: str = "PUMIT structures",
) -> None:
    """Write an RTSTRUCT with CLOSED_PLANAR contours on the frames of the source series.

    Segments may overlap. Holes are joined to their outer contour by the keyhole technique; separate
    components are separate contours. Filling contours at pixel centres reproduces the mask.

    Args:
        segmentation: Segments of a volume that was read from DICOM.

    Raises:
        ExportError: If the volume has no DICOM source with positions, a source file is gone or
            unusable, a segment meets no frame, or the file cannot be written.
    """
    # pydicom and highdicom quote odd values in warnings, patient names among them.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = segmentation.volume.source
        headers = read_headers(source)
        source_class = str(headers[0].SOPClassUID)
        assert source is not None  # or reading would have raised
        frames = source_frames(headers, source)
        if any(frame.geometry is None for frame in frames):
            raise ExportError(
                "An RTSTRUCT needs images with a position, and this picture has none; write .dcm "
                "(DICOM-SEG) instead."
            )
        complete_headers(headers, frames)
        struct = _structure_set(segmentation, headers[0])
        of_frames = headers if len(headers) > 1 else headers * len(frames)
        images = [_image(h, f, source_class) for h, f in zip(of_frames, frames, strict=True)]
        _refer(struct, headers[0], images)
        for number, segment in enumerate(segmentation.segments, start=1):
            mask = mask_on_frames(segmentation.volume, segment.mask, frames)
            if not mask.any():
                raise ExportError(
                    f"Segment {segment.name!r} does not intersect any frame of the source series; "
                    "write .seg.nrrd instead."
                )
            contours = _contours(mask, frames, images)
            _add_region(struct, number, segment, contours, segmentation.algorithm.kind)
        struct.SeriesDescription = series_description
        with atomic_path(Path(path)) as temporary:
            struct.save_as(temporary)


def _structure_set(segmentation: Segmentation, header: Dataset) -> hd.SOPClass:
    algorithm, now = segmentation.algorithm, datetime.now()
    struct = hd.SOPClass(
        study_instance_uid=header.StudyInstanceUID,
        series_instance_uid=generate_uid(),
        series_number=SERIES_NUMBER,
        sop_instance_uid=generate_uid(),
        sop_class_uid=RTStructureSetStorage,
        instance_number=1,
        modality="RTSTRUCT",
        manufacturer=MANUFACTURER,
        manufacturer_model_name=algorithm.name,
        software_versions=[f"{MANUFACTURER} {pumit.__version__}", versioned(algorithm)],
        device_serial_number=pumit.__version__,
        # Explicit VR limits a DS value to 64 KiB, too short for long contours.
        transfer_syntax_uid=ImplicitVRLittleEndian,
        specific_character_set="ISO_IR 192",
    )
    struct.copy_patient_and_study_information(header)
    struct.OperatorsName = ""
    struct.StructureSetLabel = MANUFACTURER
    struct.StructureSetName = algorithm.name
    struct.StructureSetDate = now.strftime("%Y%m%d")
    struct.StructureSetTime = now.strftime("%H%M%S")
    struct.ApprovalStatus = "UNAPPROVED"
    struct.FrameOfReferenceUID = header.FrameOfReferenceUID
    struct.PositionReferenceIndicator = header.get("PositionReferenceIndicator", "")
    struct.StructureSetROISequence = []
    struct.ROIContourSequence = []
    struct.RTROIObservationsSequence = []
    return struct


def _image(header: Dataset, frame: SourceFrame, source_class: str) -> Dataset:
    item = Dataset()
    item.ReferencedSOPClassUID = source_class
    item.ReferencedSOPInstanceUID = header.SOPInstanceUID
    if frame.number is not None:
        item.ReferencedFrameNumber = frame.number
    return item


def _refer(struct: Dataset, header: Dataset, images: Sequence[Dataset]) -> None:
    series, study, frame_of_reference = Dataset(), Dataset(), Dataset()
    series.SeriesInstanceUID = header.SeriesInstanceUID
    # A multi-frame image is referenced once.
    named = {str(image.ReferencedSOPInstanceUID): Dataset() for image in images}
    for uid, item in named.items():
        item.ReferencedSOPClassUID = images[0].ReferencedSOPClassUID
        item.ReferencedSOPInstanceUID = uid
    series.ContourImageSequence = list(named.values())
    study.ReferencedSOPClassUID = _STUDY_CLASS
    study.ReferencedSOPInstanceUID = header.StudyInstanceUID
    study.RTReferencedSeriesSequence = [series]
    frame_of_reference.FrameOfReferenceUID = header.FrameOfReferenceUID
    frame_of_reference.RTReferencedStudySequence = [study]
    struct.ReferencedFrameOfReferenceSequence = [frame_of_reference]


def _add_region(
    struct: Dataset, number: int, segment: Segment, contours: list[Dataset], algorithm: str
) -> None:
    region, drawn, observed = Dataset(), Dataset(), Dataset()
    region.ROINumber = number
    region.ReferencedFrameOfReferenceUID = struct.FrameOfReferenceUID
    region.ROIName = segment.name
    region.ROIGenerationAlgorithm = algorithm
    drawn.ROIDisplayColor = [round(255 * part) for part in segment.color_rgb]
    drawn.ContourSequence = contours
    drawn.ReferencedROINumber = number
    observed.ObservationNumber = observed.ReferencedROINumber = number
    observed.ROIObservationLabel = segment.name[:_LABEL_LENGTH].strip()
    observed.RTROIIdentificationCodeSequence = [coded(segment.type)]
    kind = segment.name[:3].upper()
    observed.RTROIInterpretedType = kind if kind in _TARGETS else ""
    observed.ROIInterpreter = ""
    struct.StructureSetROISequence.append(region)
    struct.ROIContourSequence.append(drawn)
    struct.RTROIObservationsSequence.append(observed)


def _contours(
    mask: Mask, frames: Sequence[SourceFrame], images: Sequence[Dataset]
) -> list[Dataset]:
    items: list[Dataset] = []
    for k in np.flatnonzero(mask.any(axis=(1, 2))).tolist():
        geometry = frames[k].geometry
        assert geometry is not None
        for corners in keyhole_contours(mask[k]):
            item = Dataset()
            item.ContourNumber = len(items) + 1
            item.ContourImageSequence = [images[k]]
            item.ContourGeometricType = "CLOSED_PLANAR"
            item.NumberOfContourPoints = len(corners)
            item[_CONTOUR_DATA] = _numbers(pixels_lps(geometry, corners[:, :1], corners[:, 1:]))
            items.append(item)
    return items


def _numbers(points_lps: Floats) -> RawDataElement:
    """Encode coordinates as DS with 4 decimals; as raw text, as pydicom's conversion is slow."""
    text = "\\".join(f"{v:.4f}" for v in points_lps.ravel()).encode()
    text += b" " * (len(text) % 2)
    return RawDataElement(_CONTOUR_DATA, "DS", len(text), text, 0, True, True)
