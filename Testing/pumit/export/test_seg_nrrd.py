from dataclasses import replace

import numpy as np
import pytest
import SimpleITK
from export_checks import OBLIQUE, a_volume, on_grid, two_overlapping
from pumit.export.seg_nrrd import arrange_in_layers, write_seg_nrrd
from pumit.export.terminology import serialize_terminology
from pumit.io.labels.label_file import read_label_file
from pumit.segmentation import Segment, Segmentation
from pumit.volume import Volume


def slicer_segments(path):
    """Name, colour, tags and world positions (LPS) of the voxels that Slicer reads."""
    slicer = pytest.importorskip("slicer", reason="slicer-core is absent: pip install slicer-core")
    import vtk
    from vtk.util.numpy_support import vtk_to_numpy

    scene = slicer.vtkMRMLScene()
    node = scene.AddNewNodeByClass("vtkMRMLSegmentationNode")
    storage = scene.AddNewNodeByClass("vtkMRMLSegmentationStorageNode")
    storage.SetFileName(str(path))
    assert storage.ReadData(node) == 1
    found = {}
    segmentation = node.GetSegmentation()
    for i in range(segmentation.GetNumberOfSegments()):
        segment, image = segmentation.GetNthSegment(i), slicer.vtkOrientedImageData()
        node.GetBinaryLabelmapRepresentation(segmentation.GetNthSegmentID(i), image)
        matrix = vtk.vtkMatrix4x4()
        image.GetImageToWorldMatrix(matrix)
        affine = np.array([[matrix.GetElement(r, c) for c in range(4)] for r in range(4)])
        labels = vtk_to_numpy(image.GetPointData().GetScalars())
        labels = labels.reshape(image.GetDimensions()[::-1])
        ijk = np.argwhere(labels > 0)[:, ::-1] + np.array(image.GetExtent()[::2])
        ras = ijk @ affine[:3, :3].T + affine[:3, 3]
        tags = {}
        for key in ("TerminologyEntry", "DICOM.SegmentAlgorithmType", "DICOM.SegmentAlgorithmName"):
            value = vtk.mutable("")
            segment.GetTag(key, value)
            tags[key] = str(value)
        found[segment.GetName()] = (segment.GetColor(), tags, ras * (-1, -1, 1))
    return found


@pytest.mark.slicer
@pytest.mark.parametrize(
    "direction", [np.eye(3), OBLIQUE, OBLIQUE @ np.diag([1.0, 1.0, -1.0])],
    ids=["axial", "oblique", "left_handed"],
)  # fmt: skip
def test_slicer_reads_overlapping_segments_in_place(tmp_path, direction):
    segmentation = two_overlapping(a_volume(direction))
    write_seg_nrrd(segmentation, tmp_path / "out.seg.nrrd")
    found = slicer_segments(tmp_path / "out.seg.nrrd")
    assert sorted(found) == ["Left kidney", "Tumour"]
    for segment in segmentation.segments:
        color, tags, positions_lps = found[segment.name]
        np.testing.assert_array_equal(on_grid(positions_lps, segmentation.volume), segment.mask)
        np.testing.assert_allclose(color, segment.color_rgb, atol=1e-4)
        assert tags["TerminologyEntry"] == serialize_terminology(segment)
        assert tags["DICOM.SegmentAlgorithmType"] == "SEMIAUTOMATIC"
        assert tags["DICOM.SegmentAlgorithmName"] == "pumit default"


@pytest.mark.slicer
def test_slicer_reads_one_segment_and_a_planar_image(tmp_path):
    mask = np.zeros((1, 21, 30), dtype=bool)
    mask[0, 4:7, 8:20] = True
    volume = Volume(mask.astype(np.uint8), (1e8, 0.5, 0.5))
    segmentation = two_overlapping(a_volume())
    segmentation = Segmentation(volume, (Segment("Lésion", mask),), segmentation.algorithm)
    write_seg_nrrd(segmentation, tmp_path / "out.seg.nrrd")
    ((name, (_, _, positions_lps)),) = slicer_segments(tmp_path / "out.seg.nrrd").items()
    assert name == "Lésion"
    np.testing.assert_array_equal(on_grid(positions_lps, volume), mask)


@pytest.mark.slicer
def test_slicer_reads_more_than_255_segments(tmp_path):
    shape = (3, 10, 10)
    masks = np.eye(300, dtype=bool).reshape(300, *shape)
    volume = Volume(np.zeros(shape, np.int16))
    segments = tuple(Segment(f"s{i}", mask) for i, mask in enumerate(masks))
    algorithm = two_overlapping(a_volume()).algorithm
    write_seg_nrrd(Segmentation(volume, segments, algorithm), tmp_path / "out.seg.nrrd")
    found = slicer_segments(tmp_path / "out.seg.nrrd")
    for segment in segments:
        np.testing.assert_array_equal(on_grid(found[segment.name][2], volume), segment.mask)


def test_other_programs_read_the_layers(tmp_path):
    segmentation = two_overlapping(a_volume())
    write_seg_nrrd(segmentation, tmp_path / "out.seg.nrrd")
    image = SimpleITK.ReadImage(str(tmp_path / "out.seg.nrrd"))
    layers = SimpleITK.GetArrayFromImage(image)  # (D, H, W, L)
    for number, segment in enumerate(segmentation.segments, start=1):
        np.testing.assert_array_equal((layers == number).any(axis=-1), segment.mask)
    np.testing.assert_allclose(image.GetOrigin(), segmentation.volume.origin_lps)
    np.testing.assert_allclose(image.GetSpacing(), segmentation.volume.spacing_mm[::-1])
    np.testing.assert_allclose(
        np.reshape(image.GetDirection(), (3, 3)), segmentation.volume.direction, atol=1e-9
    )


def test_segments_that_do_not_overlap_share_a_layer():
    masks = np.zeros((4, 1, 1, 9), dtype=bool)
    masks[0, ..., 0:3] = masks[1, ..., 2:5] = masks[2, ..., 5:7] = masks[3, ..., 4:6] = True
    segments = tuple(Segment(str(i), mask) for i, mask in enumerate(masks))
    maps, layer_of = arrange_in_layers(segments, (1, 2, 3, 4))
    assert layer_of == [0, 1, 0, 2]
    for number, (mask, layer) in enumerate(zip(masks, layer_of, strict=True), start=1):
        np.testing.assert_array_equal(maps[layer] == number, mask)


def test_segments_keep_the_values_of_their_classes(tmp_path):
    made = replace(two_overlapping(a_volume()), values=(2, 300))
    write_seg_nrrd(made, tmp_path / "out.seg.nrrd")
    read = read_label_file(tmp_path / "out.seg.nrrd")
    assert [segment.value for segment in read.segments] == [2, 300]
    for segment, known in zip(read.segments, made.segments, strict=True):
        assert np.array_equal(read.mask(segment), known.mask)
