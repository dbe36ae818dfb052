"""A campaign on DICOM: found in trees, accepted as DICOM-SEG, and without who the patient is."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pydicom
import pytest
from pumit.campaign import Campaign, ScanEntry
from pumit.campaign.exporting import export
from pumit.errors import VolumeError
from pumit.export.dicom_series import write_dicom_series
from pumit.export.write import write_segmentation
from pumit.segmentation import Algorithm, Segment, Segmentation
from two_balls import make_scan


@pytest.fixture(scope="module")
def pacs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three series of two patients."""
    root = tmp_path_factory.mktemp("pacs")
    for number, patient in enumerate(("Doe", "Doe", "Roe")):
        volume, _ = make_scan(number)
        folder = root / f"case{number}" / "ct"
        folder.parent.mkdir(parents=True)
        write_dicom_series(volume, folder, patient_name=f"{patient}^J", patient_id=f"{patient}-77")
        for file in folder.iterdir():
            header = pydicom.dcmread(file)
            header.OtherPatientNames = f"{patient}^Second"
            header.PatientComments = header.StudyDescription = f"of {patient}"
            header.AdmittingDiagnosesDescription = f"{patient} fell"
            header.PhysiciansOfRecord = header.InstitutionName = f"{patient} and sons"
            header.OtherPatientIDsSequence = [pydicom.Dataset()]
            header.OtherPatientIDsSequence[0].PatientID = f"{patient}-78"
            header.save_as(file)
    return root


@pytest.fixture
def dicom_campaign(pacs: Path, tmp_path: Path) -> Campaign:
    """A campaign of them, in a folder of the test's own."""
    shutil.copytree(pacs, tmp_path / "pacs")
    return Campaign.create(tmp_path / "campaign", [tmp_path / "pacs"], ["outer", "inner"])


def truth(campaign: Campaign, scan: ScanEntry) -> Segmentation:
    _, labels = make_scan(int(scan.name.partition("/")[0][-1]))
    volume = campaign.volume(scan)
    segments = tuple(Segment(n, labels == i) for i, n in enumerate(("outer", "inner"), start=1))
    return Segmentation(volume, segments, Algorithm("PUMIT default", "1"))


def test_series_of_a_tree_are_scans_and_know_their_patients(dicom_campaign):
    scans = dicom_campaign.scans()
    assert [s.name for s in scans] == ["case0/ct", "case1/ct", "case2/ct"]
    assert all(s.series for s in scans)
    assert scans[0].patient == scans[1].patient != scans[2].patient


@pytest.mark.parametrize("is_earlier", [False, True])
def test_a_patient_number_cannot_be_tried_out_quickly(dicom_campaign, tmp_path, is_earlier):
    campaign = Campaign.create(tmp_path / "later", [], ["outer", "inner"])
    file = campaign.folder / "campaign.json"
    content = json.loads(file.read_text())
    if is_earlier:
        del content["patients"]
        file.write_text(json.dumps(content))
    for number in range(3):
        campaign = Campaign.open(campaign.folder)
        campaign.add_scans([tmp_path / "pacs" / f"case{number}"])
    marks = [scan.patient for scan in campaign.scans()]
    assert marks[0] == marks[1] != marks[2]
    fast = hashlib.sha256(f"{content['salt']} id Doe-77".encode()).hexdigest()
    assert fast.startswith(marks[0]) is is_earlier


def test_placeholders_are_no_patient(tmp_path):
    for number in range(3):
        volume, _ = make_scan(number)
        folder = tmp_path / "pacs" / f"case{number}" / "ct"
        folder.parent.mkdir(parents=True)
        write_dicom_series(volume, folder, patient_id="ANON")
    campaign = Campaign.create(tmp_path / "campaign", [tmp_path / "pacs"], ["outer"])
    assert len({s.patient for s in campaign.scans()}) == 3


def test_accepted_label_is_dicom_seg_and_tells_of_no_patient(dicom_campaign):
    scan = dicom_campaign.scans()[0]
    dicom_campaign.accept(scan, truth(dicom_campaign, scan), "Ada")
    seg = pydicom.dcmread(dicom_campaign.home(scan) / "label.dcm")
    assert seg.ContentCreatorName == "Ada"
    assert seg.ContentDate
    assert [s.SegmentLabel for s in seg.SegmentSequence] == ["outer", "inner"]
    assert seg.SegmentSequence[0].SegmentAlgorithmType == "SEMIAUTOMATIC"
    assert (seg.PatientName, seg.PatientID, seg.PatientIdentityRemoved) == ("", "", "YES")
    written = [f.read_bytes() for f in dicom_campaign.folder.rglob("*") if f.is_file()]
    assert not [content for content in written if b"Doe" in content or b"Roe" in content]


def test_an_exported_dicom_seg_has_the_names_of_today_and_of_the_patient(dicom_campaign, tmp_path):
    scan = dicom_campaign.scans()[0]
    scan = dicom_campaign.accept(scan, truth(dicom_campaign, scan), "Ada")
    dicom_campaign.rename_class("inner", "liver")
    export(dicom_campaign, "dicom", tmp_path / "e")
    seg = pydicom.dcmread(tmp_path / "e" / f"{scan.id}.dcm")
    assert [s.SegmentLabel for s in seg.SegmentSequence] == ["outer", "liver"]
    code = seg.SegmentSequence[1].SegmentedPropertyTypeCodeSequence[0]
    assert code.CodeMeaning == "Liver"
    assert seg.ContentCreatorName == "Ada"
    assert (seg.PatientName, seg.PatientID) == ("Doe^J", "Doe-77")
    assert f"{seg.ContentDate}{seg.ContentTime}" == re.sub(r"\D", "", scan.accepted_at)[:14]


def test_undone_and_empty_acceptances_leave_no_dicom_seg(dicom_campaign):
    scan = dicom_campaign.scans()[0]
    made = dicom_campaign.accept(scan, truth(dicom_campaign, scan))
    seg = dicom_campaign.home(scan) / "label.dcm"
    undone = dicom_campaign.undo_accept(made)
    assert not seg.exists()
    made = dicom_campaign.accept(undone, truth(dicom_campaign, scan))
    assert seg.exists()
    dicom_campaign.accept(made, None)
    assert not seg.exists()
    assert len(list((dicom_campaign.home(scan) / "previous").glob("*.dcm"))) == 2
    made = dicom_campaign.accept(scan.id, truth(dicom_campaign, scan))
    dicom_campaign.accept(made, None, completes=False)
    assert not seg.exists()


def test_a_label_is_accepted_although_no_dicom_object_can_reference_its_series(dicom_campaign):
    scan = dicom_campaign.scans()[0]
    for number, file in enumerate(scan.path.iterdir()):
        header = pydicom.dcmread(file)
        header.FrameOfReferenceUID = f"1.2.{number + 1}"  # as some programs make them anonymous
        header.save_as(file)
    drawn = truth(dicom_campaign, scan)
    write_segmentation(drawn, dicom_campaign.home(scan) / "prediction.seg.nrrd")
    made = dicom_campaign.accept(scan, drawn)
    assert (made.state, made.agreement) == ("accepted", 1.0)
    assert "several values of FrameOfReferenceUID" in dicom_campaign.problems[0]


def test_segmentation_of_another_series_is_not_accepted(dicom_campaign):
    first, second = dicom_campaign.scans()[:2]
    dicom_campaign.accept(first, truth(dicom_campaign, first))
    with pytest.raises(VolumeError, match="refers to another series"):
        dicom_campaign.accept(second, dicom_campaign.home(first) / "label.dcm")


def test_moved_series_is_found_by_its_identifier(dicom_campaign):
    scan = dicom_campaign.scans()[0]
    moved = scan.path.parents[1] / "elsewhere"
    scan.path.rename(moved)
    assert dicom_campaign.locate(scan) == (moved,)


def test_dicom_seg_beside_a_series_is_its_label(dicom_campaign, tmp_path, make_folder):
    scan = dicom_campaign.scans()[0]
    dicom_campaign.accept(scan, truth(dicom_campaign, scan))
    seg = scan.path.parent / "seg.dcm"
    seg.write_bytes((dicom_campaign.home(scan) / "label.dcm").read_bytes())
    again = Campaign.create(tmp_path / "again", [tmp_path / "pacs"])
    assert [c.name for c in again.classes] == ["outer", "inner"]
    assert sum(s.state == "labelled" for s in again.scans()) == 1
    assert len(again.scans()) == 3


def test_a_labelled_series_hides_none_of_its_folder(dicom_campaign, tmp_path):
    scan, other, _ = dicom_campaign.scans()
    dicom_campaign.accept(scan, truth(dicom_campaign, scan))
    (scan.path / "seg.dcm").write_bytes((dicom_campaign.home(scan) / "label.dcm").read_bytes())
    for number, file in enumerate(sorted(other.path.iterdir())):
        file.rename(scan.path / f"other{number}.dcm")
    again = Campaign.create(tmp_path / "again", [tmp_path / "pacs"])
    assert sorted(s.state for s in again.scans()) == ["labelled", "open", "open"]


def test_no_dicom_seg_of_another_campaign_is_a_label(dicom_campaign, tmp_path):
    inside = Campaign.create(tmp_path / "pacs" / "c", [tmp_path / "pacs"], ["outer", "inner"])
    scan = inside.scans()[0]
    inside.undo_accept(inside.accept(scan, truth(dicom_campaign, dicom_campaign.scans()[0])))
    other = Campaign.create(tmp_path / "other", [tmp_path / "pacs"])
    assert [s.state for s in other.scans()] == ["open"] * 3
