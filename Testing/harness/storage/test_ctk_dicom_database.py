"""The DICOM database answers as CTK's does."""

from __future__ import annotations

import pytest
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid


@pytest.fixture
def series(tmp_path):
    """Two instances of one series in a folder, next to a text; (folder, series UID, UIDs)."""
    folder = tmp_path / "series"
    folder.mkdir()
    study, seriesUID = generate_uid(), generate_uid()
    uids = []
    for number in (1, 2):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID = CTImageStorage
        meta.MediaStorageSOPInstanceUID = generate_uid()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
        data.SOPClassUID, data.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
        data.StudyInstanceUID, data.SeriesInstanceUID = study, seriesUID
        data.PatientID, data.PatientName = "1", "Test^Generated"
        data.Modality, data.SeriesDescription = "CT", "thin"
        data.InstanceNumber = number
        data.PixelSpacing = [0.5, 0.75]
        data.save_as(folder / f"{number}.dcm", enforce_file_format=True)
        uids.append(str(data.SOPInstanceUID))
    (folder / "notes.txt").write_text("no DICOM")
    return folder, str(seriesUID), uids


def test_a_folder_is_indexed_where_it_lies(dicomDatabase, series) -> None:
    from harness.storage.ctk_dicom_database import indexFolder

    folder, seriesUID, uids = series
    assert indexFolder(dicomDatabase, folder) == 2
    assert dicomDatabase.filesForSeries(seriesUID) == [
        str(folder / "1.dcm"),
        str(folder / "2.dcm"),
    ]
    assert dicomDatabase.fileForInstance(uids[1]) == str(folder / "2.dcm")
    assert dicomDatabase.instanceForFile(str(folder / "1.dcm")) == uids[0]
    assert dicomDatabase.instancesForSeries(seriesUID, 1) == uids[:1]


def test_patients_studies_and_series_are_found(dicomDatabase, series) -> None:
    from harness.storage.ctk_dicom_database import indexFolder

    indexFolder(dicomDatabase, series[0])
    (patient,) = dicomDatabase.patients()
    (study,) = dicomDatabase.studiesForPatient(patient)
    assert dicomDatabase.seriesForStudy(study) == [series[1]]
    assert dicomDatabase.patientForStudy(dicomDatabase.studyForSeries(series[1])) == patient
    assert dicomDatabase.nameForPatient(patient) == "Test^Generated"
    assert dicomDatabase.descriptionForSeries(series[1]) == "thin"
    assert dicomDatabase.fieldForSeries("Modality", series[1]) == "CT"


def test_tags_are_read_as_texts(dicomDatabase, series) -> None:
    from harness.storage.ctk_dicom_database import indexFolder

    indexFolder(dicomDatabase, series[0])
    uid = series[2][0]
    assert dicomDatabase.instanceValue(uid, "0008,103E") == "thin"
    assert dicomDatabase.instanceValue(uid, "0028,0030") == "0.5\\0.75"
    assert dicomDatabase.instanceValue(uid, "0010,0040") == ""
    assert dicomDatabase.fileValue(str(series[0] / "2.dcm"), "0020,0013") == "2"


def test_a_stored_file_is_a_copy(dicomDatabase, series) -> None:
    added = []
    dicomDatabase.connect("instanceAdded(QString)", added.append)
    dicomDatabase.insert(str(series[0] / "1.dcm"))
    stored = dicomDatabase.fileForInstance(series[2][0])
    assert stored.startswith(dicomDatabase.databaseDirectory)
    assert added == [series[2][0]]
    assert dicomDatabase.removeSeries(series[1])
    assert dicomDatabase.fileForInstance(series[2][0]) == ""


def test_what_is_unknown_is_empty(dicomDatabase) -> None:
    assert dicomDatabase.isOpen
    assert dicomDatabase.fileForInstance("1.2.3") == ""
    assert dicomDatabase.filesForSeries("1.2.3") == []
    assert dicomDatabase.instanceValue("1.2.3", "0008,103E") == ""


def test_sample_data_is_registered(slicerApp) -> None:
    from SampleData import SampleDataLogic

    SampleDataLogic.registerCustomSampleDataSource(
        category="Any", sampleName="Scan", uris="https://x/y", fileNames="y", nodeNames="Y"
    )
    assert SampleDataLogic.sourceForSampleName("Scan").uris == ["https://x/y"]
    with pytest.raises(TypeError, match="sampleDescriptio"):
        SampleDataLogic.registerCustomSampleDataSource(sampleDescriptio="wrong")
