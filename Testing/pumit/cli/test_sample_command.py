"""`pumit sample` makes what the other commands take, and leaves folders with something alone."""

import json
import re
import shlex

from pumit.volume import Volume


def test_a_scan_is_dicom_and_its_next_command_clicks_inside(run, tmp_path):
    ran = run("sample", "scan", tmp_path / "a scan")
    assert shlex.split(ran.out)[3] == str(tmp_path / "a scan")
    volume = Volume.read(tmp_path / "a scan")
    assert volume.source is not None
    point = re.search(r"--point=(\S+)", ran.out)
    index = volume.world_to_index(volume.to_lps([float(v) for v in point[1].split(",")], "RAS"))
    d, h, w = index.round().astype(int)
    assert 80 < volume.array[d, h, w] < 160  # liver


def test_a_labelled_set_is_read_as_one(run, tmp_path):
    ran = run("sample", "labelled", tmp_path / "set", "--count", 2)
    assert ran.out.startswith("Next: pumit plan ")
    lines = [json.loads(line) for line in run("data", tmp_path / "set", "--json").out.splitlines()]
    assert [row["case"] for row in lines[:-1]] == ["abdomen_01", "abdomen_02"]
    assert not any(row["problems"] for row in lines[:-1])
    one, two = (
        Volume.read(tmp_path / "set" / "imagesTr" / f"abdomen_0{i}_0000.nii.gz") for i in (1, 2)
    )
    assert (one.array != two.array).mean() > 0.5


def test_a_folder_with_something_in_it_is_left_alone(refused, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "scan.nii").touch()
    assert "not an empty folder" in refused("sample", "labelled", tmp_path / "mine")
    assert "at least 1" in refused("sample", "labelled", tmp_path / "new", "--count", "0")
