"""A DICOM-SEG of an unusual image is valid and names the right frames, or is refused in a line."""

from pathlib import Path
from typing import Any

import highdicom as hd
import numpy as np
import pytest
from export_checks import ALGORITHM, assert_same_masks, dciodvfy, dcmqi_segments
from generated_scans import AXIAL, dicom_slice, group
from pumit.errors import ExportError
from pumit.export.source_frames import source_frames
from pumit.export.write import write_segmentation
from pumit.file_image import DicomSource
from pumit.io.labels.label_source import read_labels
from pumit.segmentation import Segment, Segmentation
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.dataset import Dataset

ROOT = "1.2.840.10008.5.1.4.1.1."
CORONAL = [1, 0, 0, 0, 0, -1]
PLACE, SIZE = (5.0, 6.0, 7.0), {"PixelSpacing": [0.4, 0.3]}
ON_DETECTOR = {"ImagerPixelSpacing": [0.4, 0.3]}
TIMES = {"FrameIncrementPointer": 0x00181063, "FrameTime": 30}
WINDOWS = {
    "FrameIncrementPointer": [0x00540010, 0x00540020],
    "EnergyWindowVector": [1, 2],
    "DetectorVector": [1, 1],
}


def image(
    sop_class: str,
    place: tuple[float, ...] | None = None,
    *,
    count: int | None = None,
    **more: Any,
) -> Dataset:
    """One file, of `count` frames if it is a multi-frame image."""
    pixels = np.random.default_rng(0).integers(0, 255, (count or 1, 12, 14)).astype(np.uint16)
    options = {"pixel_spacing": None, "intercept": 0.0, "SOPClassUID": ROOT + sop_class}
    ds = dicom_slice(pixels[0], place, **options | more)
    if count is not None:
        ds.NumberOfFrames, ds.PixelData = count, pixels.tobytes()
    return ds


def photograph() -> Dataset:
    pixels = np.random.default_rng(0).integers(0, 255, (12, 14, 3)).astype(np.uint8)
    sop_class = ROOT + "77.1.5.1"
    return dicom_slice(pixels, None, pixel_spacing=None, intercept=0.0, SOPClassUID=sop_class,
                       Modality="OP")  # fmt: skip


def detector(place: tuple[float, ...] = PLACE) -> list[Dataset]:
    return group(ImagePositionPatient=list(place), ImageOrientationPatient=CORONAL)


ALL = ("position", "orientation", "measures")


def enhanced(
    count: int, sop_class: str = "2.1", by_frame: tuple[str, ...] = ("position",)
) -> Dataset:
    """A multi-frame image; `by_frame` names what each frame states, the rest is shared."""
    ds = image(sop_class, count=count)
    del ds.RescaleSlope, ds.RescaleIntercept
    shared, ds.PerFrameFunctionalGroupsSequence = Dataset(), []
    ds.SharedFunctionalGroupsSequence = [] if by_frame == ALL else [shared]
    for k in range(count):
        frame = Dataset()
        frame.FrameContentSequence = group(FrameAcquisitionNumber=k + 1)
        position = group(ImagePositionPatient=[1.0, 2.0, 3.0 + 2.5 * k])
        orientation = group(ImageOrientationPatient=list(AXIAL))
        items = dict(zip(ALL, (position, orientation, group(**SIZE)), strict=True))
        keywords = ("PlanePositionSequence", "PlaneOrientationSequence", "PixelMeasuresSequence")
        for (name, item), keyword in zip(items.items(), keywords, strict=True):
            setattr(frame if name in by_frame else shared, keyword, item)
        ds.PerFrameFunctionalGroupsSequence.append(frame)
    return ds


def without_place(count: int) -> Dataset:
    ds = enhanced(count, "12.1.1")
    del ds.SharedFunctionalGroupsSequence[0].PlaneOrientationSequence
    for frame in ds.PerFrameFunctionalGroupsSequence:
        del frame.PlanePositionSequence
    return ds


def stack(sop_class: str, **more: Any) -> list[Dataset]:
    return [image(sop_class, (1, 2, 2.0 * k), InstanceNumber=k + 1, **more) for k in range(3)]


def detectors() -> list[Dataset]:
    places = [(1.0, 2.0 + 2.0 * k, 3.0) for k in range(3)]
    return [
        image("20", InstanceNumber=k + 1, DetectorInformationSequence=detector(p), **SIZE)
        for k, p in enumerate(places)
    ]


# Files of each kind, and the numbers of the frames that a result names.
PLACED: dict[str, tuple[list[Dataset], list[int]]] = {
    "MR slice without thickness": ([image("4", PLACE, **SIZE)], []),
    "MR slice of thickness 0": ([image("4", PLACE, SliceThickness=0, **SIZE)], []),
    "CT localizer": ([image("2", PLACE, orientation=tuple(CORONAL), **SIZE)], []),
    "CR with a place": ([image("1", PLACE, **SIZE)], []),
    "CR by its detector": ([image("1", PLACE, **ON_DETECTOR)], []),
    "XA with a place": ([image("12.1", PLACE, **ON_DETECTOR)], []),
    "XA slices": (stack("12.1", **ON_DETECTOR), []),
    "RT image": ([image("481.1", PLACE, ImagePlanePixelSpacing=[0.4, 0.3])], []),
    "US of one frame": (
        [image("3.1", count=1, ImagePositionPatient=list(PLACE), **SIZE)],
        [],
    ),
    "NM slice": ([image("20", PLACE, **SIZE)], []),
    "NM slices": (stack("20", **SIZE), []),
    "NM frame at a detector": ([image("20", DetectorInformationSequence=detector(), **SIZE)], []),
    "NM frames at detectors": (detectors(), []),
    "NM windows at a detector": (
        [image("20", count=2, DetectorInformationSequence=detector(), **SIZE, **WINDOWS)],
        [],
    ),
    "gray cine with a place": (
        [image("3.1", count=3, ImagePositionPatient=list(PLACE), **SIZE, **TIMES)],
        [],
    ),
    "enhanced, one frame": ([enhanced(1)], [1]),
    "enhanced, one frame, all shared": ([enhanced(1, by_frame=())], [1]),
    "enhanced, one frame, none shared": ([enhanced(1, by_frame=ALL)], [1]),
    "enhanced": ([enhanced(3)], [1, 2, 3]),
    "enhanced, none shared": ([enhanced(3, by_frame=ALL)], [1, 2, 3]),
    "enhanced, orientation not shared": ([enhanced(3, "4.1", by_frame=ALL[:2])], [1, 2, 3]),
}
for files, _ in PLACED.values():
    for file in files:
        if "ImagePositionPatient" in file and "ImageOrientationPatient" not in file:
            file.ImageOrientationPatient = list(AXIAL)
PICTURES: dict[str, tuple[list[Dataset], list[int]]] = {
    "CR": ([image("1", **SIZE)], []),
    "DX": ([image("1.1", PatientOrientation=["L", "F"], **ON_DETECTOR)], []),
    "MG": ([image("1.2", PhotometricInterpretation="MONOCHROME1", **ON_DETECTOR)], []),
    "XA of one frame": ([image("12.1", count=1, **ON_DETECTOR)], []),
    "RT image without a place": ([image("481.1", ImagePlanePixelSpacing=[0.4, 0.3])], []),
    "NM without a place": ([image("20", count=1, **SIZE)], []),
    "enhanced XA of one frame": ([without_place(1)], [1]),
    "XA without a frame of reference": ([image("12.1")], []),
    "OP": ([photograph()], []),
    "CR with a place and no orientation": ([image("1", PLACE, **SIZE)], []),
}
del PICTURES["CR with a place and no orientation"][0][0].ImageOrientationPatient
for kind in ("MG", "XA without a frame of reference", "OP"):
    del PICTURES[kind][0][0].FrameOfReferenceUID


def saved(folder: Path, files: list[Dataset]) -> Volume:
    for k, file in enumerate(files):
        file.save_as(folder / f"{k}.dcm", enforce_file_format=True)
    return Volume.read(folder if len(files) > 1 else folder / "0.dcm")


def two_segments(volume: Volume) -> Segmentation:
    first, second = (np.zeros(volume.shape, dtype=bool) for _ in range(2))
    first[:, 2:6, 3:9] = np.random.default_rng(1).random((len(first), 4, 6)) > 0.4
    second[-1, 9:11, 10:13] = first[:, 8, 2] = True
    return Segmentation(volume, (Segment("a", first), Segment("b", second)), ALGORITHM)


def check(
    tmp_path: Path, volume: Volume, files: list[Dataset], numbers: list[int], suffix: str
) -> Segmentation:
    """Write and read back; the source images and frames are those that were read."""
    segmentation, path = two_segments(volume), tmp_path / f"out{suffix}"
    write_segmentation(segmentation, path)
    found = read_labels(path, volume)
    assert found.doubts == ()
    assert_same_masks({s.name: found.mask(s) for s in found.segments}, segmentation.segments)
    count = sum(int(segment.mask.sum()) for segment in segmentation.segments)
    assert np.count_nonzero(hd.seg.segread(path).pixel_array) == count
    items = [
        item
        for frame in dcmread(path).PerFrameFunctionalGroupsSequence
        for derivation in frame.DerivationImageSequence
        for item in derivation.SourceImageSequence
    ]
    named = {item.ReferencedSOPInstanceUID for item in items}
    assert named == {file.SOPInstanceUID for file in files}
    assert {item.ReferencedSOPClassUID for item in items} == {files[0].SOPClassUID}
    assert {int(n) for i in items if (n := i.get("ReferencedFrameNumber"))} == set(numbers)
    return segmentation


@pytest.mark.parametrize("kind", [*PLACED, *PICTURES])
def test_segments_are_where_the_image_has_a_place_and_name_it_anyway(tmp_path, kind):
    files, numbers = (PLACED | PICTURES)[kind]
    volume = saved(tmp_path, files)
    for suffix in (".labelmap.dcm", ".dcm"):
        segmentation = check(tmp_path, volume, files, numbers, suffix)
    # The validator and dcmqi do not know label maps.
    assert dciodvfy(tmp_path / "out.dcm") == []
    if kind in PLACED:
        masks = dcmqi_segments(tmp_path / "out.dcm", tmp_path / "dcmqi", volume)
        assert_same_masks(masks, segmentation.segments)


def test_one_slice_of_several_gates_names_the_frame_that_was_read(tmp_path):
    vectors = {"SliceVector": [1, 1], "TimeSlotVector": [1, 2]}
    pointers = {"FrameIncrementPointer": [0x00540080, 0x00540070], "SpacingBetweenSlices": 2.0}
    file = image("20", PLACE, count=2, Modality="NM", **pointers, **vectors, **SIZE)
    file.save_as(tmp_path / "0.dcm", enforce_file_format=True)
    volume = Volume.read(tmp_path / "0.dcm", series="1.2.3#2")
    for suffix in (".labelmap.dcm", ".dcm"):
        check(tmp_path, volume, [file], [2], suffix)
    assert dciodvfy(tmp_path / "out.dcm") == []


@pytest.mark.parametrize("suffix", [".dcm", ".labelmap.dcm", ".rtstruct.dcm"])
def test_a_place_without_a_pixel_size_is_refused(tmp_path, suffix):
    volume = saved(tmp_path, [image("2", PLACE)])
    with pytest.raises(ExportError, match="no pixel size") as caught:
        write_segmentation(two_segments(volume), tmp_path / f"out{suffix}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".dcm", ".rtstruct.dcm"])
def test_an_empty_frame_of_reference_becomes_a_new_one(tmp_path, suffix):
    volume = saved(tmp_path, stack("2", FrameOfReferenceUID="", **SIZE))
    write_segmentation(two_segments(volume), tmp_path / f"out{suffix}")
    assert dcmread(tmp_path / f"out{suffix}").FrameOfReferenceUID


@pytest.mark.parametrize("suffix", [".dcm", ".rtstruct.dcm"])
@pytest.mark.parametrize("keyword", ["FrameOfReferenceUID", "StudyInstanceUID"])
def test_images_of_two_frames_of_reference_or_studies_are_refused(tmp_path, keyword, suffix):
    files = stack("2", **SIZE)
    setattr(files[0], keyword, "1.2.3")
    volume = saved(tmp_path, files)
    with pytest.raises(ExportError, match=f"several values of {keyword}"):
        write_segmentation(two_segments(volume), tmp_path / f"out{suffix}")


@pytest.mark.parametrize("kind", ["gray cine with a place", "NM windows at a detector"])
def test_frames_that_slicer_stacks_at_one_place_are_refused(tmp_path, kind):
    """Only the first of them would be at the place of the file."""
    (file,) = PLACED[kind][0]
    file.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    source = DicomSource((tmp_path / "a.dcm",), "1.2")
    with pytest.raises(ExportError, match="several frames at one position"):
        source_frames([file], source, slices=len(file.pixel_array))
