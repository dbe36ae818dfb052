"""Real scans, read by Slicer, are what `pumit` reads, and their labels return as they went in."""

import numpy as np
import pytest
import slicer
import writing_scene as w
from pumit.volume import Volume
from PUMITSegmentLib.segments.writer import SegmentWriter
from PUMITSlicerLib.mrml import readVolume

CASES = ["ct_sts001", "mr_acdc_patient001_frame01", "mr_sct_t2", "pet_sts001"]


@pytest.mark.parametrize("case", CASES)
def test_real_scan_and_its_labels(scene, shared_data, case):
    folder = shared_data / "cases" / case
    if not folder.is_dir():
        pytest.skip(f"{case} is absent")
    node = slicer.util.loadVolume(str(folder / "image.nii.gz"), {})
    found, expected = readVolume(node), Volume.read(folder / "image.nii.gz")
    # By world: Slicer reverses the slices of a left-handed file.
    index = np.random.default_rng(0).integers(0, expected.shape, (2000, 3))
    there = found.world_to_index(expected.index_to_world(index))
    np.testing.assert_allclose(there, np.round(there), atol=0.01)
    assert found.shape == expected.shape
    nearest = np.round(there).astype(int)
    np.testing.assert_array_equal(found.array[tuple(nearest.T)], expected.array[tuple(index.T)])
    labelNode = slicer.util.loadVolume(str(folder / "label.nii.gz"), {"labelmap": True})
    labels = slicer.util.arrayFromVolume(labelNode)
    writer = SegmentWriter()
    segmentation = w.addSegmentation(node, names=("A", "B"))
    values = np.unique(labels[labels > 0])
    for name, value in (("A", values[0]), ("B", values[-1])):
        writer.write(segmentation, name, labels == value, node)
    for name, value in (("A", values[0]), ("B", values[-1])):
        np.testing.assert_array_equal(writer.read(segmentation, name, node), labels == value)
