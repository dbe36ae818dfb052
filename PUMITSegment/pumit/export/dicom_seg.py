"""Writer of DICOM Segmentation objects that reference the source series."""

import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

import highdicom as hd
import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.uid import generate_uid

import pumit
from pumit.errors import ExportError
from pumit.export.labelmap import label_type
from pumit.export.source_frames import SourceFrame, mask_on_frames, source_frames
from pumit.export.source_headers import (
    complete_headers,
    name_true_class,
    name_true_frames,
    read_headers,
)
from pumit.segmentation import Algorithm, CodedConcept, Segment, Segmentation
from pumit.system.files import atomic_path

MANUFACTURER = "PUMIT"
# Scanners number the series of a study from 1, so this does not collide.
SERIES_NUMBER = 1000
SegKind = Literal["BINARY", "LABELMAP"]
# Removed where a file must not say who the patient is: groups of patient, trial, visit and request,
# and what else of the study names people, places or their numbers.
IDENTIFYING_GROUPS = {0x0010, 0x0012, 0x0032, 0x0038}
IDENTIFYING = {
    "AccessionNumber", "IssuerOfAccessionNumberSequence", "ContributingEquipmentSequence",
    "InstitutionName", "InstitutionAddress",
    "InstitutionCodeSequence", "InstitutionalDepartmentName", "ReferringPhysicianName",
    "ReferringPhysicianIdentificationSequence", "ConsultingPhysicianName", "PhysiciansOfRecord",
    "PhysiciansOfRecordIdentificationSequence", "NameOfPhysiciansReadingStudy",
    "PhysiciansReadingStudyIdentificationSequence", "OperatorsName", "StudyDescription",
    "ReferencedPatientSequence", "StudyID", "StationName",
    "AdmittingDiagnosesDescription", "AdmittingDiagnosesCodeSequence",
}  # fmt: skip
# The standard requires them, also empty.
REQUIRED = (
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex"),
    *("AccessionNumber", "ReferringPhysicianName", "StudyID"),
)


def write_dicom_seg(
    segmentation: Segmentation,
    path: str | Path | BinaryIO,
    *,
    kind: SegKind = "BINARY",
    series_description: str = "PUMIT segmentation",
    reviewer: str = "",
    reviewed_at: datetime | None = None,
    identifies_patient: bool = True,
) -> None:
    """Write a DICOM-SEG on the frames of the source series.

    In a BINARY object every segment has its own frames, so segments may overlap. A LABELMAP object
    (DICOM 2024c) has one frame per slice for all segments; fewer programs read it. Frames may be in
    any order. If the volume was resampled (gantry tilt, uneven spacing), frames are sampled from
    the mask by nearest neighbour.

    Args:
        segmentation: Segments of a volume that was read from DICOM.
        path: File to write, usually `.dcm`; or an open binary file or buffer.
        kind: SegmentationType; a LABELMAP holds one segment per voxel.
        reviewer: ContentCreatorName: the person who approved the segments; empty for none.
        reviewed_at: ContentDate and ContentTime; None for now.
        identifies_patient: Whether to copy what the source says of the patient, the people and the
            institution.

    Raises:
        ExportError: If the volume has no DICOM source, a source file is gone or unusable, a
            segment meets no frame, segments of a LABELMAP overlap, or the file cannot be written.
    """
    # pydicom and highdicom quote odd values in warnings, patient names among them.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = segmentation.volume.source
        headers = read_headers(source)
        assert source is not None  # or reading would have raised
        frames = source_frames(headers, source)
        source_class = str(headers[0].SOPClassUID)
        complete_headers(headers, frames)
        pixels, first = _stack(segmentation, frames, may_overlap=kind == "BINARY")
        seg = _build(segmentation, headers, frames[first : first + len(pixels)], pixels, kind)
        name_true_class(seg, headers[0].SOPClassUID, source_class)
        if frames[0].geometry is None:
            seg.PatientOrientation = headers[0].get("PatientOrientation")
        numbers = {n: f.number for n, f in enumerate(frames, start=1) if f.number is not None}
        if numbers:
            name_true_frames(seg, numbers)
        seg.SeriesDescription = series_description
        if reviewer:
            seg.ContentCreatorName = reviewer.replace("\\", " ")[:64]
        if reviewed_at is not None:
            seg.ContentDate, seg.ContentTime = f"{reviewed_at:%Y%m%d}", f"{reviewed_at:%H%M%S}"
        if not identifies_patient:
            _remove_identity(seg)
        if not isinstance(path, (str, Path)):
            seg.save_as(path)
            return
        with atomic_path(Path(path)) as temporary:
            seg.save_as(temporary)


def _remove_identity(seg: Dataset) -> None:
    for element in list(seg):
        if element.tag.group in IDENTIFYING_GROUPS or element.keyword in IDENTIFYING:
            del seg[element.tag]
    for keyword in REQUIRED:
        setattr(seg, keyword, "")
    seg.PatientIdentityRemoved = "YES"
    seg.DeidentificationMethod = "Patient, people and institution removed"


def _stack(
    segmentation: Segmentation, frames: Sequence[SourceFrame], *, may_overlap: bool
) -> tuple[npt.NDArray[np.unsignedinteger[Any]], int]:
    """Resample segments onto the frames from the first to the last that is not empty.

    Returns:
        Labels (F, Rows, Columns), or masks (F, Rows, Columns, S) if segments overlap; and the
        index of the first frame.
    """
    volume = segmentation.volume
    masks = [mask_on_frames(volume, s.mask, frames) for s in segmentation.segments]
    for segment, mask in zip(segmentation.segments, masks, strict=True):
        if not mask.any():
            raise ExportError(
                f"Segment {segment.name!r} does not intersect any frame of the source series; "
                "write .seg.nrrd instead."
            )
    used = np.flatnonzero(np.any([m.any(axis=(1, 2)) for m in masks], axis=0))
    # Only these frames: highdicom sums all segments in 64 bits to detect overlap.
    first, stop = int(used[0]), int(used[-1]) + 1
    labels = np.zeros(masks[0][first:stop].shape, dtype=label_type(len(masks)))
    disjoint = not may_overlap or len(masks) < np.iinfo(np.uint8).max
    for number, mask in enumerate(masks, start=1):
        part = mask[first:stop]
        met = int(labels[part].max(initial=0))
        if met and not may_overlap:
            both = (segmentation.segments[n - 1].name for n in (met, number))
            raise ExportError(
                f"Segments {' and '.join(map(repr, both))} overlap, and a DICOM-SEG of type "
                "LABELMAP holds one segment per voxel; write type BINARY (.dcm) or .seg.nrrd."
            )
        if met or not disjoint:
            return np.stack([m[first:stop] for m in masks], axis=-1).astype(np.uint8), first
        labels[part] = number
    return labels, first


def _build(
    segmentation: Segmentation,
    headers: list[Dataset],
    frames: Sequence[SourceFrame],
    pixels: npt.NDArray[np.unsignedinteger[Any]],
    kind: SegKind,
) -> hd.seg.Segmentation:
    algorithm = segmentation.algorithm
    positions = [
        hd.PlanePositionSequence("PATIENT", frame.geometry.position_lps.tolist())
        for frame in frames
        if frame.geometry is not None
    ]
    try:
        return hd.seg.Segmentation(
            source_images=headers,
            pixel_array=pixels,
            segmentation_type=hd.seg.SegmentationTypeValues[kind],
            segment_descriptions=[
                _description(number, segment, algorithm)
                for number, segment in enumerate(segmentation.segments, start=1)
            ],
            series_instance_uid=generate_uid(),
            series_number=SERIES_NUMBER,
            sop_instance_uid=generate_uid(),
            instance_number=1,
            manufacturer=MANUFACTURER,
            manufacturer_model_name=algorithm.name,
            software_versions=[f"{MANUFACTURER} {pumit.__version__}", versioned(algorithm)],
            device_serial_number=pumit.__version__,
            content_description=f"{len(segmentation.segments)} segments by {algorithm.name}"[:64],
            # Orientation and spacing come from the headers.
            plane_positions=positions or None,
        )
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        # highdicom requires a standard-conforming source; its message names the attribute.
        reason = str(error).splitlines()[0].rstrip(".")
        raise ExportError(
            f"The source DICOM series cannot be referenced ({reason}); write .seg.nrrd instead."
        ) from error


def versioned(algorithm: Algorithm) -> str:
    """Return the name of an algorithm with its version, at most 64 characters."""
    if algorithm.version in algorithm.name:
        return algorithm.name
    return f"{algorithm.name[: 63 - len(algorithm.version)]} {algorithm.version}"[:64].strip()


def coded(concept: CodedConcept) -> hd.sr.CodedConcept:
    """Convert a coded concept to highdicom's class."""
    return hd.sr.CodedConcept(concept.value, concept.scheme, concept.meaning)


def _description(number: int, segment: Segment, algorithm: Algorithm) -> hd.seg.SegmentDescription:
    region = segment.anatomic_region
    description = hd.seg.SegmentDescription(
        segment_number=number,
        segment_label=segment.name,
        segmented_property_category=coded(segment.category),
        segmented_property_type=coded(segment.type),
        algorithm_type=algorithm.kind,
        algorithm_identification=hd.AlgorithmIdentificationSequence(
            name=algorithm.name,
            family=codes.DCM.ArtificialIntelligence,
            version=algorithm.version,
            source=MANUFACTURER,
        ),
        anatomic_regions=[coded(region)] if region else None,
        display_color=hd.color.CIELabColor.from_rgb(
            *(round(255 * part) for part in segment.color_rgb)
        ),
    )
    # highdicom has no argument for modifiers.
    if segment.type_modifier:
        item = description.SegmentedPropertyTypeCodeSequence[0]
        item.SegmentedPropertyTypeModifierCodeSequence = [coded(segment.type_modifier)]
    if segment.region_modifier:
        item = description.AnatomicRegionSequence[0]
        item.AnatomicRegionModifierSequence = [coded(segment.region_modifier)]
    return description
