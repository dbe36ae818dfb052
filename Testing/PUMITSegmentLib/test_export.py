from __future__ import annotations

import csv
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from export_checks import OBLIQUE, assert_same_masks, dciodvfy, dcmqi_segments
from pumit.errors import Cancelled, ExportError
from pumit.export.dicom_series import write_dicom_series
from pumit.io.read import read_volume
from pumit.segmentation import Segment
from pumit.volume import Volume
from pydicom import dcmread

SHAPE = (9, 21, 30)


@pytest.fixture
def database(scene):
    from harness.dicom_database import DicomDatabase

    return DicomDatabase()


def blobs(shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Two rugged masks that overlap, so that any flip, shift or loss shows."""
    rng = np.random.default_rng(1)
    first, second = np.zeros(shape, bool), np.zeros(shape, bool)
    d, h, w = shape
    first[d // 4 : d // 2 + 1, h // 8 : h // 2, w // 8 : w // 2] = True
    second[d // 3 : d - 1, h // 3 : h - 2, w // 3 : w - 4] = True
    first &= rng.random(shape) > 0.4
    second &= rng.random(shape) > 0.4
    first[d // 2, h // 2 - 1, w // 2 - 1] = second[d // 2, h // 2 - 1, w // 2 - 1] = True
    return first, second


def add_segment(segmentation_node, name, mask, volume_node, type_="SEMIAUTOMATIC"):
    from PUMITSegmentLib.provenance import byModel, setProvenance
    from PUMITSegmentLib.segment_terms import newSegment
    from PUMITSlicerLib.mrml import ijkToRas, orientedImage

    segment_id = newSegment(segmentation_node, name)
    segment = segmentation_node.GetSegmentation().GetSegment(segment_id)
    image = orientedImage(mask, ijkToRas(volume_node))
    copy = type(image)()
    copy.DeepCopy(image)
    segment.AddRepresentation("Binary labelmap", copy)
    segment.SetLabelValue(1)
    if type_ != "MANUAL":
        setProvenance(segment, byModel(type_, "pumit default", "0.1.0"))
    return segment_id


def segmentation_of(scene, volume_node, masks: dict[str, np.ndarray], **types):
    node = scene.AddNewNodeByClass("vtkMRMLSegmentationNode", "My segments")
    node.CreateDefaultDisplayNodes()
    node.SetReferenceImageGeometryParameterFromVolumeNode(volume_node)
    node.SetAndObserveTransformNodeID(volume_node.GetTransformNodeID())
    for name, mask in masks.items():
        add_segment(node, name, mask, volume_node, types.get(name, "SEMIAUTOMATIC"))
    return node


@pytest.fixture
def series(tmp_path) -> Volume:
    noise = np.random.default_rng(0).normal(0, 200, SHAPE).round().astype(np.int16)
    volume = Volume(noise, (2.5, 0.7, 0.8), (-11.5, 23.25, 40.0), OBLIQUE)
    return write_dicom_series(volume, tmp_path / "series")


@pytest.fixture
def loaded(series, database):
    from harness.dicom_database import loadSeries

    return loadSeries(series.source.files[0].parent, database)


@pytest.fixture
def kidneys(scene, loaded):
    first, second = blobs(SHAPE)
    return segmentation_of(scene, loaded, {"left kidney": first, "cyst": second})


def export(node, volume_node, format_, folder, database=None, **more):
    """Collect on this thread, write on another one, as the module does."""
    from PUMITSegmentLib.export import ExportChoice, Format, collect, write

    choice = ExportChoice(Format[format_], Path(folder), **more)
    collected = collect(node, volume_node, choice, database)
    result: list[object] = []

    def run() -> None:
        try:
            result.append(write(collected))
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def assert_dicom_holds(path, folder, volume, masks: dict[str, np.ndarray]):
    assert dciodvfy(path) == []
    expected = tuple(Segment(name, mask) for name, mask in masks.items())
    assert_same_masks(dcmqi_segments(path, folder, volume), expected)


def test_dicom_seg_keeps_every_voxel_and_overlap(tmp_path, kidneys, loaded, database, series):
    written = export(kidneys, loaded, "DICOM_SEG", tmp_path / "out", database)
    assert written.path.name == "My segments.dcm"
    first, second = blobs(SHAPE)
    masks = {"left kidney": first, "cyst": second}
    assert_dicom_holds(written.path, tmp_path / "read", series, masks)


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


def linear(scene, matrix: np.ndarray):
    import slicer

    node = scene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    node.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(matrix))
    return node


def shift_by_voxels(volume_node, ijk: tuple[int, int, int]) -> np.ndarray:
    from PUMITSlicerLib.mrml import ijkToRas

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
    import vtk

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


def test_centred_volume_still_meets_its_files(tmp_path, scene, loaded, database, series):
    import slicer
    from PUMITSlicerLib.mrml import ijkToRas

    # As "Center Volume" does: other coordinates, the same pixels.
    matrix = ijkToRas(loaded)
    matrix[:3, 3] = (100, 50, -300)
    loaded.SetIJKToRASMatrix(slicer.util.vtkMatrixFromArray(matrix))
    masks = dict(zip(("left kidney", "cyst"), blobs(SHAPE), strict=True))
    node = segmentation_of(scene, loaded, masks)
    written = export(node, loaded, "DICOM_SEG", tmp_path / "out", database)
    assert_dicom_holds(written.path, tmp_path / "read", series, masks)


def test_files_read_in_another_order_than_they_lie_are_refused(tmp_path, kidneys, loaded, database):
    uids = loaded.GetAttribute("DICOM.instanceUIDs").split()
    loaded.SetAttribute("DICOM.instanceUIDs", " ".join([uids[1], uids[0], *uids[2:]]))
    loaded.SetOrigin(0, 0, 0)
    with pytest.raises(ExportError, match="order"):
        export(kidneys, loaded, "DICOM_SEG", tmp_path / "out", database)


def sheared(series: Volume, by_mm: float) -> None:
    """Tilt the gantry afterwards: each slice is shifted along its columns."""
    for k, file in enumerate(series.source.files):
        dataset = dcmread(file)
        position = np.array(dataset.ImagePositionPatient, dtype=float)
        column = np.array(dataset.ImageOrientationPatient[3:], dtype=float)
        dataset.ImagePositionPatient = [round(x, 5) for x in position + k * by_mm * column]
        dataset.save_as(file)


def test_tilted_gantry_is_written_on_the_slices_it_was_drawn_on(tmp_path, scene, series, database):
    from harness.dicom_database import loadSeries

    sheared(series, 1.1)
    node = loadSeries(series.source.files[0].parent, database)
    # Straightened, as Slicer does where slices are uneven: the rest is a transform's.
    axes = np.diag([-1.0, -1.0, 1.0]) @ OBLIQUE
    node.SetIJKToRASDirections(*axes.ravel())
    first, second = blobs(SHAPE)
    written = export(
        segmentation_of(scene, node, {"a": first, "b": second}),
        node,
        "DICOM_SEG",
        tmp_path / "out",
        database,
    )
    assert dciodvfy(written.path) == []
    frames = frames_by_source(written.path)
    for number, mask in enumerate((first, second), start=1):
        for file, plane in zip(series.source.files, mask, strict=True):
            uid = str(dcmread(file, stop_before_pixels=True).SOPInstanceUID)
            found = frames.get((number, uid), np.zeros(plane.shape, bool))
            np.testing.assert_array_equal(found, plane)


def frames_by_source(path: Path) -> dict[tuple[int, str], np.ndarray]:
    """Planes by segment number and the instance they refer to."""
    dataset = dcmread(path)
    pixels = dataset.pixel_array.reshape(-1, dataset.Rows, dataset.Columns)
    frames = {}
    for group, plane in zip(dataset.PerFrameFunctionalGroupsSequence, pixels, strict=True):
        number = int(group.SegmentIdentificationSequence[0].ReferencedSegmentNumber)
        source = group.DerivationImageSequence[0].SourceImageSequence[0]
        frames[number, str(source.ReferencedSOPInstanceUID)] = plane > 0
    return frames


def test_hidden_segments_stay_out_unless_asked_for(tmp_path, kidneys, loaded, database):
    segmentation = kidneys.GetSegmentation()
    kidneys.GetDisplayNode().SetSegmentVisibility(segmentation.GetNthSegmentID(0), False)
    seen = export(kidneys, loaded, "DICOM_SEG", tmp_path, database)
    every = export(kidneys, loaded, "DICOM_SEG", tmp_path, database, onlyVisible=False)
    assert [s.SegmentLabel for s in dcmread(seen.path).SegmentSequence] == ["cyst"]
    assert len(dcmread(every.path).SegmentSequence) == 2


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
    from PUMITSegmentLib.export import ExportChoice, Format, collect, write

    collected = collect(kidneys, loaded, ExportChoice(Format[format_], tmp_path), database)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(Cancelled):
        write(collected, lambda: True)
    assert sorted(tmp_path.iterdir()) == before


def test_database_gets_the_file(tmp_path, kidneys, loaded, database):
    from PUMITSegmentLib.dicom_database import addToDatabase

    written = export(kidneys, loaded, "DICOM_SEG", tmp_path, database)
    addToDatabase(written.path, database)
    uid = str(dcmread(written.path).SOPInstanceUID)
    assert database.fileForInstance(uid) == str(written.path)


def test_database_that_is_absent_or_refuses_ends_in_one_sentence(
    tmp_path, kidneys, loaded, database
):
    from PUMITSegmentLib.dicom_database import addToDatabase

    written = export(kidneys, loaded, "DICOM_SEG", tmp_path, database)
    with pytest.raises(ExportError, match="not open"):
        addToDatabase(written.path)
    database.insert = lambda path: None
    with pytest.raises(ExportError, match="did not take"):
        addToDatabase(written.path, database)


# --- .seg.nrrd ------------------------------------------------------------------------------------


def reloaded(scene, path):
    import slicer

    return slicer.modules.segmentations.logic().LoadSegmentationFromFile(str(path), True, "again")


def world_voxels(node, name: str) -> np.ndarray:
    """World positions of a segment's voxels, rounded, in some order."""
    from PUMITSegmentLib.labelmap_grid import imageGrid
    from PUMITSlicerLib.mrml import orientedImageArray

    segmentation = node.GetSegmentation()
    segment = segmentation.GetSegment(segmentation.GetSegmentIdBySegmentName(name))
    image = segment.GetRepresentation("Binary labelmap")
    kji = np.argwhere(orientedImageArray(image) == segment.GetLabelValue())
    ijk = kji[:, ::-1] + image.GetExtent()[::2]
    grid = imageGrid(image)
    points = ijk @ grid[:3, :3].T + grid[:3, 3]
    transform = node.GetParentTransformNode()
    if transform is not None:
        import slicer
        import vtk

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
        turn = np.eye(4)
        turn[:3, :3], turn[:3, 3] = OBLIQUE, (30, -20, 5)
        for node in (kidneys, loaded):
            node.SetAndObserveTransformNodeID(linear(scene, turn).GetID())
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
    import vtk

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
    import slicer

    first, second = blobs(SHAPE)
    node = segmentation_of(scene, loaded, {"left kidney": first, "Läsion, 2": second & ~first})
    written = export(node, loaded, "NIFTI", tmp_path)
    rows = list(csv.DictReader(written.colorTablePath.open(encoding="utf-8")))
    assert [r["Name"] for r in rows] == ["Background", "left kidney", "Läsion, 2"]
    assert rows[1]["Type_CodeValue"] == "64033007"
    table = scene.AddNewNodeByClass("vtkMRMLColorTableNode")
    storage = scene.AddNewNodeByClass("vtkMRMLColorTableStorageNode")
    storage.SetFileName(str(written.colorTablePath))
    assert storage.ReadData(table)
    assert [table.GetColorName(i) for i in (1, 2)] == ["left kidney", "Läsion, 2"]
    rgba = [0.0] * 4
    table.GetColor(1, rgba)
    color = node.GetSegmentation().GetNthSegment(0).GetColor()
    assert rgba[:3] == pytest.approx(color, abs=1 / 255)
    assert "64033007" in table.GetTerminologyAsString(1)
    assert isinstance(table, slicer.vtkMRMLColorTableNode)


def test_label_map_of_the_same_and_of_endless_names(tmp_path, scene, loaded):
    first, second = blobs(SHAPE)
    node = segmentation_of(scene, loaded, {"x" * 100: first, "y": second & ~first})
    node.GetSegmentation().GetNthSegment(1).SetName("x" * 100)
    written = export(node, loaded, "NIFTI", tmp_path)
    rows = list(csv.DictReader(written.colorTablePath.open(encoding="utf-8")))
    assert [r["Name"] for r in rows[1:]] == ["x" * 100] * 2


# --- real scans -----------------------------------------------------------------------------------


def unpacked(archive: Path, folder: Path) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(archive) as packed:
        for number, member in enumerate(m for m in packed.infolist() if not m.is_dir()):
            (folder / f"{number:04d}.dcm").write_bytes(packed.read(member))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("has_database", [True, False])
def test_real_ct_in_slicers_reader(tmp_path, scene, shared_data, database, has_database):
    from harness.dicom_database import loadSeries

    folder = unpacked(shared_data / "dicom" / "chaos_ct" / "dicom.zip", tmp_path / "ct")
    volume = read_volume(folder)
    known = database if has_database else None
    node = loadSeries(folder, known)
    liver = SimpleITK.GetArrayFromImage(
        SimpleITK.ReadImage(str(shared_data / "cases" / "ct_chaos_liver" / "label.nii.gz"))
    )
    import slicer

    voxels = slicer.util.arrayFromVolume(node)
    # Slicer's slices run as pumit's do, or the other way round.
    is_same = np.array_equal(voxels, volume.array)
    assert is_same or np.array_equal(voxels[::-1], volume.array)
    rng = np.random.default_rng(0)
    mask = (liver > 0) if liver.shape == volume.shape else volume.array > 100
    mask &= rng.random(mask.shape) > 0.3
    segmentation = segmentation_of(scene, node, {"liver": mask if is_same else mask[::-1]})
    written = export(segmentation, node, "DICOM_SEG", tmp_path / "out", known)
    assert_dicom_holds(written.path, tmp_path / "read", volume, {"liver": mask})


@pytest.mark.slow
def test_real_tilted_mr(tmp_path, scene, shared_data, database):
    from harness.dicom_database import loadSeries

    source = shared_data / "dicom" / "brain_mr" / "Study3" / "11-T1post-18670"
    volume = read_volume(source)
    node = loadSeries(source, database)
    import slicer

    voxels = slicer.util.arrayFromVolume(node)
    is_same = np.array_equal(voxels, volume.array)
    assert is_same or np.array_equal(voxels[::-1], volume.array)
    first, second = blobs(volume.shape)
    masks = {"brain": first, "mass": second}
    shown = {name: mask if is_same else mask[::-1] for name, mask in masks.items()}
    written = export(
        segmentation_of(scene, node, shown), node, "DICOM_SEG", tmp_path / "out", database
    )
    assert_dicom_holds(written.path, tmp_path / "read", volume, masks)
