"""Files for Slicer and for other programs, and the names of all files that are exported."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
import slicer
import vtk
from export_checks import OBLIQUE, assert_same_masks, dciodvfy
from export_scene import (
    SHAPE,
    add_segment,
    assert_dicom_holds,
    assert_exported,
    blobs,
    export,
    segmentation_of,
)
from pumit.errors import Cancelled, ExportError
from pumit.io.labels.label_source import read_labels, read_scan
from pumit.io.slicer_bundle import bundle_nodes
from pumit.segmentation import Segment
from pumit.volume import Volume
from PUMITSegmentLib.exporting.dicom_source import addToDatabase, databaseName
from PUMITSegmentLib.exporting.export import ExportChoice, Format, collect, write
from PUMITSlicerLib.labelmap_grid import imageGrid
from PUMITSlicerLib.mrml import addVolumeNode, ijkToRas, orientedImageArray, readVolume
from PUMITSlicerLib.terms import newSegment
from pydicom import dcmread
from writing_scene import addMatrixTransform, addSegmentation, moveUnder, rigid


def test_existing_files_are_never_replaced(tmp_path, kidneys, loaded, database):
    paths = [
        export(kidneys, loaded, format_, tmp_path / "a/b", database, fileName="liver").path
        for format_ in ("DICOM_SEG", "DICOM_SEG", "NIFTI", "NIFTI", "SEG_NRRD", "SEG_NRRD")
    ]
    assert [p.name for p in paths] == [
        *("liver.dcm", "liver_2.dcm", "liver.nii.gz", "liver_2.nii.gz"),
        *("liver.seg.nrrd", "liver_2.seg.nrrd"),
    ]
    tables = sorted(p.name for p in (tmp_path / "a/b").glob("*.csv"))
    assert tables == ["liver.csv", "liver_2.csv"]
    assert len(list((tmp_path / "a/b").iterdir())) == 8


@pytest.mark.parametrize(
    "name", ["Läsion 病变 🫀", "a/b\\c:d*?", "con", "..", "x" * 300, "é" * 200]
)
def test_any_name_of_a_segmentation_makes_a_file(tmp_path, kidneys, loaded, database, name):
    kidneys.SetName(name)
    written = export(kidneys, loaded, "DICOM_SEG", tmp_path, database)
    assert written.path.parent == tmp_path
    assert dciodvfy(written.path) == []


def test_folder_that_is_a_file_ends_in_one_sentence(tmp_path, kidneys, loaded, database):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ExportError, match="folder"):
        export(kidneys, loaded, "DICOM_SEG", tmp_path / "file" / "sub", database)


@pytest.mark.parametrize("format_", ["DICOM_SEG", "SEG_NRRD", "NIFTI"])
def test_cancelled_export_leaves_nothing(tmp_path, kidneys, loaded, database, format_):
    collected = collect(kidneys, loaded, ExportChoice(Format[format_], tmp_path), database)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(Cancelled):
        write(collected, lambda: True)
    assert sorted(tmp_path.iterdir()) == before


# --- .seg.nrrd ------------------------------------------------------------------------------------


def reloaded(scene, path):
    return slicer.modules.segmentations.logic().LoadSegmentationFromFile(str(path), True, "again")


def world_voxels(node, name: str) -> np.ndarray:
    """World positions of a segment's voxels, rounded, in some order."""
    segmentation = node.GetSegmentation()
    segment = segmentation.GetSegment(segmentation.GetSegmentIdBySegmentName(name))
    image = segment.GetRepresentation("Binary labelmap")
    kji = np.argwhere(orientedImageArray(image) == segment.GetLabelValue())
    ijk = kji[:, ::-1] + image.GetExtent()[::2]
    grid = imageGrid(image)
    points = ijk @ grid[:3, :3].T + grid[:3, 3]
    transform = node.GetParentTransformNode()
    if transform is not None:
        matrix = vtk.vtkMatrix4x4()
        transform.GetMatrixTransformToWorld(matrix)
        array = slicer.util.arrayFromVTKMatrix(matrix)
        points = points @ array[:3, :3].T + array[:3, 3]
    return points[np.lexsort(points.round(2).T)]


@pytest.mark.parametrize("is_moved", [False, True])
def test_slicers_file_keeps_place_overlap_and_all_tags(tmp_path, scene, kidneys, loaded, is_moved):
    segmentation = kidneys.GetSegmentation()
    ids = [segmentation.GetNthSegmentID(i) for i in range(2)]
    segmentation.GetSegment(ids[0]).SetTag("Another.Module", "its note")
    if is_moved:
        for node in (kidneys, loaded):
            moveUnder(node, addMatrixTransform(rigid((30, -20, 5), OBLIQUE)))
    written = export(kidneys, loaded, "SEG_NRRD", tmp_path)
    again = reloaded(scene, written.path)
    assert [again.GetSegmentation().GetNthSegmentID(i) for i in range(2)] == ids
    for segment_id in ids:
        before, after = (n.GetSegmentation().GetSegment(segment_id) for n in (kidneys, again))
        assert (after.GetName(), after.GetTerminology()) == (
            before.GetName(),
            before.GetTerminology(),
        )
        assert after.GetColor() == pytest.approx(before.GetColor(), abs=1e-3)
        here, there = (world_voxels(node, before.GetName()) for node in (kidneys, again))
        np.testing.assert_allclose(there, here, atol=1e-3)
    note = vtk.mutable("")
    assert again.GetSegmentation().GetSegment(ids[0]).GetTag("Another.Module", note)
    assert str(note) == "its note"


def test_slicers_file_is_packed_and_the_scene_unchanged(tmp_path, scene, kidneys, loaded):
    count = scene.GetNumberOfNodes()
    segment = kidneys.GetSegmentation().GetNthSegment(0)
    image = segment.GetRepresentation("Binary labelmap")
    written = export(kidneys, loaded, "SEG_NRRD", tmp_path)
    assert b"\nencoding: gzip\n" in written.path.read_bytes()[:4000]
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == [written.path.name]
    assert scene.GetNumberOfNodes() == count
    assert segment.GetRepresentation("Binary labelmap") is image


def test_slicers_file_needs_no_volume(tmp_path, kidneys):
    assert export(kidneys, None, "SEG_NRRD", tmp_path).path.is_file()


def test_labels_of_hidden_segments_stay_out_of_slicers_file(tmp_path, scene, loaded):
    first, second = blobs(SHAPE)
    node = segmentation_of(scene, loaded, {"a": first, "b": second & ~first})
    segmentation = node.GetSegmentation()
    # Both in one label map, as Slicer keeps them where they do not overlap.
    segmentation.CollapseBinaryLabelmaps(True)
    assert segmentation.GetNumberOfLayers() == 1
    shown = world_voxels(node, "b")
    node.GetDisplayNode().SetSegmentVisibility(segmentation.GetNthSegmentID(0), False)
    written = export(node, loaded, "SEG_NRRD", tmp_path, onlyVisible=True)
    again = reloaded(scene, written.path)
    assert again.GetSegmentation().GetNumberOfSegments() == 1
    np.testing.assert_allclose(world_voxels(again, "b"), shown, atol=1e-3)
    image = SimpleITK.ReadImage(str(written.path))
    assert len(np.unique(SimpleITK.GetArrayFromImage(image))) == 2


def test_segments_on_different_grids_go_into_one_file(tmp_path, scene, loaded):
    first, _second = blobs(SHAPE)
    node = segmentation_of(scene, loaded, {"a": first})
    box = np.zeros((10, 10, 10), bool)
    box[3:7, 3:7, 3:7] = True
    other = addVolumeNode("Other", Volume(box.astype(np.uint8), (2.0, 2.0, 2.0), (0, 30, 45)))
    add_segment(node, "b", box, other)
    centre = world_voxels(node, "b").mean(axis=0)
    written = export(node, loaded, "SEG_NRRD", tmp_path)
    again = reloaded(scene, written.path)
    assert again.GetSegmentation().GetNumberOfSegments() == 2
    # Slicer resamples what lies on another grid.
    np.testing.assert_allclose(world_voxels(again, "b").mean(axis=0), centre, atol=1.0)


# --- label maps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["NIFTI", "NRRD"])
def test_label_map_lies_on_the_volume(tmp_path, scene, loaded, series, format_):
    first, second = blobs(SHAPE)
    second &= ~first
    node = segmentation_of(scene, loaded, {"left kidney": first, 'a "b", c': second})
    written = export(node, loaded, format_, tmp_path)
    image = SimpleITK.ReadImage(str(written.path))
    np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(image), first + 2 * second)
    np.testing.assert_allclose(image.GetOrigin(), series.origin_lps, atol=1e-4)
    np.testing.assert_allclose(np.reshape(image.GetDirection(), (3, 3)), OBLIQUE, atol=1e-5)


def test_label_table_is_read_by_slicer_and_by_people(tmp_path, scene, loaded):
    first, second = blobs(SHAPE)
    node = segmentation_of(scene, loaded, {"left kidney": first, 'Läsion, "2"': second & ~first})
    written = export(node, loaded, "NIFTI", tmp_path)
    rows = list(csv.DictReader(written.colorTablePath.open(encoding="utf-8")))
    assert [r["Name"] for r in rows] == ["Background", "left kidney", "Läsion, '2'"]
    assert rows[1]["Type_CodeValue"] == "64033007"
    table = scene.AddNewNodeByClass("vtkMRMLColorTableNode")
    storage = scene.AddNewNodeByClass("vtkMRMLColorTableStorageNode")
    storage.SetFileName(str(written.colorTablePath))
    assert storage.ReadData(table)
    assert [table.GetColorName(i) for i in (1, 2)] == ["left kidney", "Läsion, '2'"]
    rgba = [0.0] * 4
    table.GetColor(1, rgba)
    color = node.GetSegmentation().GetNthSegment(0).GetColor()
    assert rgba[:3] == pytest.approx(color, abs=1 / 255)
    assert "64033007" in table.GetTerminologyAsString(1)
    assert isinstance(table, slicer.vtkMRMLColorTableNode)


# --- statistics -----------------------------------------------------------------------------------


def test_statistics_are_at_slicers_positions(tmp_path, scene, loaded, series):
    masks = dict(zip(("Left kidney", "Cyst"), blobs(SHAPE), strict=True))
    node = segmentation_of(scene, loaded, masks)
    table = export(node, loaded, "STATISTICS_CSV", tmp_path, fileName="kidney").path
    objects = export(node, loaded, "STATISTICS_JSON", tmp_path, fileName="kidney").path
    assert (table.name, objects.name) == ("kidney.statistics.csv", "kidney.statistics.json")
    read = json.loads(objects.read_text(encoding="utf-8"))
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    for (name, mask), row, each in zip(masks.items(), rows, read, strict=True):
        x, y, z = series.index_to_world(np.argwhere(mask).mean(axis=0))
        assert row["name"] == each["name"] == name
        assert int(row["voxels"]) == each["voxels"] == mask.sum()
        assert each["mean"] == pytest.approx(series.array[mask].mean())
        assert each["centroid_ras_mm"] == pytest.approx((-x, -y, z), abs=1e-3)
        assert float(row["centroid_s_mm"]) == pytest.approx(z, abs=1e-3)


def test_statistics_of_a_segment_outside_of_the_scan_end_in_one_sentence(tmp_path, scene, loaded):
    node = segmentation_of(scene, loaded, {"Cyst": blobs(SHAPE)[0]})
    moveUnder(node, addMatrixTransform(rigid((500, 0, 0))))
    with pytest.raises(ExportError, match="Cyst"):
        export(node, loaded, "STATISTICS_CSV", tmp_path)


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
    return rigid(ijkToRas(volume_node)[:3, :3] @ ijk)


def test_common_transform_changes_nothing_in_dicom(
    tmp_path, scene, kidneys, loaded, database, series
):
    for node in (kidneys, loaded):
        moveUnder(node, addMatrixTransform(rigid((30, -20, 5), OBLIQUE)))
    masks = dict(zip(("left kidney", "cyst"), blobs(SHAPE), strict=True))
    assert_exported(tmp_path, kidneys, loaded, database, series, masks)


def test_segmentation_moved_on_its_volume_is_written_where_it_is_seen(
    tmp_path, scene, kidneys, loaded, database, series
):
    moveUnder(kidneys, addMatrixTransform(shift_by_voxels(loaded, (2, -1, 1))))
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
    assert_exported(tmp_path, node, loaded, database, series, {"box": np.roll(box, 2, 2)})


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
    assert_exported(tmp_path, node, loaded, database, series, masks)


def test_surface_is_exported_as_the_voxels_inside_it(tmp_path, scene, loaded, database):
    node = addSegmentation(loaded, names=())
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


@pytest.fixture
def saved(slicerApp: Any, tmp_path: Path) -> tuple[Path, Any, Any]:
    """A bundle with an oblique scan and two overlapping segments; its nodes."""
    noise = np.random.default_rng(0).normal(0, 200, SHAPE).round().astype(np.int16)
    volume = Volume(noise, (2.5, 0.7, 0.8), (-11.5, 23.25, 40.0), OBLIQUE)
    scan = addVolumeNode("My scan #1", volume)
    first, second = blobs(SHAPE)
    segments = segmentation_of(slicer.mrmlScene, scan, {"liver": first, "Tumour": second})
    path = tmp_path / "a scene.mrb"
    assert slicer.util.saveScene(str(path))
    return path, scan, segments


def test_bundle_holds_what_slicer_shows(saved):
    path, scan, segments = saved
    nodes = {node.kind: node for node in bundle_nodes(path)}
    assert nodes["volume"].name == "My scan #1"
    assert nodes["segmentation"].reference == nodes["volume"].identifier == scan.GetID()
    volume = read_scan([Path(f"{path}#My scan #1")])
    expected = readVolume(scan)
    assert np.array_equal(volume.array, expected.array)
    corners = np.array([(0, 0, 0), (8, 20, 29)])
    assert np.allclose(volume.index_to_world(corners), expected.index_to_world(corners), atol=1e-3)
    labels = read_labels(Path(f"{path}#{segments.GetName()}"), volume)
    assert [s.name for s in labels.segments] == ["liver", "Tumour"]
    for segment, mask in zip(labels.segments, blobs(SHAPE), strict=True):
        assert np.array_equal(labels.mask(segment), mask)
        assert "~" in segment.terminology
        assert segment.color_rgb is not None


@pytest.mark.parametrize("isCropped", [False, True])
def test_segmentation_that_slicer_saves_is_read_where_it_was(saved, tmp_path, isCropped):
    _, scan, segments = saved
    storage = segments.GetStorageNode()
    storage.SetCropToMinimumExtent(isCropped)
    path = tmp_path / "alone.seg.nrrd"
    storage.SetFileName(str(path))
    assert storage.WriteData(segments)
    labels = read_labels(path, readVolume(scan))
    for segment, mask in zip(labels.segments, blobs(SHAPE), strict=True):
        assert np.array_equal(labels.mask(segment), mask)
