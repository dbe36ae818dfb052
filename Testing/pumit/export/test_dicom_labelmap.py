"""A DICOM-SEG of type LABELMAP holds what a BINARY one holds, as others read it."""

import numpy as np
import pytest
from export_checks import (
    OBLIQUE,
    a_volume,
    assert_same_masks,
    dciodvfy,
    dcmqi_segments,
    disjoint,
    read_by_instance,
    two_overlapping,
)
from pumit.errors import ExportError
from pumit.export.dicom_seg import write_dicom_seg
from pumit.export.dicom_series import write_dicom_series
from pumit.export.write import write_segmentation
from pumit.io.labels.label_source import read_labels
from pumit.segmentation import Segment, Segmentation
from pydicom import dcmread


@pytest.mark.parametrize("mirror", [1.0, -1.0], ids=["right_handed", "left_handed"])
def test_others_read_a_label_map_voxel_exact(tmp_path, mirror):
    direction = OBLIQUE @ np.diag([1.0, 1.0, mirror])
    volume = write_dicom_series(a_volume(direction), tmp_path / "series")
    segmentation = disjoint(volume)
    path = tmp_path / "out.labelmap.dcm"
    write_segmentation(segmentation, path)
    assert_same_masks(dcmqi_segments(path, tmp_path / "dcmqi", volume), segmentation.segments)
    # 1. highdicom, by the source's own instances.
    labels, _ = read_by_instance(path, volume, combine_segments=True)
    # 2. pydicom, frame by frame at the place that each states.
    ds = dcmread(path)
    assert ds.SegmentationType == "LABELMAP"
    placed = np.zeros(volume.shape, dtype=np.uint8)
    for group, frame in zip(ds.PerFrameFunctionalGroupsSequence, ds.pixel_array, strict=True):
        position = [float(v) for v in group.PlanePositionSequence[0].ImagePositionPatient]
        placed[round(float(volume.world_to_index(position)[0]))] = frame
    for number, segment in enumerate(segmentation.segments, start=1):
        np.testing.assert_array_equal(labels == number, segment.mask)
        np.testing.assert_array_equal(placed == number, segment.mask)
    # 3. This program.
    found = read_labels(path, volume)
    masks = {segment.name: found.mask(segment) for segment in found.segments}
    assert_same_masks(masks, segmentation.segments)


def test_many_segments_are_one_frame_for_each_slice(tmp_path):
    volume = write_dicom_series(a_volume(), tmp_path / "series")
    segments = []
    for number in range(300):
        mask = np.zeros(volume.shape, dtype=bool)
        mask.reshape(-1)[number * 15 : number * 15 + 15] = True
        segments.append(Segment(f"s{number}", mask))
    segmentation = Segmentation(volume, tuple(segments), two_overlapping(volume).algorithm)
    write_dicom_seg(segmentation, tmp_path / "out.dcm", kind="LABELMAP")
    ds = dcmread(tmp_path / "out.dcm")
    assert ds.NumberOfFrames <= volume.shape[0]
    assert ds.BitsAllocated == 16
    found = read_labels(tmp_path / "out.dcm", volume)
    masks = {segment.name: found.mask(segment) for segment in found.segments}
    assert_same_masks(masks, segmentation.segments)


def test_overlap_is_refused_and_type_binary_stays_the_default(tmp_path):
    volume = write_dicom_series(a_volume(), tmp_path / "series")
    segmentation = two_overlapping(volume)
    with pytest.raises(ExportError, match=r"'Left kidney' and 'Tumour' overlap.*BINARY"):
        write_segmentation(segmentation, tmp_path / "out.labelmap.dcm")
    assert not (tmp_path / "out.labelmap.dcm").exists()
    write_segmentation(segmentation, tmp_path / "out.dcm")
    assert dcmread(tmp_path / "out.dcm").SegmentationType == "BINARY"
    assert dciodvfy(tmp_path / "out.dcm") == []
