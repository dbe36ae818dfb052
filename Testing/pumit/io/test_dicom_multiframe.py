"""Enhanced multi-frame objects read like the single-frame series they replace."""

import numpy as np
import pytest
from generated_scans import (
    AXIAL,
    group,
    refused,
    rotation,
    source_frames_of,
    write_enhanced,
)
from pumit.errors import AmbiguousSeriesError, ExportError
from pumit.export.dicom_seg import write_dicom_seg
from pumit.export.rt_struct import write_rt_struct
from pumit.export.terminology import concept_for
from pumit.segmentation import Algorithm, Segmentation
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.uid import MultiFrameGrayscaleWordSecondaryCaptureImageStorage

OBLIQUE = tuple(rotation(20, -30, 40)[:, :2].T.ravel())


@pytest.mark.parametrize("orientation", [AXIAL, OBLIQUE])
def test_frames_are_sorted_into_a_volume(tmp_path, orientation):
    axes = np.asarray(orientation).reshape(2, 3)
    order = [3, 0, 4, 1, 2]
    positions = [np.array([1.0, 2, 3]) + 2.0 * k * np.cross(axes[0], axes[1]) for k in order]
    stored = write_enhanced(tmp_path / "e.dcm", positions, orientation=orientation)
    for path in (tmp_path / "e.dcm", tmp_path):
        volume = Volume.read(path)
        np.testing.assert_array_equal(volume.array, stored[np.argsort(order)].astype(int) - 1024)
        np.testing.assert_allclose(volume.origin_lps, (1, 2, 3), atol=1e-5)
        assert volume.spacing_mm == pytest.approx((2.0, 0.9, 0.7), abs=1e-5)
        assert volume.source.files == (tmp_path / "e.dcm",)


@pytest.mark.parametrize(("time", "kind"), [(1, "BINARY"), (2, "BINARY"), (2, "LABELMAP")])
def test_times_are_a_question_and_a_segmentation_of_one_refers_to_its_own_frames(
    tmp_path, time, kind
):
    positions = [np.array([0.0, 0, 2 * (k % 3)]) for k in range(6)]
    stored = write_enhanced(tmp_path / "e.dcm", positions, times=[1, 1, 1, 2, 2, 2])
    with pytest.raises(AmbiguousSeriesError, match="TemporalPositionIndex 2, 3 slices"):
        Volume.read(tmp_path / "e.dcm")
    volume = Volume.read(tmp_path / "e.dcm", series=f"1.2.3#{time}")
    np.testing.assert_array_equal(volume.array, stored[3 * time - 3 : 3 * time].astype(int) - 1024)
    mask = np.zeros(volume.shape, dtype=bool)
    mask[1:, 2:4, 2:5] = True
    segment = concept_for("liver").segment("Liver", mask)
    result = Segmentation(volume, (segment,), Algorithm("x", "1"))
    write_dicom_seg(result, tmp_path / "s.dcm", kind=kind)
    assert source_frames_of(tmp_path / "s.dcm") == [3 * time - 1, 3 * time]
    write_rt_struct(result, tmp_path / "r.dcm")
    contours = dcmread(tmp_path / "r.dcm").ROIContourSequence[0].ContourSequence
    found = {int(c.ContourImageSequence[0].ReferencedFrameNumber) for c in contours}
    assert found == {3 * time - 1, 3 * time}


def test_a_rescale_outside_of_the_groups_of_a_secondary_capture_is_applied(tmp_path):
    positions = [np.array([0.0, 0, 2 * k]) for k in range(3)]
    stored = write_enhanced(tmp_path / "e.dcm", positions)
    ds = dcmread(tmp_path / "e.dcm")
    for frame in ds.PerFrameFunctionalGroupsSequence:
        del frame.PixelValueTransformationSequence
    ds.SOPClassUID = MultiFrameGrayscaleWordSecondaryCaptureImageStorage
    ds.RescaleSlope, ds.RescaleIntercept = 2, -1000
    ds.save_as(tmp_path / "e.dcm")
    expected = 2 * stored.astype(int) - 1000
    np.testing.assert_array_equal(Volume.read(tmp_path / "e.dcm").array, expected)


def test_missing_frames_are_refused(tmp_path):
    positions = [np.array([0.0, 0, 2 * k]) for k in (0, 1, 2, 4, 5)]
    write_enhanced(tmp_path / "e.dcm", positions)
    refused(tmp_path / "e.dcm", "between slices 3 and 4")
    write_enhanced(tmp_path / "e.dcm", positions[:3])
    ds = dcmread(tmp_path / "e.dcm")
    ds.NumberOfFrames, ds.PixelData = 2, ds.PixelData[: 2 * 42 * 2]
    ds.save_as(tmp_path / "e.dcm")
    refused(tmp_path / "e.dcm", "holds 2 frames")


def test_series_in_several_multi_frame_files_has_no_segmentation_object(tmp_path):
    """A DICOM-SEG would refer to the frames of the first file alone, and lose the others'."""
    positions = [np.array([0.0, 0, 2 * k]) for k in range(6)]
    first = write_enhanced(tmp_path / "a.dcm", positions[:3])
    second = write_enhanced(tmp_path / "b.dcm", positions[3:])
    volume = Volume.read(tmp_path)
    np.testing.assert_array_equal(volume.array, np.concatenate([first, second]).astype(int) - 1024)
    segment = concept_for("liver").segment("Liver", np.ones(volume.shape, dtype=bool))
    with pytest.raises(ExportError, match="several multi-frame files"):
        write_dicom_seg(Segmentation(volume, (segment,), Algorithm("x", "1")), tmp_path / "s.dcm")


def test_times_of_frames_keep_volumes_apart(tmp_path):
    """Frames in no order, whose own times alone say which volume they belong to."""
    places = [np.array([0.0, 0, 2 * k]) for k in (0, 1, 1, 0, 2, 2)]
    times = ["120000.1", "120000.2", "120007.2", "120007.1", "120007.3", "120000.3"]
    stored = write_enhanced(tmp_path / "a.dcm", places)
    ds = dcmread(tmp_path / "a.dcm")
    for frame, time in zip(ds.PerFrameFunctionalGroupsSequence, times, strict=True):
        frame.FrameContentSequence = group(FrameAcquisitionDateTime=f"20240101{time}")
    ds.save_as(tmp_path / "a.dcm")
    with pytest.raises(AmbiguousSeriesError) as caught:
        Volume.read(tmp_path / "a.dcm")
    for (choice, _), order in zip(caught.value.series, ([0, 1, 5], [3, 2, 4]), strict=True):
        found = Volume.read(tmp_path / "a.dcm", series=choice).array
        np.testing.assert_array_equal(found, stored[order].astype(int) - 1024)
