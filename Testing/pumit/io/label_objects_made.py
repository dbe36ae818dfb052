"""Scans with DICOM-SEG, RTSTRUCT and Slicer scenes, generated for the readers' tests."""

import zipfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import highdicom as hd
import numpy as np
import numpy.typing as npt
import SimpleITK
from generated_scans import Array, rotation
from pumit.export.dicom_series import write_dicom_series
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.export.terminology import concept_for
from pumit.io.dicom.decoding import _bits
from pumit.segmentation import Algorithm, Segmentation
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sr.codedict import codes
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

SHAPE = (6, 14, 17)
SPACING = (2.5, 0.9, 0.7)
RT_STRUCT = "1.2.840.10008.5.1.4.1.1.481.3"


def a_volume(seed: int = 0) -> Volume:
    """An oblique scan of noise."""
    noise = np.random.default_rng(seed).normal(0, 200, SHAPE).round().astype(np.int16)
    return Volume(noise, SPACING, (-12.5, 30.25, 101.0), rotation(10, 20, 30))


def a_series(folder: Path, seed: int = 0) -> Volume:
    """The same as a DICOM series, whose source is its files."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return write_dicom_series(a_volume(seed), folder)


def reordered(volume: Volume, array: Array) -> Volume:
    """The same voxels with the axes in another order, one of them against the first."""
    d, h, w = volume.spacing_mm
    start = volume.index_to_world((SHAPE[0] - 1, 0, 0))
    direction = np.column_stack(
        [volume.direction[:, 1], -volume.direction[:, 2], volume.direction[:, 0]]
    )
    return Volume(array.transpose(2, 0, 1)[:, ::-1], (w, d, h), tuple(start), direction)


def blobs() -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Two rugged masks that overlap, so that any flip or shift shows."""
    rng = np.random.default_rng(1)
    first, second = (rng.random(SHAPE) > 0.4 for _ in range(2))
    first[:, :, 9:], first[4:] = False, False
    second[:, :, :6], second[:1] = False, False
    first[2, 3, 7] = second[2, 3, 7] = True
    return first, second


def save(path: Path, volume: Volume) -> Path:
    """Write any voxels as NRRD."""
    image = SimpleITK.GetImageFromArray(volume.array)
    image.SetSpacing(volume.spacing_mm[::-1])
    image.SetOrigin(volume.origin_lps)
    image.SetDirection(volume.direction.ravel().tolist())
    SimpleITK.WriteImage(image, str(path))
    return path


def save_segments(path: Path, volume: Volume, index: tuple[slice, ...] = ()) -> Path:
    """Two overlapping segments, cut out of the volume."""
    first = tuple(s.start or 0 for s in index) or (0, 0, 0)
    part = replace(
        volume, array=volume.array[index], origin_lps=tuple(volume.index_to_world(first))
    )
    segments = [
        concept_for(name).segment(name, mask[index])
        for name, mask in zip(("liver", "spleen"), blobs(), strict=True)
    ]
    write_seg_nrrd(Segmentation(part, segments, Algorithm("x", "1")), path)
    return path


def write_seg(path: Path, volume: Volume, pixels: Array, kind: str, names: Sequence[str]) -> Path:
    """Write a DICOM-SEG as highdicom makes it; pixels (D, H, W) or (D, H, W, S)."""
    described = [
        hd.seg.SegmentDescription(
            segment_number=number,
            segment_label=name,
            segmented_property_category=codes.SCT.Organ,
            segmented_property_type=codes.SCT.Liver,
            algorithm_type="MANUAL",
            display_color=hd.color.CIELabColor.from_rgb(255, 0, 0),
        )
        for number, name in enumerate(names, start=1)
    ]
    seg = hd.seg.Segmentation(
        source_images=[dcmread(file) for file in volume.source.files],
        pixel_array=pixels,
        segmentation_type=kind,
        segment_descriptions=described,
        series_instance_uid=generate_uid(),
        series_number=7,
        sop_instance_uid=generate_uid(),
        instance_number=1,
        manufacturer="x",
        manufacturer_model_name="x",
        software_versions="1",
        device_serial_number="1",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    seg.save_as(path)
    return path


def write_parts(path: Path, folder: Path) -> list[Path]:
    """Divide a DICOM-SEG into two instances of one concatenation."""
    seg = dcmread(path)
    frames = list(_bits(seg, list(range(seg.NumberOfFrames))))
    cut = 3
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, part in enumerate((slice(0, cut), slice(cut, None)), start=1):
        ds = deepcopy(seg)
        ds.SOPInstanceUID = ds.file_meta.MediaStorageSOPInstanceUID = generate_uid()
        ds.ConcatenationUID, ds.SOPInstanceUIDOfConcatenationSource = "1.2.77", seg.SOPInstanceUID
        ds.InConcatenationNumber, ds.InConcatenationTotalNumber = number, 2
        ds.ConcatenationFrameOffsetNumber = part.start
        ds.PerFrameFunctionalGroupsSequence = seg.PerFrameFunctionalGroupsSequence[part]
        ds.NumberOfFrames = len(ds.PerFrameFunctionalGroupsSequence)
        bits = np.concatenate([f.ravel() for f in frames[part]])
        data = np.packbits(bits, bitorder="little").tobytes()
        ds.PixelData = data + b"\0" * (len(data) % 2)
        paths.append(folder / f"part{3 - number}.dcm")
        ds.save_as(paths[-1])
    return paths


def write_struct(
    path: Path, volume: Volume, regions: Mapping[str, Sequence[Array]], **more: Any
) -> Path:
    """Write an RTSTRUCT.

    Args:
        path: File to write.
        volume: The scan; its source is referred to.
        regions: Name to contours, each corners (n, 3) as (d, h, w) voxel indices.
        more: Attributes of every contour.
    """
    ds = Dataset()
    ds.SOPClassUID, ds.SOPInstanceUID = RT_STRUCT, generate_uid()
    ds.PatientID, ds.PatientName, ds.Modality = "SECRET-ID", "Secret^Patient", "RTSTRUCT"
    ds.StudyInstanceUID, ds.SeriesInstanceUID = generate_uid(), generate_uid()
    series, study, frame = Dataset(), Dataset(), Dataset()
    series.SeriesInstanceUID = volume.source.series_instance_uid if volume.source else "1.2.3"
    study.RTReferencedSeriesSequence = [series]
    frame.FrameOfReferenceUID, frame.RTReferencedStudySequence = "1.2.9", [study]
    ds.ReferencedFrameOfReferenceSequence = [frame]
    ds.StructureSetROISequence, ds.ROIContourSequence = [], []
    for number, (name, contours) in enumerate(regions.items(), start=5):
        roi, drawn = Dataset(), Dataset()
        roi.ROINumber, roi.ROIName, roi.ReferencedFrameOfReferenceUID = number, name, "1.2.9"
        drawn.ReferencedROINumber, drawn.ROIDisplayColor = number, [255, 128, 0]
        drawn.ContourSequence = []
        for corners in contours:
            item = Dataset()
            item.ContourGeometricType = "CLOSED_PLANAR"
            item.NumberOfContourPoints = len(corners)
            points = volume.index_to_world(np.asarray(corners, dtype=float))
            item.ContourData = [f"{v:.6f}" for v in points.ravel()]
            for keyword, value in more.items():
                setattr(item, keyword, value)
            drawn.ContourSequence.append(item)
        ds.StructureSetROISequence.append(roi)
        ds.ROIContourSequence.append(drawn)
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    ds.file_meta.MediaStorageSOPClassUID = RT_STRUCT
    ds.file_meta.MediaStorageSOPInstanceUID = ds.SOPInstanceUID
    ds.save_as(path, enforce_file_format=True)
    return path


SCENE = """<MRML version="Slicer4.4.0">
 <Volume id="vtkMRMLScalarVolumeNode1" name="CT &amp; more"
  references="storage:vtkMRMLVolumeArchetypeStorageNode1;"></Volume>
 <Segmentation id="vtkMRMLSegmentationNode1" name="Segments"
  references="referenceImageGeometryRef:vtkMRMLScalarVolumeNode1;storage:vtkMRMLSegmentationStorageNode1;{more}">
 </Segmentation>
 <VolumeArchetypeStorage id="vtkMRMLVolumeArchetypeStorageNode1" fileName="{volume}">
 </VolumeArchetypeStorage>
 <SegmentationStorage id="vtkMRMLSegmentationStorageNode1" fileName="Data/Segments.seg.nrrd">
 </SegmentationStorage>
</MRML>
"""


def write_bundle(
    path: Path,
    volume: Path,
    segments: Path,
    *,
    name: str = "Data/my%20scan.nrrd",
    member: str = "a scene/Data/my scan.nrrd",
    scene: str = SCENE,
    more: str = "",
) -> Path:
    """Write a scene's bundle of two files, as Slicer lays it out."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        text = scene.replace("{volume}", name).replace("{more}", more)
        archive.writestr("a scene/a scene.mrml", text)
        archive.write(volume, member)
        archive.write(segments, "a scene/Data/Segments.seg.nrrd")
    return path
