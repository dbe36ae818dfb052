"""Which files a volume came from, and which slice is which of them."""

import zipfile
from dataclasses import replace
from pathlib import Path

import highdicom
import numpy as np
import pytest
import SimpleITK
import slicer
from export_checks import OBLIQUE, dciodvfy
from export_scene import (
    SHAPE,
    assert_dicom_holds,
    assert_exported,
    blobs,
    export,
    loadSeries,
    segmentation_of,
)
from generated_scans import dicom_slice, write_enhanced
from pumit.errors import ExportError
from pumit.export.dicom_seg import write_dicom_seg
from pumit.export.dicom_series import write_dicom_series
from pumit.export.terminology import concept_for
from pumit.export.write import write_segmentation
from pumit.io.labels.label_source import read_labels
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.volume import Volume
from PUMITSegmentLib.exporting.dicom_source import DicomFiles, findDicomFiles, withSource
from PUMITSlicerLib.mrml import addVolumeNode, ijkToRas
from pydicom import dcmread


def test_centred_volume_still_meets_its_files(tmp_path, scene, loaded, database, series):
    # As "Center Volume" does: other coordinates, the same pixels.
    matrix = ijkToRas(loaded)
    matrix[:3, 3] = (100, 50, -300)
    loaded.SetIJKToRASMatrix(slicer.util.vtkMatrixFromArray(matrix))
    masks = dict(zip(("left kidney", "cyst"), blobs(SHAPE), strict=True))
    node = segmentation_of(scene, loaded, masks)
    assert_exported(tmp_path, node, loaded, database, series, masks)


def test_files_read_in_another_order_than_they_lie_are_refused(tmp_path, scene, loaded, database):
    node = segmentation_of(scene, loaded, {"a": blobs(SHAPE)[0]})
    uids = loaded.GetAttribute("DICOM.instanceUIDs").split()
    loaded.SetAttribute("DICOM.instanceUIDs", " ".join([uids[1], uids[0], *uids[2:]]))
    loaded.SetOrigin(0, 0, 0)
    with pytest.raises(ExportError, match="order"):
        export(node, loaded, "DICOM_SEG", tmp_path / "out", database)


def sheared(series: Volume, by_mm: float) -> None:
    """Tilt the gantry afterwards: each slice is shifted along its columns."""
    for k, file in enumerate(series.source.files):
        dataset = dcmread(file)
        position = np.array(dataset.ImagePositionPatient, dtype=float)
        column = np.array(dataset.ImageOrientationPatient[3:], dtype=float)
        dataset.ImagePositionPatient = [round(x, 5) for x in position + k * by_mm * column]
        dataset.save_as(file)


def test_tilted_gantry_is_written_on_the_slices_it_was_drawn_on(tmp_path, scene, series, database):
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
    shared = dataset.SharedFunctionalGroupsSequence[0]
    frames = {}
    for group, plane in zip(dataset.PerFrameFunctionalGroupsSequence, pixels, strict=True):
        # What all frames share stands there once.
        owner = group if "SegmentIdentificationSequence" in group else shared
        number = int(owner.SegmentIdentificationSequence[0].ReferencedSegmentNumber)
        source = group.DerivationImageSequence[0].SourceImageSequence[0]
        frames[number, str(source.ReferencedSOPInstanceUID)] = plane > 0
    return frames


def unpacked(archive: Path, folder: Path) -> Path:
    """Eight neighbouring slices of an archive."""
    folder.mkdir()
    with zipfile.ZipFile(archive) as packed:
        members = [m for m in packed.infolist() if not m.is_dir()]
        for number, member in enumerate(sorted(members, key=lambda m: m.filename)[30:38]):
            (folder / f"{number:04d}.dcm").write_bytes(packed.read(member))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "has_database"),
    [
        ("chaos_ct/dicom.zip", True),
        ("chaos_ct/dicom.zip", False),
        ("brain_mr/Study3/11-T1post-18670", True),  # tilted
    ],
)
def test_real_series_in_slicers_reader(
    tmp_path, scene, shared_data, database, source, has_database
):
    folder = shared_data / "dicom" / source
    if folder.suffix == ".zip":
        folder = unpacked(folder, tmp_path / "series")
    volume = Volume.read(folder)
    known = database if has_database else None
    node = loadSeries(folder, known)
    voxels = slicer.util.arrayFromVolume(node)
    # Slicer's slices run as pumit's do, or the other way round.
    is_same = np.array_equal(voxels, volume.array)
    assert is_same or np.array_equal(voxels[::-1], volume.array)
    masks = dict(zip(("brain", "mass"), blobs(volume.shape), strict=True))
    shown = {name: mask if is_same else mask[::-1] for name, mask in masks.items()}
    segmentation = segmentation_of(scene, node, shown)
    written = export(segmentation, node, "DICOM_SEG", tmp_path / "out", known)
    assert_dicom_holds(written.path, tmp_path / "read", volume, masks)


def test_volume_from_nowhere_has_no_source(scene):
    node = scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")
    assert findDicomFiles(node) == findDicomFiles(None) == DicomFiles()


def test_volume_from_another_kind_of_file_has_no_source(tmp_path, scene, loaded, database):
    assert slicer.util.saveNode(loaded, str(tmp_path / "scan.nrrd"))
    again = slicer.util.loadVolume(str(tmp_path / "scan.nrrd"), {})
    assert not findDicomFiles(again, database).isFromDicom


def test_closed_database_is_not_asked(scene, loaded, database, monkeypatch):
    monkeypatch.setattr(slicer, "dicomDatabase", database, raising=False)
    assert findDicomFiles(loaded).missing == 0
    database.isOpen = False
    assert findDicomFiles(loaded).missing == SHAPE[0]


@pytest.mark.parametrize("is_left_handed", [False, True])
def test_files_are_listed_in_slice_order(series, loaded, database, is_left_handed):
    files = series.source.files
    volume, given = series, findDicomFiles(loaded, database).paths
    if is_left_handed:
        last = tuple(series.index_to_world((SHAPE[0] - 1, 0, 0)))
        direction = series.direction @ np.diag([1.0, 1.0, -1.0])
        volume = replace(series, origin_lps=last, direction=direction)
        files = files[::-1]
    assert withSource(volume, given).source.files == files


def test_cropped_volume_is_placed_by_its_coordinates(tmp_path, scene, series, loaded, database):
    inner = Volume(
        series.array[2:7, 3:, 4:],
        series.spacing_mm,
        tuple(series.index_to_world((2, 3, 4))),
        series.direction,
    )
    node = addVolumeNode("Cropped", inner)
    node.SetAttribute("DICOM.instanceUIDs", loaded.GetAttribute("DICOM.instanceUIDs"))
    mask, _second = blobs(SHAPE)
    mask[:2] = mask[7:] = False
    mask[:, :3] = False
    mask[:, :, :4] = False
    part = segmentation_of(scene, node, {"part": mask[2:7, 3:, 4:]})
    assert_exported(tmp_path, part, node, database, series, {"part": mask})


def test_single_slice_is_exported(tmp_path, scene, database):
    first, _second = blobs(SHAPE)
    plane = first[4:5]
    values = np.where(plane, 100, 0).astype(np.int16)
    series = write_dicom_series(Volume(values, (1e8, 0.7, 0.8)), tmp_path / "series")
    node = loadSeries(tmp_path / "series", database)
    written = export(
        segmentation_of(scene, node, {"a": plane}), node, "DICOM_SEG", tmp_path / "out", database
    )
    assert dciodvfy(written.path) == []
    uid = str(dcmread(series.source.files[0]).SOPInstanceUID)
    np.testing.assert_array_equal(frames_by_source(written.path)[1, uid], plane[0])


def test_frames_of_an_older_multi_frame_file_are_its_slices(tmp_path, scene, series):
    """Its header states the first frame's position only, and no functional groups."""
    parts = [dcmread(file) for file in series.source.files]
    whole = parts[0]
    whole.NumberOfFrames = len(parts)
    whole.SpacingBetweenSlices = whole.SliceThickness = series.spacing_mm[0]
    whole.PixelData = b"".join(part.PixelData for part in parts)
    path = tmp_path / "whole.dcm"
    whole.save_as(path)
    volume = Volume.read(path)
    np.testing.assert_array_equal(volume.array, series.array)
    mask = blobs(SHAPE)[0]
    drawn = withSource(replace(volume, source=None), (path,))
    segment = concept_for("liver").segment("Liver", mask)
    write_dicom_seg(Segmentation(drawn, (segment,), Algorithm("x", "1")), tmp_path / "seg.dcm")
    seg = highdicom.seg.segread(tmp_path / "seg.dcm")
    found = seg.get_pixels_by_source_frame(
        whole.SOPInstanceUID,
        list(range(1, len(parts) + 1)),
        combine_segments=True,
        assert_missing_frames_are_empty=True,
    )
    np.testing.assert_array_equal(found > 0, mask)


def test_times_that_slicer_reads_as_slices_are_refused(tmp_path):
    """A segment of the second time would be lost, or be at another place."""
    path = tmp_path / "a.dcm"
    places = [np.array([0.0, 0.0, 2.0 * (k % 3)]) for k in range(6)]
    write_enhanced(path, places, times=[1, 1, 1, 2, 2, 2])
    image = SimpleITK.ReadImage(str(path))
    shown = Volume(SimpleITK.GetArrayFromImage(image), image.GetSpacing()[::-1], image.GetOrigin())
    with pytest.raises(ExportError, match="several frames at one position"):
        withSource(shown, (path,))
    first = replace(shown, array=shown.array[:3])
    assert withSource(first, (path,)).source.files == (path,)


@pytest.mark.parametrize("suffix", [".dcm", ".rtstruct.dcm"])
def test_pixels_that_slicer_reads_with_another_size_keep_their_segment(tmp_path, suffix):
    """An angiogram has the size of its calibration, and in Slicer that of its detector."""
    ds = dicom_slice(
        np.random.default_rng(0).integers(0, 255, (21, 30)).astype(np.uint16),
        (5.0, 6.0, 7.0),
        SOPClassUID="1.2.840.10008.5.1.4.1.1.12.1",
        pixel_spacing=(0.4, 0.3),
        ImagerPixelSpacing=[0.8, 0.6],
        intercept=0.0,
    )
    path = tmp_path / "a.dcm"
    ds.save_as(path, enforce_file_format=True)
    image = SimpleITK.ReadImage(str(path))
    assert image.GetSpacing()[:2] == pytest.approx((0.6, 0.8))
    array = SimpleITK.GetArrayFromImage(image)
    shown = Volume(array, (1.0, 0.8, 0.6), image.GetOrigin(), np.eye(3))
    mask = np.random.default_rng(1).random(shown.shape) > 0.6
    segment = Segmentation(withSource(shown, (path,)), (Segment("a", mask),), Algorithm("a", "1"))
    write_segmentation(segment, tmp_path / f"out{suffix}")
    found = read_labels(tmp_path / f"out{suffix}", Volume.read(path))
    np.testing.assert_array_equal(found.mask(found.segments[0]), mask)
