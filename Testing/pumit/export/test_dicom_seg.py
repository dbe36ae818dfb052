from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import highdicom as hd
import numpy as np
import pumit
import pytest
from export_checks import (
    ALGORITHM,
    OBLIQUE,
    a_volume,
    as_enhanced,
    assert_same_masks,
    check_with_others,
    dciodvfy,
    dcmqi_segments,
    read_by_instance,
    reversed_slices,
    two_overlapping,
)
from pumit.errors import ExportError
from pumit.export.dicom_seg import write_dicom_seg
from pumit.export.dicom_series import write_dicom_series
from pumit.export.terminology import concept_for
from pumit.file_image import DicomSource
from pumit.segmentation import Segment, Segmentation
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.dataset import Dataset

DIRECTIONS = {
    "axial": np.eye(3),
    "sagittal": np.array([[0.0, 0, 1], [1, 0, 0], [0, -1, 0]]),
    "oblique": OBLIQUE,
    "left_handed": OBLIQUE @ np.diag([1.0, 1.0, -1.0]),
}


@pytest.fixture
def volume(tmp_path) -> Volume:
    """An oblique scan as a DICOM series."""
    return write_dicom_series(a_volume(), tmp_path / "series")


def changing(volume: Volume) -> Iterator[Dataset]:
    """Each file of a scan, saved as it was changed."""
    for file in volume.source.files:
        ds = dcmread(file)
        yield ds
        ds.save_as(file)


@pytest.mark.parametrize(
    ("direction", "order"),
    [*((name, "ascending") for name in DIRECTIONS), ("oblique", "descending")],
)
def test_dcmqi_reads_overlapping_segments_voxel_exact(tmp_path, direction, order):
    volume = write_dicom_series(a_volume(DIRECTIONS[direction]), tmp_path / "series")
    if order == "descending":
        volume = reversed_slices(volume)
    check_with_others(two_overlapping(volume), tmp_path)


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_frames_reference_the_source_instance_they_lie_on(volume, tmp_path, order):
    if order == "descending":
        volume = reversed_slices(volume)
    segmentation = two_overlapping(volume)
    write_dicom_seg(segmentation, tmp_path / "out.dcm")
    pixels, uids = read_by_instance(tmp_path / "out.dcm", volume)
    for number, segment in enumerate(segmentation.segments):
        np.testing.assert_array_equal(pixels[..., number].astype(bool), segment.mask)
    (series,) = dcmread(tmp_path / "out.dcm").ReferencedSeriesSequence
    assert series.SeriesInstanceUID == volume.source.series_instance_uid
    referenced = {i.ReferencedSOPInstanceUID for i in series.ReferencedInstanceSequence}
    assert referenced == set(uids)


def test_file_says_what_was_segmented_and_by_what(volume, tmp_path):
    write_dicom_seg(two_overlapping(volume), tmp_path / "out.dcm", series_description="Kidney")
    ds = dcmread(tmp_path / "out.dcm")
    assert (ds.SegmentationType, ds.SegmentsOverlap) == ("BINARY", "YES")
    assert (ds.Manufacturer, ds.SeriesDescription) == ("PUMIT", "Kidney")
    assert list(ds.SoftwareVersions) == [f"PUMIT {pumit.__version__}", "pumit default 0.1.0"]
    assert ds.StudyInstanceUID == dcmread(volume.source.files[0]).StudyInstanceUID
    kidney, tumour = ds.SegmentSequence
    for item in (kidney, tumour):
        assert item.SegmentAlgorithmType == "SEMIAUTOMATIC"
        assert item.SegmentAlgorithmName == "pumit default"
        (algorithm,) = item.SegmentationAlgorithmIdentificationSequence
        assert (algorithm.AlgorithmName, algorithm.AlgorithmVersion) == ("pumit default", "0.1.0")
    assert kidney.SegmentLabel == "Left kidney"
    assert kidney.SegmentedPropertyCategoryCodeSequence[0].CodeValue == "123037004"
    assert kidney.SegmentedPropertyTypeCodeSequence[0].CodeValue == "64033007"
    modifiers = kidney.SegmentedPropertyTypeCodeSequence[0]
    assert modifiers.SegmentedPropertyTypeModifierCodeSequence[0].CodeMeaning == "Left"
    assert "AnatomicRegionSequence" not in kidney
    region = tumour.AnatomicRegionSequence[0]
    assert region.CodeValue == "64033007"
    assert region.AnatomicRegionModifierSequence[0].CodeMeaning == "Right"


def test_spacing_is_that_of_slices_though_they_overlap(volume, tmp_path):
    for ds in changing(volume):
        ds.SliceThickness = "5"
        # As some scanners have it: the gap between slices.
        ds.SpacingBetweenSlices = "0"
    write_dicom_seg(two_overlapping(volume), tmp_path / "out.dcm")
    shared = dcmread(tmp_path / "out.dcm").SharedFunctionalGroupsSequence[0]
    assert float(shared.PixelMeasuresSequence[0].SpacingBetweenSlices) == pytest.approx(2.5)
    assert float(shared.PixelMeasuresSequence[0].SliceThickness) == 5.0


def test_one_segment_on_one_slice_is_written(volume, tmp_path):
    mask = np.zeros(volume.shape, dtype=bool)
    mask[8, 20, 29] = True
    check_with_others(Segmentation(volume, (Segment("corner", mask),), ALGORITHM), tmp_path)


def test_planar_image_is_written(tmp_path):
    image = Volume(a_volume().array[:1], (1e8, 0.5, 0.5))
    volume = write_dicom_series(image, tmp_path / "series")
    mask = np.zeros(volume.shape, dtype=bool)
    mask[0, 3:9, 4:20] = True
    write_dicom_seg(Segmentation(volume, (Segment("lesion", mask),), ALGORITHM), tmp_path / "o.dcm")
    assert dciodvfy(tmp_path / "o.dcm") == []
    np.testing.assert_array_equal(hd.seg.segread(tmp_path / "o.dcm").pixel_array, mask[0])


@pytest.mark.parametrize(("pixel_spacing", "orientation"), [(None, ["L", "F"]), ([0.4, 0.3], None)])
def test_radiograph_is_written_so_that_others_read_it(tmp_path, pixel_spacing, orientation):
    written = write_dicom_series(Volume(a_volume().array[:1], (1e8, 1, 1)), tmp_path / "series")
    ds = dcmread(written.source.files[0])
    ds.SOPClassUID = ds.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    for keyword in ("ImagePositionPatient", "ImageOrientationPatient", "SliceThickness"):
        del ds[keyword]
    ds.Modality, ds.PixelSpacing, ds.PatientOrientation = "DX", pixel_spacing, orientation
    ds.save_as(tmp_path / "dx.dcm")
    volume = Volume.read(tmp_path / "dx.dcm")
    mask = np.zeros(volume.shape, dtype=bool)
    mask[0, 3:9, 4:20] = True
    write_dicom_seg(Segmentation(volume, (Segment("lung", mask),), ALGORITHM), tmp_path / "o.dcm")
    assert dciodvfy(tmp_path / "o.dcm") == []
    seg = hd.seg.segread(tmp_path / "o.dcm")
    np.testing.assert_array_equal(seg.pixel_array, mask[0])
    assert list(seg.PatientOrientation or []) == (orientation or [])


def test_mask_of_a_resampled_grid_lands_on_the_source_frames(volume, tmp_path):
    # Twice as many slices as frames, as after evening out the gaps of a series.
    fine = np.zeros((17, 21, 30), dtype=bool)
    fine[4:12, 3:9, 4:20] = True
    resampled = Volume(
        np.zeros(fine.shape, np.int16),
        (1.25, 0.7, 0.8),
        volume.origin_lps,
        volume.direction,
        volume.source,
    )
    write_dicom_seg(Segmentation(resampled, (Segment("s", fine),), ALGORITHM), tmp_path / "out.dcm")
    masks = dcmqi_segments(tmp_path / "out.dcm", tmp_path / "dcmqi", volume)
    np.testing.assert_array_equal(masks["s"], fine[::2])


def test_multi_frame_source_is_referenced(volume, tmp_path):
    volume = as_enhanced(volume, tmp_path / "enhanced.dcm")
    check_with_others(two_overlapping(volume), tmp_path)


def test_slices_with_a_little_jitter_are_copied_as_they_are(volume, tmp_path):
    rng = np.random.default_rng(3)
    for ds in changing(volume):
        # Across the slices and sideways: less than reading straightens out.
        shift = volume.direction @ (rng.uniform(-1, 1, 3) * (0.08, 0.08, 0.1))
        ds.ImagePositionPatient = [f"{p:.6f}" for p in ds.ImagePositionPatient + shift]
    read = Volume.read(tmp_path / "series")
    np.testing.assert_array_equal(read.array, volume.array)
    segmentation = two_overlapping(read)
    write_dicom_seg(segmentation, tmp_path / "out.dcm")
    pixels, _ = read_by_instance(tmp_path / "out.dcm", read)
    for number, segment in enumerate(segmentation.segments):
        np.testing.assert_array_equal(pixels[..., number].astype(bool), segment.mask)


def test_tilted_gantry_gets_the_mask_on_its_own_frames(tmp_path):
    volume = write_dicom_series(a_volume(np.eye(3), (20, 40, 40)), tmp_path / "series")
    for k, ds in enumerate(changing(volume)):
        x, y, z = ds.ImagePositionPatient
        ds.ImagePositionPatient = [x, y + 0.9 * k, z]
    read = Volume.read(tmp_path / "series")
    centre_lps = read.index_to_world((np.array(read.shape) - 1) / 2)
    grid = np.moveaxis(np.indices(read.shape), 0, -1)
    ball = np.linalg.norm(read.index_to_world(grid) - centre_lps, axis=-1) < 9
    write_dicom_seg(Segmentation(read, (Segment("s", ball),), ALGORITHM), tmp_path / "out.dcm")
    assert dciodvfy(tmp_path / "out.dcm") == []
    ds = dcmread(tmp_path / "out.dcm")
    spacing = np.array([0.8, 0.7])
    for frame, pixels in zip(ds.PerFrameFunctionalGroupsSequence, ds.pixel_array, strict=True):
        position = np.array(frame.PlanePositionSequence[0].ImagePositionPatient)
        row, column = np.nonzero(pixels)
        points = position[:2] + np.stack([column, row], axis=-1) * spacing
        distance = np.hypot(*(points - centre_lps[:2]).T)
        expected = np.sqrt(81 - (position[2] - centre_lps[2]) ** 2)
        assert distance.max() == pytest.approx(expected, abs=1.6)
    measures = ds.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
    assert float(measures.SpacingBetweenSlices) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("charset", "name"),
    [
        ("", "ANON"),
        ("ISO_IR 100", "Müller^Jörg"),
        (["", "ISO 2022 IR 87"], "Yamada^Tarou=山田^太郎"),
    ],
)
def test_patient_name_survives_and_shows_in_no_warning(volume, tmp_path, recwarn, charset, name):
    for ds in changing(volume):
        ds.SpecificCharacterSet = charset
        ds.PatientName = name
    recwarn.clear()
    write_dicom_seg(two_overlapping(volume), tmp_path / "out.dcm")
    assert [str(w.message) for w in recwarn if name in str(w.message)] == []
    assert str(dcmread(tmp_path / "out.dcm").PatientName) == name


def test_deidentified_headers_are_enough(volume, tmp_path):
    for ds in changing(volume):
        for keyword in ("PatientName", "PatientBirthDate", "StudyDate", "StudyTime", "StudyID"):
            delattr(ds, keyword)
        del ds.FrameOfReferenceUID, ds.SliceThickness
        # Written with fewer digits from slice to slice.
        ds.ImageOrientationPatient = [
            f"{c:.{4 + ds.InstanceNumber % 2}f}" for c in ds.ImageOrientationPatient
        ]
    segmentation = two_overlapping(volume)
    write_dicom_seg(segmentation, tmp_path / "out.dcm")
    masks = dcmqi_segments(tmp_path / "out.dcm", tmp_path / "dcmqi", volume)
    assert_same_masks(masks, segmentation.segments)


def test_source_that_cannot_be_referenced_is_named(volume, tmp_path):
    other = write_dicom_series(a_volume(), tmp_path / "other")
    mixed = DicomSource((*volume.source.files[:5], *other.source.files[5:]), "1.2.3")
    other.source.files[3].unlink()
    for given, reason in (
        (a_volume(), r"references?.*\.seg\.nrrd.*DICOM folder"),
        (other, "gone or damaged"),
        (replace(volume, source=mixed), "cannot be referenced"),
    ):
        with pytest.raises(ExportError, match=reason):
            write_dicom_seg(two_overlapping(given), tmp_path / "out.dcm")
        assert not (tmp_path / "out.dcm").exists()


@pytest.mark.parametrize("replaced", [slice(None), slice(4, 5)], ids=["all", "one"])
def test_nothing_is_written_for_a_patient_whose_files_took_the_place_of_the_scan(
    tmp_path, replaced
):
    write_dicom_series(a_volume(), tmp_path / "series", patient_id="FIRST")
    volume = Volume.read(tmp_path / "series")
    other = write_dicom_series(a_volume(), tmp_path / "other", patient_id="SECOND")
    files = list(zip(other.source.files, volume.source.files, strict=True))
    for new, old in files[replaced]:
        new.replace(old)
    with pytest.raises(ExportError, match="replaced since the scan was opened"):
        write_dicom_seg(two_overlapping(volume), tmp_path / "out.dcm")
    assert not (tmp_path / "out.dcm").exists()


@pytest.fixture(scope="session")
def chaos_ct(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Volume:
    archive = shared_data / "dicom" / "chaos_ct" / "dicom.zip"
    if not archive.is_file():
        pytest.skip("the CHAOS series is absent from the shared data")
    return Volume.read(archive)


@pytest.mark.slow
def test_chaos_series_comes_back_voxel_exact(chaos_ct, shared_data, tmp_path):
    import SimpleITK

    label = SimpleITK.ReadImage(str(shared_data / "cases" / "ct_chaos_liver" / "label.nii.gz"))
    reference = SimpleITK.Image(chaos_ct.shape[::-1], SimpleITK.sitkUInt8)
    reference.SetSpacing(chaos_ct.spacing_mm[::-1])
    reference.SetOrigin(chaos_ct.origin_lps)
    reference.SetDirection(chaos_ct.direction.ravel().tolist())
    on_scan = SimpleITK.Resample(
        label, reference, SimpleITK.Transform(), SimpleITK.sitkNearestNeighbor
    )
    liver = SimpleITK.GetArrayFromImage(on_scan) > 0
    assert liver.sum() == (SimpleITK.GetArrayFromImage(label) > 0).sum()
    box = np.zeros_like(liver)
    box[30:50, 200:300, 150:260] = True
    segmentation = Segmentation(
        chaos_ct,
        (
            concept_for("liver").segment("Liver", liver),
            concept_for("liver lesion").segment("Lesion", box),
        ),
        ALGORITHM,
    )
    check_with_others(segmentation, tmp_path)
