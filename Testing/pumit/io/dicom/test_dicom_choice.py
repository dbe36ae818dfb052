"""Of everything a folder holds, the one series is taken or the user has to choose."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from generated_scans import along_normal, dicom_slice, refused, write_stack
from pumit.errors import AmbiguousSeriesError, ExportError, VolumeError
from pumit.export.dicom_seg import write_dicom_seg
from pumit.export.terminology import concept_for
from pumit.segmentation import Algorithm, Segmentation
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MediaStorageDirectoryStorage

SEGMENTATION = "1.2.840.10008.5.1.4.1.1.66.4"
REPORT = "1.2.840.10008.5.1.4.1.1.88.33"
DOSE = "1.2.840.10008.5.1.4.1.1.481.2"


def question(path: Path, series: str | None = None) -> AmbiguousSeriesError:
    with pytest.raises(AmbiguousSeriesError) as caught:
        Volume.read(path, series=series)
    message = str(caught.value)
    assert "\n" not in message
    assert "secret" not in message.lower()
    for choice, description in caught.value.series:
        assert choice in message
        assert description in message
    return caught.value


def test_two_series_are_a_question(tmp_path):
    study = tmp_path / "study"
    write_stack(study / "a", along_normal(4), series="1.2.3")
    more = {"Modality": "MR", "SeriesDescription": "T2\nTSE"}
    write_stack(study / "b", along_normal(6), series="1.2.4", **more)
    error = question(study)
    assert error.series == [("1.2.3", "CT, abdomen, 4 slices"), ("1.2.4", "MR, T2 TSE, 6 slices")]
    assert Volume.read(study, series="1.2.4").shape[0] == 6
    assert Volume.read(study, series="1.2.3").shape[0] == 4
    with pytest.raises(VolumeError, match=r" 9\.9; .* 1\.2\.3 \(CT"):
        Volume.read(study, series="9.9")
    for k in range(28):  # a long one is cut
        ds = dicom_slice(np.zeros((2, 2), np.uint16), None, series=f"1.2.{k + 5}")
        ds.save_as(study / f"{k}.dcm", enforce_file_format=True)
    with pytest.raises(AmbiguousSeriesError, match="and 18 more") as caught:
        Volume.read(study)
    assert len(caught.value.series) == 30


def test_results_other_files_and_second_copies_are_passed_over(tmp_path):
    scan = tmp_path / "disc" / "deep" / "er"
    hu = write_stack(scan, along_normal(4))
    for file in list(scan.iterdir()):
        (scan / f"copy-{file.name}").write_bytes(file.read_bytes())
    (tmp_path / "disc" / "notes.txt").write_text("hello")
    (tmp_path / "disc" / ".hidden").write_bytes(b"\0" * 200)
    (tmp_path / "disc" / "deep" / "empty.dcm").touch()
    for number, sop_class in enumerate((SEGMENTATION, DOSE, REPORT), start=4):
        pixels, series = np.zeros((6, 7), np.uint8), f"1.2.{number}"
        ds = dicom_slice(pixels, None, series=series, SOPClassUID=sop_class)
        if sop_class == REPORT:
            for keyword in ("Rows", "Columns", "PixelData"):
                delattr(ds, keyword)
        ds.save_as(scan / f"result{number}.dcm", enforce_file_format=True)
    ds = Dataset()
    ds.FileSetID, ds.DirectoryRecordSequence = "DISC", []
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    ds.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    ds.file_meta.MediaStorageSOPInstanceUID = "1.2.77"
    ds.save_as(tmp_path / "disc" / "DICOMDIR", enforce_file_format=True)
    np.testing.assert_array_equal(Volume.read(tmp_path / "disc").array, hu)
    refused(tmp_path / "disc" / "DICOMDIR", "No DICOM image found")


def test_segmentation_alone_is_no_scan(tmp_path):
    ds = dicom_slice(np.zeros((6, 7), np.uint8), None, SOPClassUID=SEGMENTATION)
    ds.save_as(tmp_path / "seg.dcm", enforce_file_format=True)
    for path in (tmp_path / "seg.dcm", tmp_path):
        refused(path, "only segmentation")


def test_echoes_are_a_question_that_names_the_echo_time(tmp_path):
    first = write_stack(tmp_path / "mr", along_normal(4), prefix="a", EchoTime=20)
    write_stack(tmp_path / "mr", along_normal(4), prefix="b", EchoTime=80, intercept=0.0)
    error = question(tmp_path / "mr")
    assert dict(error.series) == {
        "1.2.3#1": "CT, abdomen, EchoTime 20, 4 slices",
        "1.2.3#2": "CT, abdomen, EchoTime 80, 4 slices",
    }
    volume = Volume.read(tmp_path / "mr", series="1.2.3#1")
    np.testing.assert_array_equal(volume.array, first)
    assert volume.source.series_instance_uid == "1.2.3"
    # The series alone, or a stack that is not there, is still a question.
    question(tmp_path / "mr", series="1.2.3")
    question(tmp_path / "mr", series="1.2.3#7")
    # If one echo is gone, the other is not read in its place.
    for file in (tmp_path / "mr").glob("a*"):
        file.unlink()
    with pytest.raises(VolumeError, match=r"no stack 1\.2\.3#1"):
        Volume.read(tmp_path / "mr", series="1.2.3#1")


def test_unequal_repetition_is_refused_with_a_position(tmp_path):
    write_stack(tmp_path / "ct", along_normal(4), prefix="a")
    write_stack(tmp_path / "ct", along_normal(2), prefix="b")
    refused(tmp_path / "ct", r"1 to 2 images per slice .* LPS")


def test_orientations_in_one_series_are_a_question(tmp_path):
    write_stack(tmp_path / "mr", along_normal(3), prefix="a")
    sagittal = (0.0, 1.0, 0.0, 0.0, 0.0, -1.0)
    write_stack(
        tmp_path / "mr", along_normal(5, orientation=sagittal), prefix="b", orientation=sagittal
    )
    error = question(tmp_path / "mr")
    assert {d for _, d in error.series} == {
        "CT, abdomen, axial, 3 slices",
        "CT, abdomen, sagittal, 5 slices",
    }


def test_views_of_an_x_ray_are_a_question(tmp_path):
    for k in range(2):
        ds = dicom_slice(np.full((4, 6), k, np.uint16), None, number=k + 1, intercept=0.0)
        ds.save_as(tmp_path / f"{k}.dcm", enforce_file_format=True)
    question(tmp_path)
    assert Volume.read(tmp_path, series="1.2.3#2").array.max() == 1


def test_different_slices_of_one_identifier_are_all_read(tmp_path, caplog, monkeypatch):
    """As programs leave them that give every object the same UID."""
    hu = write_stack(tmp_path / "ct", along_normal(5), SOPInstanceUID="1.2.3.4")
    for file in list((tmp_path / "ct").iterdir())[:2]:  # true copies are still none of them
        (tmp_path / "ct" / f"copy of {file.name}").write_bytes(file.read_bytes())
    volume = Volume.read(tmp_path / "ct")
    np.testing.assert_array_equal(volume.array, hu)
    assert "same SOPInstanceUID" in caplog.text
    for copy in (tmp_path / "ct").glob("copy of *"):
        copy.unlink()
    monkeypatch.setattr("pumit.io.dicom.choice._is_copy", None)  # they are not compared at all
    np.testing.assert_array_equal(Volume.read(tmp_path / "ct").array, hu)
    segment = concept_for("liver").segment("Liver", np.ones(volume.shape, dtype=bool))
    with pytest.raises(ExportError, match="same SOPInstanceUID"):
        write_dicom_seg(Segmentation(volume, [segment], Algorithm("x", "1")), tmp_path / "s.dcm")


def test_a_series_of_two_patients_is_refused(tmp_path):
    """As after editing some headers and keeping their identifiers."""
    hu = write_stack(tmp_path, along_normal(5), PatientID="secret-1")
    for patient in ("secret-2", "anonymous", "Secret-1 ", ""):
        for file in sorted(tmp_path.iterdir())[:2]:
            ds = dcmread(file)
            ds.PatientID = patient
            ds.save_as(file)
        if patient == "secret-2":
            with pytest.raises(VolumeError, match="state 2 patients") as caught:
                Volume.read(tmp_path)
            assert "secret" not in str(caught.value)
        else:
            np.testing.assert_array_equal(Volume.read(tmp_path).array, hu)


def phases(
    folder: Path, count: int, more: Callable[[int, int], dict[str, Any]], shuffled: int = 7
) -> list[npt.NDArray[np.int16]]:
    """Write phases of four slices under names in no order; `more` takes phase and slice."""
    folder.mkdir(parents=True, exist_ok=True)
    result = []
    for phase in range(count):
        hu = np.zeros((4, 6, 7), np.int16)
        for k, position in enumerate(along_normal(4)):
            pixels = np.full((6, 7), 1024 + 200 * phase + k, np.uint16)
            ds = dicom_slice(pixels, position, number=k + 1, **more(phase, k))
            name = (phase * 4 + k) * shuffled % (4 * count + 1)
            ds.save_as(folder / f"{name:03d}", enforce_file_format=True)
            hu[k] = pixels.astype(int) - 1024
        result.append(hu)
    return result


def assert_stacks(folder: Path, expected: list[npt.NDArray[np.int16]]) -> None:
    stacks = question(folder).series
    assert len(stacks) == len(expected)
    for (choice, _), hu in zip(stacks, expected, strict=True):
        np.testing.assert_array_equal(Volume.read(folder, series=choice).array, hu)


@pytest.mark.parametrize(
    "more",
    [
        # One clock for a whole phase; one that runs on; times after each slice's own heart beat.
        lambda phase, k: {"AcquisitionTime": f"1200{2 * phase:02d}.000000"},
        lambda phase, k: {
            "AcquisitionTime": f"{'00000' if phase else '23595'}{phase}.{k}",
            "AcquisitionDate": "20240102" if phase else "20240101",
        },
        lambda phase, k: {"AcquisitionDateTime": f"202401011200{phase:02d}.{k}+0100"},
        lambda phase, k: {"TriggerTime": round(phase * (31.7 + 0.3 * k), 1)},
        # The first phase begins at once everywhere, so that only one value repeats.
        lambda phase, k: {"TriggerTime": phase * (30 + k), "EchoTime": 1.5},
        lambda phase, k: {"TemporalPositionIdentifier": phase + 1},
        # Numbers that run through the phases, or through the slices.
        lambda phase, k: {"InstanceNumber": phase * 4 + k + 1},
        lambda phase, k: {"InstanceNumber": k * 3 + phase + 1},
    ],
)
def test_phases_are_kept_apart_by_their_time(tmp_path, more):
    assert_stacks(tmp_path / "s", phases(tmp_path / "s", 3, more))


def test_echoes_of_each_phase_are_kept_apart(tmp_path):
    """Two things differ, and no single one tells all images of a position apart."""
    expected = phases(
        tmp_path / "s",
        4,
        lambda phase, k: {
            "EchoTime": 2.3 + phase % 2,
            "AcquisitionTime": f"1200{phase // 2:02d}.{k}",
        },
    )
    assert_stacks(tmp_path / "s", [expected[i] for i in (0, 2, 1, 3)])
    first = question(tmp_path / "s").series[0][1]
    assert first == "CT, abdomen, EchoTime 2.3, image 1 of 2, 4 slices"


@pytest.mark.parametrize(
    "more",
    [
        # The same numbers and times in each phase.
        lambda phase, k: {},
        lambda phase, k: {"AcquisitionTime": "120000"},
        # Numbers without a system.
        lambda phase, k: {"InstanceNumber": (phase * 5 + k * 7) % 12 + 1},
        # A time that one image lacks.
        lambda phase, k: {"AcquisitionTime": f"12000{phase}"} if phase + k else {},
    ],
)
def test_phases_of_which_the_order_is_unknown_are_refused(tmp_path, more):
    phases(tmp_path / "s", 3, more)
    refused(tmp_path / "s", "does not state which belong together")
