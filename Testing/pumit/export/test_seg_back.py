"""A DICOM-SEG comes back from mirrored frames, and from images of eyes."""

from pathlib import Path

import numpy as np
import pytest
from export_checks import (
    ALGORITHM,
    OBLIQUE,
    a_volume,
    assert_same_masks,
    check_with_others,
    dcmqi_segments,
    two_overlapping,
)
from generated_scans import dicom_slice, group
from pumit.errors import AmbiguousSeriesError
from pumit.export.dicom_series import write_dicom_series
from pumit.export.write import write_segmentation
from pumit.io.labels.label_source import read_labels
from pumit.segmentation import Segment, Segmentation
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.pixels import pack_bits

SUFFIXES = (".dcm", ".labelmap.dcm")


def back(path: Path, volume: Volume) -> dict[str, np.ndarray]:
    found = read_labels(path, volume)
    assert found.doubts == ()
    return {segment.name: found.mask(segment) for segment in found.segments}


@pytest.mark.parametrize(
    "flip", [(1, -1, 1), (-1, 1, 1), (-1, -1, 1), (1, -1, -1)], ids=["column", "row", "both", "-D"]
)
def test_a_scan_with_negated_cosines_gets_its_segments_where_they_are(tmp_path, flip):
    volume = write_dicom_series(a_volume(OBLIQUE @ np.diag(flip)), tmp_path / "series")
    segmentation = two_overlapping(volume)
    check_with_others(segmentation, tmp_path)
    assert_same_masks(back(tmp_path / "out.dcm", volume), segmentation.segments)


def with_negated_column_cosine(path: Path, *, moves: bool) -> None:
    """Store frames from their last row on; without `moves` the position stays, which is wrong."""
    ds = dcmread(path)
    shared = ds.SharedFunctionalGroupsSequence[0]
    spacing = float(shared.PixelMeasuresSequence[0].PixelSpacing[0])
    orientation = shared.PlaneOrientationSequence[0]
    cosines = np.array([float(v) for v in orientation.ImageOrientationPatient])
    orientation.ImageOrientationPatient = [round(v, 9) for v in (*cosines[:3], *-cosines[3:])]
    if moves:
        for group in ds.PerFrameFunctionalGroupsSequence:
            place = group.PlanePositionSequence[0]
            first = np.array([float(v) for v in place.ImagePositionPatient])
            last = first + cosines[3:] * spacing * (ds.Rows - 1)
            place.ImagePositionPatient = [round(v, 6) for v in last]
    ds.PixelData = pack_bits(np.ascontiguousarray(ds.pixel_array[:, ::-1]).ravel())
    ds.save_as(path)


def test_frames_that_run_the_other_way_are_the_same_segments(tmp_path):
    volume = write_dicom_series(a_volume(), tmp_path / "series")
    segmentation = two_overlapping(volume)
    write_segmentation(segmentation, tmp_path / "out.dcm")
    with_negated_column_cosine(tmp_path / "out.dcm", moves=True)
    assert_same_masks(back(tmp_path / "out.dcm", volume), segmentation.segments)
    masks = dcmqi_segments(tmp_path / "out.dcm", tmp_path / "dcmqi", volume)
    assert_same_masks(masks, segmentation.segments)


def test_a_negated_cosine_without_its_position_is_a_doubt(tmp_path):
    """The frames then run out of the scan: all but their first row is lost, and that is said."""
    volume = write_dicom_series(a_volume(), tmp_path / "series")
    mask = np.zeros(volume.shape, dtype=bool)
    mask[2:6, :12, 4:20] = True
    write_segmentation(Segmentation(volume, (Segment("s", mask),), ALGORITHM), tmp_path / "out.dcm")
    with_negated_column_cosine(tmp_path / "out.dcm", moves=False)
    found = read_labels(tmp_path / "out.dcm", volume)
    assert found.doubts == (f"DICOM-SEG: {int(mask.sum())} voxels are outside of the image",)
    assert not found.volume.array.any()


FRAMES = np.random.default_rng(0).integers(0, 255, (5, 12, 16)).astype(np.uint8)


def tomography(path: Path, places: bool) -> Path:
    """Five frames of an eye, a quarter of a millimetre apart, or without a place."""
    ds = dicom_slice(FRAMES[0], None, pixel_spacing=None, intercept=0.0, Modality="OPT")
    ds.SOPClassUID = ds.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.77.1.5.4"
    ds.NumberOfFrames, ds.PixelData = len(FRAMES), FRAMES.tobytes()
    shared, ds.PerFrameFunctionalGroupsSequence = Dataset(), []
    if places:
        shared.PixelMeasuresSequence = group(PixelSpacing=[0.004, 0.011], SliceThickness=0.25)
        shared.PlaneOrientationSequence = group(ImageOrientationPatient=[1, 0, 0, 0, 0, -1])
    ds.SharedFunctionalGroupsSequence = [shared]
    for k in range(len(FRAMES)):
        frame = Dataset()
        frame.FrameContentSequence = group(FrameAcquisitionNumber=k + 1)
        if places:
            place = [1.0, 2.0 + 0.25 * k, 3.0]
            frame.PlanePositionSequence = group(ImagePositionPatient=place)
        ds.PerFrameFunctionalGroupsSequence.append(frame)
    ds.save_as(path, enforce_file_format=True)
    return path


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".rtstruct.dcm"])
def test_tomography_of_an_eye_gets_its_segment_back(tmp_path, suffix):
    volume = Volume.read(tomography(tmp_path / "oct.dcm", places=True))
    assert volume.spacing_mm == pytest.approx((0.25, 0.004, 0.011))
    mask = np.random.default_rng(1).random(volume.shape) > 0.5
    write_segmentation(
        Segmentation(volume, (Segment("s", mask),), ALGORITHM), tmp_path / f"s{suffix}"
    )
    np.testing.assert_array_equal(back(tmp_path / f"s{suffix}", volume)["s"], mask)


def test_one_frame_of_an_eye_without_places_gets_its_segment_back(tmp_path):
    path = tomography(tmp_path / "oct.dcm", places=False)
    with pytest.raises(AmbiguousSeriesError, match="frame 3 of 5") as caught:
        Volume.read(path)
    series = [uid for uid, _ in caught.value.series]
    assert len(series) == 5
    volume = Volume.read(path, series=series[2])
    np.testing.assert_array_equal(volume.array, FRAMES[2:3])
    mask = np.zeros(volume.shape, dtype=bool)
    mask[0, 3:9, 4:11] = True
    write_segmentation(Segmentation(volume, (Segment("s", mask),), ALGORITHM), tmp_path / "s.dcm")
    np.testing.assert_array_equal(back(tmp_path / "s.dcm", volume)["s"], mask)
    other = read_labels(tmp_path / "s.dcm", Volume.read(path, series=series[1]))
    assert not other.volume.array.any()
