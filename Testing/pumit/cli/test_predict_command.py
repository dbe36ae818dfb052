"""`pumit predict` labels one scan or many, and refuses in one line what it cannot do."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from known_networks import PLAN, save_model
from pumit.inference.automatic.segmentation import AutomaticSegmenter
from pumit.inference.interactive.session import InteractiveSession

pytestmark = pytest.mark.usefixtures("known_networks")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    plan = {**PLAN, "intensity": {"method": "range", "source": [0, 100], "target": [0, 1]}}
    return save_model(folder / "bright.safetensors", plan=plan)


def test_a_scan_is_labelled_on_its_own_grid(run, scan, model):
    out = scan.with_name("labels.nii.gz")
    ran = run("predict", scan, "--model", model, "-o", out, "--json")
    image, labels = SimpleITK.ReadImage(str(scan)), SimpleITK.ReadImage(str(out))
    np.testing.assert_allclose(labels.GetOrigin(), image.GetOrigin(), atol=1e-4)
    np.testing.assert_allclose(labels.GetDirection(), image.GetDirection(), atol=1e-5)
    voxels = SimpleITK.GetArrayFromImage(labels)
    ball = SimpleITK.GetArrayFromImage(image) > 50
    assert np.mean((voxels == 2) == ball) > 0.97
    (row,) = json.loads(ran.out)
    printed = {found["label"]: found["voxels"] for found in row["classes"]}
    assert printed == {v: int((voxels == v).sum()) for v in (1, 2)}
    assert row["model"] == "PUMIT bright"


def test_a_box_limits_the_answer(run, scan, model, inside):
    out = scan.with_name("labels.nrrd")
    r, a, s = map(float, inside.split(","))
    box = f"{r - 5},{a - 5},{s - 5},{r + 5},{a + 5},{s + 5}"
    run("predict", scan, "--model", model, "-o", out, "--box", box)
    voxels = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(out)))
    assert 250 < (voxels > 0).sum() < 350  # three slices of 10 x 10 mm
    assert voxels[6, 20, 24] == 2


def test_a_scan_without_a_series_is_refused_as_dicom_before_the_work(
    refused, scan, model, inside, monkeypatch
):
    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("predicted first")

    monkeypatch.setattr(AutomaticSegmenter, "segment", work)
    monkeypatch.setattr(InteractiveSession, "set_volume", work)
    for name in ("out.dcm", "out.rtstruct.dcm"):
        out = scan.with_name(name)
        words = "reference a DICOM series, and this image has none"
        assert words in refused("predict", scan, "--model", model, "-o", out)
        assert words in refused("segment", scan, f"--point={inside}", "-o", out)


def test_a_folder_of_scans_becomes_a_folder_of_labels(run, scan, model, tmp_path):
    folder, out = tmp_path / "scans", tmp_path / "results"
    folder.mkdir()
    for name in ("b.nii.gz", "a.nii.gz"):
        (folder / name).write_bytes(scan.read_bytes())
    (folder / "notes.txt").write_text("not a scan")
    ran = run("predict", folder, "--model", model, "-o", out, "--format", "nrrd")
    assert {p.name for p in out.iterdir()} == {"a.nrrd", "b.nrrd", "report.csv", ".predict.lock"}
    assert [line.split(":")[0] for line in ran.out.splitlines()] == ["a.nii.gz", "b.nii.gz"]
    for line in ran.out.splitlines():
        assert Path(line.partition(" -> ")[2]).is_file(), line


def test_a_scan_that_may_not_suit_the_model_is_told(run, scan, tmp_path):
    plan = {**PLAN, "intensity": {"method": "range", "source": [0, 100], "target": [0, 1]}}
    model = save_model(tmp_path / "m.safetensors", plan=plan, expected_dice=[2.0, 2.0])
    folder, out = tmp_path / "scans", tmp_path / "results"
    folder.mkdir()
    (folder / "a.nii.gz").write_bytes(scan.read_bytes())
    ran = run("predict", folder, "--model", model, "-o", out)
    assert "a.nii.gz: m is less certain" in ran.err
    assert "m is less certain" in (out / "report.csv").read_text()


def test_one_bad_scan_of_many_costs_no_other(run, scan, model, tmp_path):
    bad, out = tmp_path / "bad.nii.gz", tmp_path / "results"
    bad.write_bytes(b"nothing")
    ran = run("predict", bad, scan, "--model", model, "-o", out, status=2)
    assert ran.err.count("\n") == 1
    assert "1 of 2 images" in ran.err
    assert [p.name for p in out.glob("*.nii.gz")] == ["scan.nii.gz"]


def test_a_scan_without_any_class_gives_an_empty_label_map(run, scan, tmp_path):
    plan = {**PLAN, "intensity": {"method": "range", "source": [1e4, 2e4], "target": [0, 1]}}
    dark = save_model(tmp_path / "dark.safetensors", plan=plan)
    out = tmp_path / "out.nii.gz"
    ran = run("predict", scan, "--model", dark, "-o", out)
    assert "nothing found" in ran.out
    assert not SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(out))).any()


def test_a_scan_without_any_class_is_done_in_formats_that_hold_no_empty_result(
    run, refused, scan, tmp_path, monkeypatch
):
    plan = {**PLAN, "intensity": {"method": "range", "source": [1e4, 2e4], "target": [0, 1]}}
    dark = save_model(tmp_path / "dark.safetensors", plan=plan)
    folder, out = tmp_path / "scans", tmp_path / "results"
    folder.mkdir()
    image = folder / "a.nii.gz"
    image.write_bytes(scan.read_bytes())
    command = ("predict", folder, "--model", dark, "-o", out, "--format", "seg.nrrd")
    assert run(*command).out == "a.nii.gz: nothing found\n"
    with (out / "report.csv").open() as handle:
        row = next(csv.DictReader(handle))
    assert (row["state"], row["result"], row["structures"]) == ("done", "", "")

    segment = AutomaticSegmenter.segment
    worked = []
    monkeypatch.setattr(
        AutomaticSegmenter, "segment", lambda *a, **k: worked.append(1) or segment(*a, **k)
    )
    for _ in range(2):
        assert run(*command).out == "a.nii.gz: nothing found\n"
    assert not worked
    run(*command[:-1], ".nii.gz")  # which holds an empty result
    assert (out / "a.nii.gz").is_file()
    (out / "a.nii.gz").unlink()
    (out / "a.seg.nrrd").write_bytes(b"of before")
    ran = run(*command, "--again")
    assert "kept as previous/a.seg.nrrd" in ran.err
    assert not (out / "a.seg.nrrd").exists()
    os.utime(image, (1, 1))  # another scan of that name
    worked.clear()
    assert run(*command).out == "a.nii.gz: nothing found\n"
    assert worked
    words = refused("predict", scan, "--model", dark, "-o", tmp_path / "one.seg.nrrd")
    assert "finds nothing in this scan" in words


def test_bad_input_ends_in_one_line(refused, scan, model, tmp_path, tiny_network):
    out = tmp_path / "out.nii.gz"
    assert "Name a model" in refused("predict", scan)
    assert "with -o" in refused("predict", scan, "--model", model)
    assert "Unknown model" in refused("predict", scan, "--model", "nobody", "-o", out)
    assert "no file or folder" in refused("predict", "gone.nii.gz", "--model", model, "-o", out)
    assert "Unknown output" in refused("predict", scan, "--model", model, "-o", tmp_path / "x.gif")
    assert "give a folder" in refused("predict", scan, scan, "--model", model, "-o", out)
    assert "6 numbers" in refused("predict", scan, "--model", model, "-o", out, "--box", "1,2")
    assert "overlap" in refused("predict", scan, "--model", model, "-o", out, "--overlap", "1")
    far = "900,900,900,950,950,950"
    assert "outside" in refused("predict", scan, "--model", model, "-o", out, "--box", far)
    assert "written as" in refused("predict", scan, scan, "--model", model, "-o", tmp_path / "many")
    assert "own image" in refused(
        "predict", scan, scan.parent / "weights", "--model", model, "-o", scan.parent
    )
    assert "give another name" in refused("predict", scan, "--model", model, "-o", scan)


def test_links_keep_their_names_and_an_output_beside_the_folder_is_taken(
    run, scan, model, tmp_path, monkeypatch
):
    folder, there = tmp_path / "scans", tmp_path / "there"
    folder.mkdir()
    there.mkdir()
    for name in ("a.nii.gz", "b.nii.gz"):
        (folder / name).symlink_to(scan)
    (tmp_path / "link").symlink_to(there, target_is_directory=True)
    monkeypatch.chdir(folder)
    for out in ("../labels", str(tmp_path / "link")):
        ran = run("predict", folder, "--model", model, "-o", out, "--json")
        assert [row["image"] for row in json.loads(ran.out)] == ["a.nii.gz", "b.nii.gz"]
    assert sorted(p.name for p in there.glob("*.nii.gz")) == ["a.nii.gz", "b.nii.gz"]
