"""DICOM-SEG out of the scene, read back by dcmqi and held to the standard by dciodvfy."""

from __future__ import annotations

import numpy as np
import pytest
import vtk
from export_checks import OBLIQUE, assert_same_masks, dciodvfy
from export_scene import (
    SHAPE,
    assert_dicom_holds,
    blobs,
    export,
    linear,
    segmentation_of,
)
from pumit.errors import ExportError
from pumit.io.labels.label_source import read_labels
from pumit.segmentation import Segment
from PUMITSegmentLib.exporting.dicom_source import addToDatabase, databaseName
from PUMITSlicerLib.mrml import ijkToRas
from PUMITSlicerLib.terms import newSegment
from pydicom import dcmread


def test_dicom_seg_names_the_codes_and_the_algorithm(tmp_path, kidneys, loaded, database):
    written = export(kidneys, loaded, "DICOM_SEG", tmp_path / "out", database)
    kidney, cyst = dcmread(written.path).SegmentSequence
    kind = kidney.SegmentedPropertyTypeCodeSequence[0]
    assert (kind.CodeValue, kind.CodingSchemeDesignator) == ("64033007", "SCT")
    assert kind.SegmentedPropertyTypeModifierCodeSequence[0].CodeMeaning == "Left"
    for item in (kidney, cyst):
        assert item.SegmentAlgorithmType == "SEMIAUTOMATIC"
        assert item.SegmentAlgorithmName == "pumit default 0.1.0"
        identified = item.SegmentationAlgorithmIdentificationSequence[0]
        assert identified.AlgorithmVersion == "0.1.0"


def test_each_segment_says_what_made_it(tmp_path, scene, loaded, database):
    first, second = blobs(SHAPE)
    masks = {"by model": first, "by hand": second, "by prompts": first}
    types = {"by model": "AUTOMATIC", "by hand": "MANUAL"}
    node = segmentation_of(scene, loaded, masks, **types)
    written = export(node, loaded, "DICOM_SEG", tmp_path / "out", database)
    assert dciodvfy(written.path) == []
    items = dcmread(written.path).SegmentSequence
    assert [i.SegmentAlgorithmType for i in items] == ["AUTOMATIC", "MANUAL", "SEMIAUTOMATIC"]
    assert [i.get("SegmentAlgorithmName") for i in items] == [
        "pumit default 0.1.0",
        None,
        "pumit default 0.1.0",
    ]


@pytest.mark.parametrize("format_", ["DICOM_SEG", "DICOM_LABELMAP"])
def test_the_description_of_a_loaded_segment_is_kept(tmp_path, scene, loaded, database, format_):
    first, second = blobs(SHAPE)
    masks = {"lesion": first, "liver": second & ~first}
    node = segmentation_of(scene, loaded, masks)
    # As Slicer's reader of DICOM-SEG stores it.
    node.GetSegmentation().GetNthSegment(0).SetTag("Description", "in segment VII\n, hypodense")
    node.GetSegmentation().GetNthSegment(1).SetTag("Description", "")
    written = export(node, loaded, format_, tmp_path / "out", database)
    assert format_ == "DICOM_LABELMAP" or dciodvfy(written.path) == []
    *_, lesion, liver = dcmread(written.path).SegmentSequence
    assert lesion.SegmentDescription == "in segment VII, hypodense"
    assert "SegmentDescription" not in liver


def test_contours_and_label_maps_hold_the_same_voxels(tmp_path, scene, loaded, database, series):
    first, second = blobs(SHAPE)
    masks = {"by model": first, "by hand": second & ~first}
    node = segmentation_of(scene, loaded, masks, **{"by hand": "MANUAL"})
    for format_, name in (("RT_STRUCT", "rtstruct"), ("DICOM_LABELMAP", "labelmap")):
        written = export(node, loaded, format_, tmp_path / "out", database)
        assert written.path.name == f"My segments.{name}.dcm"
        found = read_labels(written.path, series)
        assert_same_masks(
            {s.name: found.mask(s) for s in found.segments},
            tuple(Segment(name, mask) for name, mask in masks.items()),
        )
    items = dcmread(written.path).SegmentSequence
    kinds = {i.SegmentLabel: i.SegmentAlgorithmType for i in items}
    assert (kinds["by model"], kinds["by hand"]) == ("SEMIAUTOMATIC", "MANUAL")


def shift_by_voxels(volume_node, ijk: tuple[int, int, int]) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, 3] = ijkToRas(volume_node)[:3, :3] @ ijk
    return matrix


def test_common_transform_changes_nothing_in_dicom(
    tmp_path, scene, kidneys, loaded, database, series
):
    turn = np.eye(4)
    turn[:3, :3], turn[:3, 3] = OBLIQUE, (30, -20, 5)
    for node in (kidneys, loaded):
        node.SetAndObserveTransformNodeID(linear(scene, turn).GetID())
    written = export(kidneys, loaded, "DICOM_SEG", tmp_path / "out", database)
    first, second = blobs(SHAPE)
    masks = {"left kidney": first, "cyst": second}
    assert_dicom_holds(written.path, tmp_path / "read", series, masks)


def test_segmentation_moved_on_its_volume_is_written_where_it_is_seen(
    tmp_path, scene, kidneys, loaded, database, series
):
    kidneys.SetAndObserveTransformNodeID(linear(scene, shift_by_voxels(loaded, (2, -1, 1))).GetID())
    written = export(kidneys, loaded, "DICOM_SEG", tmp_path / "out", database)
    # i, j, k are w, h, d; nothing leaves the volume.
    masks = dict(zip(("left kidney", "cyst"), blobs(SHAPE), strict=True))
    moved = {name: np.roll(mask, (1, -1, 2), (0, 1, 2)) for name, mask in masks.items()}
    assert_dicom_holds(written.path, tmp_path / "read", series, moved)


def test_bent_transform_is_followed(tmp_path, scene, loaded, database, series):
    box = np.zeros(SHAPE, bool)
    box[3:6, 8:14, 10:20] = True
    node = segmentation_of(scene, loaded, {"box": box})
    # A thin-plate spline that moves everything by the same two columns.
    step = shift_by_voxels(loaded, (2, 0, 0))[:3, 3]
    source, target = vtk.vtkPoints(), vtk.vtkPoints()
    for corner in np.array(np.meshgrid(*[(-200, 200)] * 3)).reshape(3, -1).T.astype(float):
        source.InsertNextPoint(corner)
        target.InsertNextPoint(corner + step)
    spline = vtk.vtkThinPlateSplineTransform()
    spline.SetSourceLandmarks(source)
    spline.SetTargetLandmarks(target)
    spline.SetBasisToR()
    bent = scene.AddNewNodeByClass("vtkMRMLTransformNode")
    bent.SetAndObserveTransformToParent(spline)
    node.SetAndObserveTransformNodeID(bent.GetID())
    written = export(node, loaded, "DICOM_SEG", tmp_path / "out", database)
    assert_dicom_holds(written.path, tmp_path / "read", series, {"box": np.roll(box, 2, 2)})


def test_hidden_segments_stay_out_only_if_requested(tmp_path, kidneys, loaded, database):
    segmentation = kidneys.GetSegmentation()
    kidneys.GetDisplayNode().SetSegmentVisibility(segmentation.GetNthSegmentID(0), False)
    seen = export(kidneys, loaded, "DICOM_SEG", tmp_path, database, onlyVisible=True)
    every = export(kidneys, loaded, "DICOM_SEG", tmp_path, database)
    assert [s.SegmentLabel for s in dcmread(seen.path).SegmentSequence] == ["cyst"]
    assert len(dcmread(every.path).SegmentSequence) == 2


def test_database_gets_the_file(tmp_path, kidneys, loaded, database):
    written = export(kidneys, loaded, "DICOM_SEG", tmp_path, database)
    addToDatabase(written.path, database)
    uid = str(dcmread(written.path).SOPInstanceUID)
    assert database.fileForInstance(uid) == str(written.path)


def test_database_is_named_with_its_folder(dicomDatabase):
    assert databaseName().endswith(f"database in {dicomDatabase.databaseDirectory}")


def test_database_that_is_absent_or_refuses_ends_in_one_sentence(
    tmp_path, kidneys, loaded, database
):
    written = export(kidneys, loaded, "DICOM_SEG", tmp_path, database)
    with pytest.raises(ExportError, match="not open"):
        addToDatabase(written.path)
    database.insert = lambda path: None
    with pytest.raises(ExportError, match="did not accept"):
        addToDatabase(written.path, database)


def test_names_in_any_script_are_kept(tmp_path, scene, loaded, database, series):
    first, second = blobs(SHAPE)
    masks = {"Läsion 病变": first, 'a "b", <c> & d': second}
    node = segmentation_of(scene, loaded, masks)
    written = export(node, loaded, "DICOM_SEG", tmp_path / "out", database)
    assert_dicom_holds(written.path, tmp_path / "read", series, masks)


def test_surface_is_exported_as_the_voxels_inside_it(tmp_path, scene, loaded, database):
    node = scene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Surfaces")
    node.CreateDefaultDisplayNodes()
    node.SetReferenceImageGeometryParameterFromVolumeNode(loaded)
    segmentation = node.GetSegmentation()
    segmentation.SetSourceRepresentationName("Closed surface")
    bounds = [0.0] * 6
    loaded.GetRASBounds(bounds)
    ball = vtk.vtkSphereSource()
    ball.SetCenter(*[(bounds[i] + bounds[i + 1]) / 2 for i in (0, 2, 4)])
    ball.SetRadius(5.0)
    ball.SetThetaResolution(32)
    ball.SetPhiResolution(32)
    ball.Update()
    segment = segmentation.GetSegment(newSegment(node, "mass"))
    segment.AddRepresentation("Closed surface", ball.GetOutput())
    written = export(node, loaded, "DICOM_SEG", tmp_path / "out", database)
    assert dciodvfy(written.path) == []
    voxel_mm3 = np.prod(loaded.GetSpacing())
    volume_mm3 = dcmread(written.path).pixel_array.sum() * voxel_mm3
    assert volume_mm3 == pytest.approx(4 / 3 * np.pi * 5**3, rel=0.15)
