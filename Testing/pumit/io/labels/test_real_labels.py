"""Segmentations that others made are read as other readers read them."""

import highdicom as hd
import numpy as np
import pytest
from pumit.io.labels.label_source import read_all_labels, read_labels, read_scan
from pumit.volume import Volume


def test_fractional_breast_is_the_case_of_the_same_scan(shared_data):
    """It refers to no series: its grid says whose it is."""
    folder = shared_data / "dicom" / "breast_ucsf_br06"
    volume = read_scan([folder / "dicom_dce_post1"])
    found = read_labels(folder / "seg.dcm", volume)
    case = read_labels(shared_data / "cases" / "mr_breast_br06_dce" / "label.nii.gz", volume)
    assert [s.name for s in found.segments] == ["Breast"]
    assert np.array_equal(found.volume.array > 0, case.volume.array > 0)


@pytest.mark.parametrize("name", ["liver.dcm", "partial_overlaps.dcm"])
def test_segments_are_those_that_highdicom_reads(shared_data, name):
    folder = shared_data / "dicom" / "dcmqi"
    volume = read_scan([folder / "ct-3slice"])
    found = read_labels(folder / name, volume)
    other = hd.seg.segread(folder / name).get_volume()
    # highdicom's slices may run the other way.
    first = other.map_indices_to_reference(np.zeros((1, 3)))[0]
    along = 1 if np.allclose(first, volume.index_to_world((0, 0, 0)), atol=0.01) else -1
    for k, segment in enumerate(found.segments):
        assert np.array_equal(found.mask(segment), other.array[::along, :, :, k] > 0)


def test_liver_is_slicers_own_segmentation_of_it(shared_data):
    folder = shared_data / "dicom" / "dcmqi"
    volume = Volume.read(folder / "ct-3slice")
    paths = [folder / "liver.dcm", folder / "partial_overlaps.dcm"]
    both = read_all_labels(paths, volume)
    drawn = read_labels(folder / "liver_seg.nrrd", volume)
    assert np.array_equal(both.mask(both.segments[0]), drawn.volume.array > 0)
    assert len(both.segments) == 6
