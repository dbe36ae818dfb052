"""`pumit evaluate` reports Dice on generated cases."""

import json
import shutil
from pathlib import Path

import pytest
import SimpleITK


@pytest.fixture
def cases(scan: Path, tmp_path: Path) -> Path:
    """Two cases with a label map, and a folder that is none."""
    image = SimpleITK.ReadImage(str(scan))
    for name in ("case_a", "case_b"):
        folder = tmp_path / "cases" / name
        folder.mkdir(parents=True)
        shutil.copy(scan, folder / "image.nii.gz")
        SimpleITK.WriteImage(image > 50, str(folder / "label.nii.gz"))
    (tmp_path / "cases" / "notes").mkdir()
    return tmp_path / "cases"


@pytest.mark.usefixtures("bright")
def test_rows_and_means_are_written(run, cases, tmp_path):
    out = tmp_path / "result.json"
    run("evaluate", cases, "--clicks", "2", "-o", out)
    result = json.loads(out.read_text())
    assert [row["case"] for row in result["rows"]] == ["case_a", "case_b"]
    assert result["mean"]["cases"] == 2
    assert result["mean"]["dice@2"] > 0.9
    assert result["mean"]["nsd@2"] > 0.9
    assert list(result["groups"]) == ["case_a", "case_b"]
    # As JSON lines: rows, and then means.
    ran = run("evaluate", cases, "--clicks", "1", "--only", "_b", "--json")
    row, mean = map(json.loads, ran.out.splitlines())
    assert row["case"] == "case_b"
    assert mean["mean"]["cases"] == 1


@pytest.mark.usefixtures("bright")
def test_tables_name_groups_sizes_and_the_worst(run, cases, tmp_path):
    out = tmp_path / "result.md"
    ran = run("evaluate", cases, "--gestures", "--worst", "1", "-o", out)
    assert out.read_text() == ran.out
    heads = [line for line in ran.out.splitlines() if line.startswith("| Dice after clicks |")]
    assert heads == [
        "| Dice after clicks | cases | targets | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 "
        "| mean of 5 |"
    ]
    for words in ("**all**", "medium", "lasso", "loose box", "clicks to 0.85", "clicks that harm"):
        assert words in ran.out
    assert ran.out.count("| case_a | 1 | 2347 |") + ran.out.count("| case_b | 1 | 2347 |") == 1


@pytest.mark.usefixtures("bright")
def test_the_worst_are_drawn(run, refused, cases, tmp_path):
    folder = tmp_path / "new" / "pictures"
    run("evaluate", cases, "--clicks", "1", "--worst", "1", "--pictures", folder)
    (picture,) = folder.iterdir()
    assert picture.name.startswith("01_case_")
    assert picture.read_bytes().startswith(b"\x89PNG")
    label = cases / "case_a" / "label.nii.gz"
    assert "folder" in refused("evaluate", cases, "--pictures", label)
    assert "--nsd" in refused("evaluate", cases, "--nsd", "-1")
    assert "--nsd" in refused("evaluate", cases, "--nsd", "nan")


@pytest.mark.usefixtures("bright")
def test_bad_cases_are_one_line(refused, cases, tmp_path, monkeypatch):
    assert "no folder 'none'" in refused("evaluate", tmp_path / "none")
    assert "no folder 'image.nii.gz'" in refused("evaluate", cases / "case_a" / "image.nii.gz")
    assert "No case found" in refused("evaluate", cases, "--only", "nonsense")

    def forbidden(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", forbidden)
        assert "cannot be read: Permission denied" in refused("evaluate", cases)
    assert "does not exist" in refused("evaluate", cases, "-o", tmp_path / "none" / "x.json")
    label = cases / "case_a" / "label.nii.gz"
    SimpleITK.WriteImage(SimpleITK.ReadImage(str(label))[1:], str(label))
    assert "grid" in refused("evaluate", cases, "--only", "case_a", "-o", tmp_path / "x.json")


@pytest.mark.usefixtures("bright")
@pytest.mark.parametrize("fault", ["label of another grid", "no image"])
def test_a_bad_case_does_not_cost_the_others(run, cases, tmp_path, fault):
    folder, out = cases / "case_a", tmp_path / "x.json"
    if fault == "no image":
        (folder / "image.nii.gz").unlink()
    else:
        label = folder / "label.nii.gz"
        SimpleITK.WriteImage(SimpleITK.ReadImage(str(label))[1:], str(label))
    ran = run("evaluate", cases, "--clicks", "1", "-o", out, status=2)
    assert "1 of 2 cases failed, first: case_a: " in ran.err
    result = json.loads(out.read_text())
    assert [row["case"] for row in result["rows"]] == ["case_b"]
    assert list(result["failed"]) == ["case_a"]


@pytest.mark.usefixtures("bright")
def test_cases_without_a_large_target_are_one_line(refused, cases):
    for name in ("case_a", "case_b"):
        label = cases / name / "label.nii.gz"
        SimpleITK.WriteImage(SimpleITK.ReadImage(str(label)) * 0, str(label))
    assert "No case has a target" in refused("evaluate", cases)


def test_a_report_replaces_no_scan(refused, cases):
    scan = cases / "case_a" / "image.nii.gz"
    label = cases / "case_a" / "label.nii.gz"
    before = scan.read_bytes()
    pair = ("--predictions", label, "--labels", label)
    for given in ((cases,), pair):
        assert "called like a scan" in refused("evaluate", *given, "-o", scan)
    assert scan.read_bytes() == before
