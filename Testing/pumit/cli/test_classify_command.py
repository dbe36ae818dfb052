"""`pumit predict` with a classifier answers with a line per scan, and a table on request."""

import csv
import json
from pathlib import Path

import pytest
from generated_scans import write_stack
from made_classifier import save


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Says sick with a probability of 0.881, whatever the scan."""
    (tmp_path / "weights").mkdir()
    return save(tmp_path / "weights", bias=(0.0, 2.0))


def test_a_scan_gets_a_line(run, scan, model, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    ran = run("predict", scan, "--model", model)
    assert ran.out == "scan.nii.gz: sick (88.1%), healthy (11.9%)\n"
    assert sorted(tmp_path.rglob("*")) == before


def test_scans_become_rows_of_a_table_or_json(run, scan, model, tmp_path):
    folder, out = tmp_path / "scans", tmp_path / "answers.csv"
    folder.mkdir()
    for name in ("b.nii.gz", "a.nii.gz"):
        (folder / name).write_bytes(scan.read_bytes())
    run("predict", folder, "--model", model, "-o", out)
    with out.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["image"], row["class"]) for row in rows] == [
        ("a.nii.gz", "sick"),
        ("b.nii.gz", "sick"),
    ]
    assert float(rows[0]["healthy"]) == pytest.approx(0.119, abs=2e-3)
    ran = run("predict", scan, "--model", model, "-o", tmp_path / "answers.json", "--json")
    (row,) = json.loads(ran.out)
    assert row == json.loads((tmp_path / "answers.json").read_text())[0]
    assert row["class"] == "sick"
    assert sum(row["probabilities"].values()) == pytest.approx(1)


def test_scans_of_one_name_and_series_of_one_folder_are_told_apart(run, scan, model, tmp_path):
    for patient in ("p1", "p2"):
        (tmp_path / "set" / patient).mkdir(parents=True)
        (tmp_path / "set" / patient / "image.nii.gz").write_bytes(scan.read_bytes())
    for series in ("1.2.3", "1.2.4"):
        positions = [(0.0, 0.0, float(z)) for z in range(3)]
        write_stack(tmp_path / "set" / "p3", positions, prefix=series, series=series)
    rows = json.loads(run("predict", tmp_path / "set", "--model", model, "--json").out)
    names = [Path(row["image"]).relative_to(tmp_path / "set").as_posix() for row in rows]
    assert names == ["p1/image.nii.gz", "p2/image.nii.gz", "p3#1.2.3", "p3#1.2.4"]
    assert {row["class"] for row in rows} == {"sick"}


def test_one_bad_scan_of_many_costs_no_other(run, scan, model, tmp_path):
    bad, out = tmp_path / "bad.nii.gz", tmp_path / "answers.csv"
    bad.write_bytes(b"nothing")
    ran = run("predict", bad, scan, "--model", model, "-o", out, status=2)
    assert ran.err.count("\n") == 1
    assert "1 of 2 images" in ran.err
    with out.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert rows[0]["error"]
    assert (rows[1]["class"], rows[1]["error"]) == ("sick", "")


def test_bad_input_ends_in_one_line(refused, scan, model, tmp_path, tiny_checkpoint):
    assert ".csv or .json" in refused("predict", scan, "--model", model, "-o", "labels.nii.gz")
    assert ".csv or .json" in refused("predict", scan, "--model", model, "-o", tmp_path)
    gone = tmp_path / "absent" / "a.csv"
    assert "does not exist" in refused("predict", scan, "--model", model, "-o", gone)
    missing = tmp_path / "missing.nii.gz"
    out = tmp_path / "a.csv"
    assert "missing.nii.gz" in refused("predict", missing, "--model", model, "-o", out)
    assert "folder with -o" in refused("predict", scan, "--model", tiny_checkpoint)


@pytest.mark.parametrize("option", ["--channel-files", "--channel=1", "--flips", "--manifest"])
def test_an_option_that_would_change_nothing_is_refused(refused, scan, model, option):
    name = option.partition("=")[0]
    assert f"{name} is not for a classifier" in refused("predict", scan, "--model", model, option)
