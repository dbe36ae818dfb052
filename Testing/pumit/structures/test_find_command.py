"""`pumit segment --find` and `pumit models structures`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from own_models import ABDOMEN, KIDNEYS, RESTRICTED, add_model, ship_model, two_balls
from pumit.cli.main import main
from pumit.export.volume_file import write_volume_file
from pumit.structures import find as finding


@pytest.fixture
def scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(finding, "unfamiliar", lambda *_a, **_k: "")
    write_volume_file(two_balls().array, two_balls(), tmp_path / "scan.nii.gz")
    return tmp_path / "scan.nii.gz"


def voxels_of(path: Path) -> Any:
    return SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(path)))


def test_a_structure_is_written_by_its_name(scan, tmp_path, capfd):
    add_model(tmp_path / "w", "organs", KIDNEYS)
    out = tmp_path / "out.nii.gz"
    assert main(["segment", str(scan), "--find", "left kidney", "-o", str(out), "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert (printed["model"], printed["segment"]) == ("organs", "Left kidney")
    assert printed["voxels"] == np.count_nonzero(voxels_of(out))
    assert voxels_of(out)[5, 15, 15]
    everything = tmp_path / "all.seg.nrrd"
    assert main(["segment", str(scan), "--find", "everything", "-o", str(everything)]) == 0
    header = everything.read_bytes()[:4000].decode("latin-1")
    assert "24028007^Right" in header
    assert "SegmentAlgorithmType:AUTOMATIC" in header  # no clicks


def test_a_point_corrects_what_was_found(scan, tmp_path, tiny_checkpoint, capfd):
    add_model(tmp_path / "w", "organs", KIDNEYS)
    x, y, z = two_balls().index_to_world((10, 42, 44))
    arguments = [
        "--find",
        "left kidney",
        "--point",
        f"{-x},{-y},{z}",
        "-o",
        str(tmp_path / "o.dcm"),
    ]
    out = str(tmp_path / "o.nrrd")
    image = SimpleITK.ReadImage(str(scan))
    SimpleITK.WriteImage(SimpleITK.JoinSeries([image, image]), str(scan))
    assert main(["segment", str(scan), *arguments[:-1], out, "--model", str(tiny_checkpoint)]) == 0
    printed = capfd.readouterr()
    assert "Kidney: " in printed.out  # coded as what was requested
    assert "a model of one takes the first" in printed.err


def test_every_structure_is_listed_with_its_model_and_licence(tmp_path, own_index, capfd):
    ship_model(own_index, "shut-ct", KIDNEYS, RESTRICTED)
    add_model(tmp_path / "w", "organs", ABDOMEN)
    assert main(["models", "structures"]) == 0
    lines = capfd.readouterr().out.splitlines()
    shut = [line for line in lines if "pumit models accept shut-ct" in line]
    mine = [line for line in lines if line.split()[-1] == "organs"]
    assert (len(shut), len(mine)) == (2, 2)
    assert "SCT:10200004" in mine[0]
    assert main(["models", "structures", "organs", "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)
    assert [row["name"] for row in rows] == ["Leber", "my own thing"]


def test_several_names_run_a_model_once(scan, tmp_path, monkeypatch, capfd):
    from pumit.structures.find import run_search

    add_model(tmp_path / "w", "organs", KIDNEYS)
    runs: list[str] = []

    def counted(volume: Any, search: Any, *args: Any, **options: Any) -> Any:
        runs.append(search.requested.text)
        return run_search(volume, search, *args, **options)

    monkeypatch.setattr(finding, "run_search", counted)
    out = tmp_path / "both.seg.nrrd"
    names = "right kidney, left kidney"
    given = ["--find", names, "--name", "mass", "--terminology", "tumour"]
    assert main(["segment", str(scan), *given, "-o", str(out)]) == 0
    assert "keep their own names" in capfd.readouterr().err
    assert runs == [names]
    header = out.read_bytes()[:4000].decode("latin-1")
    assert header.index("Name:=Right kidney") < header.index("Name:=Left kidney")


def test_structures_of_two_models_are_written_together(scan, tmp_path, capfd):
    add_model(tmp_path / "w", "organs", KIDNEYS)
    add_model(tmp_path / "w", "others", ABDOMEN)
    out = tmp_path / "both.seg.nrrd"
    names = "left kidney, my own thing"
    assert main(["segment", str(scan), "--find", names, "-o", str(out), "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert (printed["model"], printed["segment"]) == (
        "organs and others",
        "Left kidney, My own thing",
    )
    assert len(printed["weights_sha256"].split(" and ")) == 2


def test_a_scan_that_does_not_say_what_it_is_gets_no_model_by_guess(scan, tmp_path, capfd):
    for name in ("organs-ct", "organs-mr"):
        add_model(tmp_path / "w", name, KIDNEYS)
    out = tmp_path / "out.nii.gz"
    arguments = ["segment", str(scan), "--find", "left kidney", "-o", str(out)]
    assert main(arguments) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "is it CT or MR? Add --modality" in error
    assert not out.exists()
    assert main([*arguments, "--modality", "CT", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["model"] == "organs-ct"
    arguments = ["predict", str(scan), "--find", "left kidney", "-o", str(tmp_path / "many.nii.gz")]
    assert main(arguments) == 2
    assert "is it CT or MR? Name the model with --model" in capfd.readouterr().err
    assert main([*arguments, "--model", "organs-ct"]) == 0


def test_nothing_unfamiliar_is_written_without_a_word(scan, tmp_path, capfd, monkeypatch):
    add_model(tmp_path / "w", "organs", KIDNEYS)
    monkeypatch.setattr(finding, "unfamiliar", lambda *_a, **_k: "Unfamiliar (3 %): it is noise.")
    out = tmp_path / "out.nii.gz"
    arguments = ["segment", str(scan), "--find", "left kidney", "-o", str(out)]
    assert main(arguments) == 2
    assert "add --anyway" in capfd.readouterr().err
    assert not out.exists()
    many = ["predict", str(scan), "--find", "left kidney", "-o", str(tmp_path / "many.nii.gz")]
    assert main(many) == 2
    assert "Add --anyway" in capfd.readouterr().err
    assert main([*arguments, "--anyway"]) == 0


def test_a_structure_that_is_not_there_is_told_and_leaves_its_value_free(tmp_path, capfd, scan):
    add_model(tmp_path / "w", "organs", KIDNEYS)
    volume = two_balls()
    left = np.where(volume.array > 30, 0, volume.array)
    left[10:12, 40:45, 42:47] = 90  # only the right one
    write_volume_file(left, volume, scan)
    out = tmp_path / "out.nii.gz"
    find = ["segment", str(scan), "--find", "kidneys", "-o", str(out), "--json", "--manifest"]
    assert main(find) == 0
    printed = capfd.readouterr()
    assert "Not found: Left kidney." in printed.err
    assert json.loads(printed.out)["segment"] == "Right kidney"
    assert set(np.unique(voxels_of(out))) == {0, 2}
    assert main([*find[:4], "-o", str(tmp_path / "out.seg.nrrd")]) == 0
    assert "24028007^Right" in (tmp_path / "out.seg.nrrd").read_bytes()[:4000].decode("latin-1")
