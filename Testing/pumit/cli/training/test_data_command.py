"""`pumit data` prints a table or JSON lines; only what cannot be inspected fails."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from labelled_scans import write_pairs
from PIL import Image


def test_table_names_problems_below_their_case(run, tmp_path):
    write_pairs(tmp_path, 3)
    (tmp_path / "images" / "case_1.nii.gz").write_bytes(b"nothing")
    ran = run("data", tmp_path)
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert lines[1].startswith("case_0  14 x 30 x 28     2 x 1 x 1             1   class 1 425")
    assert lines[3].strip().startswith("! ")
    assert "labels: labels/{case}.*; 2 of 3 cases" in ran.out
    assert str(tmp_path) not in ran.out


def test_a_photograph_has_no_distance_of_slices(run, tmp_path):
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
        pixels = np.zeros((6, 8), np.uint8)
        pixels[2:4, 2:5] = 1
        Image.fromarray(pixels).save(tmp_path / name / "mole.png")
    assert "1 x 6 x 8        1 x 1     " in run("data", tmp_path).out


def test_json_has_a_line_a_case_and_a_summary(run, tmp_path):
    write_pairs(tmp_path / "set", 2)
    recipe = {"data": {"folder": "set", "classes": [{"name": "ball", "value": 1}, "box"]}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe))
    pictures = tmp_path / "new" / "pictures"
    ran = run("data", tmp_path / "mine.yaml", "--json", "--thumbnails", pictures)
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [row.get("case") for row in rows] == ["case_0", "case_1", None]
    assert rows[0]["spacing_mm"] == [2.0, 1.0, 1.0]
    assert Path(rows[1]["thumbnail"]).is_file()
    summary = rows[2]["summary"]
    assert (summary["cases"], summary["usable"]) == (2, 2)
    assert [row["name"] for row in summary["classes"]] == ["ball", "box"]


def test_patterns_can_be_given(run, tmp_path):
    write_pairs(tmp_path, 1)
    (tmp_path / "labels").rename(tmp_path / "drawn by hand")
    ran = run("data", tmp_path, "--labels", "drawn by hand/{case}.*", "--json")
    assert json.loads(ran.out.splitlines()[0])["case"] == "case_0"


def test_what_cannot_be_inspected_is_one_line(run, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.yaml").write_text("data: {foldr: x}")
    (tmp_path / "b.yaml").write_text("network: x")
    (tmp_path / "file").touch()
    for source, message in (
        ("gone", "no folder or recipe 'gone'"),
        ("empty", "(--images and --labels of pumit data; in a recipe data.images and data.labels)"),
        ("a.yaml", "did you mean 'folder'?"),
        ("b.yaml", "needs data"),
    ):
        ran = run("data", tmp_path / source, status=2)
        assert ran.out == ""
        assert len(ran.err.splitlines()) == 1
        assert message in ran.err
    ran = run("data", tmp_path, "--thumbnails", tmp_path / "file", status=2)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_data_set_of_which_nothing_can_be_used_fails(run, tmp_path, form):
    """The table is printed in full; a script learns it from the exit status."""
    write_pairs(tmp_path, 2)
    for file in (tmp_path / "images").iterdir():
        file.write_bytes(b"nothing")
    ran = run("data", tmp_path, *form, status=2)
    assert "case_1" in ran.out
    assert len(ran.err.splitlines()) == 1
    assert "None of 2 cases can be used" in ran.err
    shutil.rmtree(tmp_path / "labels")
    ran = run("data", tmp_path, *form, status=2)
    assert "No scan has labels" in ran.err


def test_a_classification_without_a_readable_scan_fails(run, tmp_path):
    for kind in ("benign", "malignant"):
        (tmp_path / kind).mkdir()
        for number in range(4):
            (tmp_path / kind / f"{kind}{number}.nii.gz").write_bytes(b"nothing")
    for form in ((), ("--json",)):
        ran = run("data", tmp_path, "--goal", "classification", *form, status=2)
        assert "benign" in ran.out
        assert len(ran.err.splitlines()) == 1
        assert "None of 8 scans can be used" in ran.err
