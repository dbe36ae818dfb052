"""`--statistics` and `--manifest` write figures and origin beside a result, without names."""

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from known_networks import PLAN, save_model
from pumit.export.companions import Companions, voxels_sha256
from pumit.export.dicom_series import write_dicom_series
from pumit.models.checkpoint import read_recipe
from pumit.volume import Volume
from pydicom import dcmread

PATIENT = "Doe^Jane"


@pytest.fixture
def model(known_networks: object, tmp_path: Path) -> Path:
    plan = {**PLAN, "intensity": {"method": "range", "source": [0, 100], "target": [0, 1]}}
    return save_model(tmp_path / "bright.safetensors", plan=plan)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("result", "stem"),
    [("a.nii.gz", "a"), ("a.b.seg.nrrd", "a.b"), ("a.rtstruct.dcm", "a"), ("A.DCM", "A")],
)
def test_companions_bear_the_name_of_their_result(tmp_path, result, stem):
    both = Companions("csv", has_manifest=True)
    assert both.statistics_path(tmp_path / result) == tmp_path / f"{stem}.statistics.csv"
    assert both.manifest_path(tmp_path / result) == tmp_path / f"{stem}.manifest.json"


@pytest.mark.usefixtures("bright")
def test_a_click_tells_figures_and_origin(run, scan, inside, tmp_path):
    series, folder = tmp_path / PATIENT, tmp_path / "out"
    folder.mkdir()
    volume = write_dicom_series(
        Volume.read(scan), series, patient_name=PATIENT, patient_id="Q-4711"
    )
    more = ["--terminology", "liver", "--name", PATIENT, "--statistics", "csv", "--manifest"]
    voxels = ["--voxel", "24,20,6", "--frame", "LPS"]
    left, posterior, superior = (float(v) for v in inside.split(","))
    lps = f"{-left},{-posterior},{superior}"
    run("segment", series, "--point", lps, *voxels, *more, "-o", folder / "a.rtstruct.dcm")
    assert sorted(p.name for p in folder.iterdir()) == [
        "a.manifest.json",
        "a.rtstruct.dcm",
        "a.statistics.csv",
    ]
    (row,) = list(csv.DictReader((folder / "a.statistics.csv").open(newline="")))
    assert row["code"] == "SCT:10200004"
    assert float(row["volume_mm3"]) == pytest.approx(int(row["voxels"]) * 3)
    text = (folder / "a.manifest.json").read_text()
    for name in ("Jane", "Q-4711", str(tmp_path), tmp_path.name, PATIENT):
        assert name not in text
    told = json.loads(text)
    assert told["format"] == "pumit-manifest-1"
    prompts = {key: told["options"][key] for key in ("point", "voxel", "frame", "answer")}
    assert prompts == {"point": [lps], "voxel": ["24,20,6"], "frame": "LPS", "answer": 1}
    assert told["device"] == "cpu"
    assert told["versions"]["pydicom"]
    assert told["result"]["sha256"] == sha256(folder / "a.rtstruct.dcm")
    assert told["result"]["segments"] == ["SCT:10200004"]
    assert told["input"]["series_instance_uid"] == volume.source.series_instance_uid
    uids = {str(dcmread(file).SOPInstanceUID) for file in volume.source.files}
    assert set(told["input"]["sop_instance_uids"]) == uids
    assert told["input"]["voxels_sha256"] == voxels_sha256(Volume.read(series))


@pytest.mark.slow
def test_many_scans_get_theirs_and_are_done_when_all_is_there(run, scan, model, tmp_path):
    scans, out = tmp_path / "scans", tmp_path / "out"
    scans.mkdir()
    for name in ("a", "b"):
        (scans / f"{name}.nii.gz").write_bytes(scan.read_bytes())
    run("predict", scans, "--model", model, "-o", out)
    beside = ["--statistics", "json", "--manifest"]
    run("predict", scans, "--model", model, "-o", out, *beside)
    for name in ("a", "b"):
        labels = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(out / f"{name}.nii.gz")))
        rows = json.loads((out / f"{name}.statistics.json").read_text())
        counts = np.unique(labels[labels > 0], return_counts=True)[1]
        assert [row["voxels"] for row in rows] == counts.tolist()
        told = json.loads((out / f"{name}.manifest.json").read_text())
        assert told["input"]["file_sha256"] == sha256(scans / f"{name}.nii.gz")
        assert told["result"]["sha256"] == sha256(out / f"{name}.nii.gz")
        assert told["model"]["name"] == "PUMIT bright"
        assert told["model"]["weights_sha256"] == read_recipe(model)[1]
        assert told["options"]["overlap"] == 0.75
        assert not [key for key in told["options"] if "model" in key]
    before = (out / "a.manifest.json").read_text()
    run("predict", scans, "--model", model, "-o", out, *beside)
    assert (out / "a.manifest.json").read_text() == before


def test_hash_of_voxels_tells_values_and_grid_apart():
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    plain = voxels_sha256(Volume(array))
    assert plain == voxels_sha256(Volume(array.astype(">i2")))
    assert plain == voxels_sha256(Volume(np.asfortranarray(array)))
    assert plain != voxels_sha256(Volume(array.astype(np.int32)))
    assert plain != voxels_sha256(Volume(array, (2.0, 1.0, 1.0)))
    assert plain != voxels_sha256(Volume(array[::-1]))


def test_a_scan_of_one_channel_has_figures_whatever_channel_others_use(run, scan, model, tmp_path):
    given = ["--channel", 1, "--statistics", "json", "--device", "cpu"]
    run("predict", scan, "--model", model, *given, "-o", tmp_path / "a.nii.gz")
    assert json.loads((tmp_path / "a.statistics.json").read_text())
