import os
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import slicer
from export_scene import loadSeries
from pumit.export.dicom_series import write_dicom_series
from pumit.volume import Volume
from PUMITSegmentLib.exporting import checks as export_checks
from PUMITSegmentLib.exporting.checks import findProblems
from PUMITSegmentLib.exporting.export import ExportChoice, Format, collect, write
from PUMITSlicerLib.mrml import addVolumeNode, ijkToRas, orientedImage, readVolume
from PUMITSlicerLib.terms import TermSearch, assignTerm, newSegment
from pydicom import dcmread
from two_patients import stateDicom
from writing_scene import addSegmentation

SHAPE = (6, 16, 20)


@pytest.fixture
def volume_node(scene, database, tmp_path):
    noise = np.random.default_rng(0).normal(0, 200, SHAPE).round().astype(np.int16)
    series = write_dicom_series(Volume(noise, (2.0, 1.0, 1.0)), tmp_path / "series")
    return loadSeries(series.source.files[0].parent, database)


@pytest.fixture
def node(scene, volume_node):
    """A segmentation with one segment, "liver", in the middle of the volume."""
    node = addSegmentation(volume_node, (), "Segments")
    add(node, "liver", volume_node)
    return node


def add(node, name: str, volume_node, corner=(2, 4, 5), size=3) -> str:
    segment_id = newSegment(node, name)
    segment = node.GetSegmentation().GetSegment(segment_id)
    if size:
        image = orientedImage(np.ones((size,) * 3, bool), ijkToRas(volume_node), corner)
        copy = type(image)()
        copy.DeepCopy(image)
        segment.AddRepresentation("Binary labelmap", copy)
        segment.SetLabelValue(1)
    return segment_id


@pytest.fixture
def problems(tmp_path, database):
    """Problems of an export, as (severity, sentence)."""

    def find(node, volume_node, format_="DICOM_SEG", folder=tmp_path, **more):
        choice = ExportChoice(Format[format_], Path(folder), **more.pop("choice", {}))
        more.setdefault("database", database)
        found, check_files = findProblems(node, volume_node, choice, **more)
        return sorted([*found, *check_files()], key=lambda p: not p.isStop)

    return find


def only(found):
    assert len(found) == 1, [p.sentence for p in found]
    return found[0]


def stops(found) -> list[str]:
    return [p.sentence for p in found if p.isStop]


@pytest.mark.parametrize("format_", ["DICOM_SEG", "SEG_NRRD", "NIFTI", "NRRD"])
def test_sound_export_has_no_problem(problems, node, volume_node, format_):
    assert problems(node, volume_node, format_) == []
    node.GetSegmentation().GetNthSegment(0).SetName("Läsion 病变")
    assert problems(node, volume_node, format_) == []


def test_a_scan_that_is_mostly_nan_only_has_no_statistics(problems, scene, tmp_path):
    """As one that was registered to a larger one; no format could be exported."""
    array = np.full(SHAPE, np.nan, np.float32)
    array[:2] = 1.0
    volume_node = addVolumeNode("Registered", Volume(array, (2.0, 1.0, 1.0)))
    node = addSegmentation(volume_node, ())
    add(node, "liver", volume_node)
    assert stops(problems(node, volume_node, "NIFTI")) == []
    choice = ExportChoice(Format.NIFTI, tmp_path)
    assert write(collect(node, volume_node, choice)).path.is_file()
    assert "NaN" in stops(problems(node, volume_node, "STATISTICS_CSV"))[0]


def test_nothing_at_all_is_said_in_a_sentence_each(problems, scene):
    found = problems(None, None)
    assert len(stops(found)) == 2
    assert "segment something" in found[0].sentence
    assert "no volume" in found[1].sentence


def test_every_sentence_says_what_to_do(problems, node, volume_node, tmp_path):
    add(node, "x" * 100, volume_node, size=0)
    volume_node.SetAttribute("DICOM.instanceUIDs", None)
    for problem in problems(node, volume_node, folder=tmp_path / "series" / "slice_0001.dcm"):
        assert problem.sentence.endswith(".")
        assert ";" in problem.sentence, problem.sentence
        assert "\n" not in problem.sentence


def test_hidden_segments(problems, node, volume_node):
    node.GetDisplayNode().SetAllSegmentsVisibility(False)
    assert problems(node, volume_node) == []
    visible = {"onlyVisible": True}
    assert "hidden" in only(problems(node, volume_node, choice=visible)).sentence
    add(node, "spleen", volume_node)
    found = problems(node, volume_node, choice=visible)
    assert stops(found) == []
    assert 'because hidden: "liver"' in found[0].sentence


def test_empty_segment_names_itself_and_stops_nothing(problems, node, volume_node):
    add(node, "spleen", volume_node, size=0)
    problem = only(problems(node, volume_node))
    assert not problem.isStop
    assert 'because empty: "spleen"' in problem.sentence
    segment = node.GetSegmentation().GetNthSegment(0)  # erased again
    segment.GetRepresentation("Binary labelmap").GetPointData().GetScalars().Fill(0)
    assert "are empty" in only(problems(node, volume_node)).sentence


def test_missing_code_warns_and_can_be_assigned(problems, node, volume_node):
    segment_id = add(node, "thing", volume_node)
    problem = only(problems(node, volume_node))
    assert not problem.isStop
    assignTerm(node, segment_id, TermSearch().named("spleen"))
    assert problems(node, volume_node) == []


def test_same_name_twice_stops_dicom_and_warns_elsewhere(problems, node, volume_node):
    second = add(node, "liver", volume_node)
    node.GetSegmentation().GetSegment(second).SetName("liver")
    problem = only(problems(node, volume_node))
    assert problem.isStop
    assert stops(problems(node, volume_node, "SEG_NRRD")) == []


@pytest.mark.parametrize("name", ["x" * 100, "a\\b", "line\nbreak"])
def test_name_that_dicom_cannot_hold_can_be_changed(problems, node, volume_node, name):
    node.GetSegmentation().GetNthSegment(0).SetName(name)
    problem = only(problems(node, volume_node))
    assert problem.isStop
    assert problems(node, volume_node, "NIFTI") == []


def test_volume_that_is_not_from_dicom(problems, node, volume_node):
    volume_node.SetAttribute("DICOM.instanceUIDs", None)
    assert "does not come from DICOM" in only(problems(node, volume_node)).sentence
    assert problems(node, volume_node, "SEG_NRRD") == []


def test_source_files_that_are_deleted_or_unknown_are_counted(
    problems, node, volume_node, database, tmp_path
):
    for file in sorted((tmp_path / "series").iterdir())[:2]:
        file.unlink()
    assert only(problems(node, volume_node)).sentence.startswith("2 of 6 DICOM files")
    database.files.clear()
    assert only(problems(node, volume_node)).sentence.startswith("6 of 6 DICOM files")


@pytest.fixture
def multi_frame(volume_node, tmp_path):
    """The header of a multi-frame file, and a function that makes it the volume's file."""
    file = sorted((tmp_path / "series").iterdir())[0]
    dataset = dcmread(file)
    dataset.NumberOfFrames = SHAPE[0]
    volume_node.SetAttribute("DICOM.instanceUIDs", str(dataset.SOPInstanceUID))
    return dataset, lambda: dataset.save_as(file)


def test_multi_frame_without_places(problems, node, volume_node, multi_frame):
    dataset, save = multi_frame
    del dataset.ImagePositionPatient
    save()
    assert "multi-frame" in only(problems(node, volume_node)).sentence
    # Slicer stacks the frames of a cine like slices.
    for format_ in ("STATISTICS_CSV", "NIFTI"):
        doubt = only(problems(node, volume_node, format_))
        assert not doubt.isStop
        assert "volumes in the file mean nothing" in doubt.sentence
    # One frame of it, from a sequence, has no depth.
    slicer.util.updateVolumeFromArray(volume_node, np.zeros((1, *SHAPE[1:]), np.int16))
    found = problems(node, volume_node, "NIFTI")
    assert not any("mean nothing" in problem.sentence for problem in found)


def test_multi_frame_with_places(problems, node, volume_node, multi_frame):
    """Without functional groups, the places of the frames follow from the first."""
    dataset, save = multi_frame
    save()
    for format_ in ("DICOM_SEG", "STATISTICS_CSV"):
        assert problems(node, volume_node, format_) == []
    dataset.Modality = "XA"  # frames at one position that may be a cine
    save()
    assert "multi-frame" in only(problems(node, volume_node)).sentence
    dataset.FrameIncrementPointer = 0x00181063  # times
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 3, "RGB"
    save()
    assert "multi-frame" in only(problems(node, volume_node)).sentence


def test_statistics_of_a_colour_image_are_of_one_channel(problems, scene):
    colours = Volume(np.zeros((3, *SHAPE), np.uint8), (2.0, 1.0, 1.0))
    photo = addVolumeNode("Photo", colours)
    node = scene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Segments")
    node.CreateDefaultDisplayNodes()
    add(node, "liver", photo)
    doubt = only(problems(node, photo, "STATISTICS_JSON"))
    assert not doubt.isStop
    assert "3 channels" in doubt.sentence
    assert problems(node, photo, "NIFTI") == []


def test_segment_elsewhere_and_segment_half_outside(problems, node, volume_node):
    add(node, "spleen", volume_node, corner=(2, 4, 60))
    add(node, "aorta", volume_node, corner=(2, 4, 18))
    outside, half = problems(node, volume_node)
    assert outside.isStop
    assert '"spleen" is outside' in outside.sentence
    assert not half.isStop
    assert '"aorta" extends' in half.sentence


def test_segments_of_another_scan_are_not_written_silently(problems, scene, node, volume_node):
    other = addVolumeNode("Follow-up", readVolume(volume_node))
    node.SetReferenceImageGeometryParameterFromVolumeNode(other)
    found = only(problems(node, volume_node))
    assert not found.isStop
    assert '"Segments" belongs to the scan "Follow-up".' in found.sentence
    stateDicom(volume_node, "P-7710")
    stateDicom(other, "P-7711")
    for format_ in ("DICOM_SEG", "RT_STRUCT", "NIFTI", "STATISTICS_CSV"):
        (sentence,) = stops(problems(node, volume_node, format_))
        assert "another patient" in sentence


def test_only_segments_that_overlap_warn_and_only_for_label_maps(problems, node, volume_node):
    add(node, "spleen", volume_node, corner=(2, 4, 8))  # beside the liver, in a separate label map
    assert problems(node, volume_node, "NIFTI") == []
    assert problems(node, volume_node, "DICOM_LABELMAP") == []
    add(node, "aorta", volume_node, corner=(2, 6, 10))
    for format_, isStop in (("NIFTI", False), ("NRRD", False), ("DICOM_LABELMAP", True)):
        found = only(problems(node, volume_node, format_))
        assert "overlap" in found.sentence
        assert found.isStop is isStop
    assert problems(node, volume_node, "SEG_NRRD") == []


def test_transformed_volume_warns_where_slicers_file_will_lie(problems, scene, node, volume_node):
    transform = scene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    for each in (node, volume_node):
        each.SetAndObserveTransformNodeID(transform.GetID())
    for format_ in ("SEG_NRRD", "NIFTI", "NRRD"):
        assert "transform" in only(problems(node, volume_node, format_)).sentence
    assert problems(node, volume_node) == []


def test_folder_of_every_bad_kind(problems, node, volume_node, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for folder in ("", tmp_path / "file", tmp_path / "file" / "sub"):
        assert "folder" in only(problems(node, volume_node, folder=folder)).sentence
    assert problems(node, volume_node, folder=tmp_path / "new" / "folders") == []
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "No permission to write" in only(problems(node, volume_node)).sentence


def test_full_disk(problems, node, volume_node, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(export_checks.shutil, "disk_usage", lambda path: usage(9, 9, 0))
    for format_ in ("DICOM_SEG", "SEG_NRRD", "NIFTI"):
        assert "free disk space" in only(problems(node, volume_node, format_)).sentence


def test_database_that_is_closed_warns_if_it_is_requested(problems, node, volume_node, tmp_path):
    # Read from files, so that no database is needed to find them.
    dropped = loadSeries(tmp_path / "series", None)
    node.SetReferenceImageGeometryParameterFromVolumeNode(dropped)
    found = problems(node, dropped, database=None, addToDatabase=True)
    assert not only(found).isStop
    assert "database is not open" in found[0].sentence
    assert problems(node, dropped, database=None) == []


def test_missing_library_can_be_installed(problems, node, volume_node, monkeypatch):
    monkeypatch.setattr(export_checks.importlib.util, "find_spec", lambda name: None)
    problem = only(problems(node, volume_node))
    assert problem.isStop


def test_what_stops_comes_first(problems, node, volume_node):
    add(node, "thing", volume_node)
    volume_node.SetAttribute("DICOM.instanceUIDs", None)
    found = problems(node, volume_node)
    assert [p.isStop for p in found] == [True, False]
