"""Scans are found in files, folders, lists and DICOM trees."""

from pathlib import Path

import numpy as np
import pytest
from generated_scans import touch
from pumit.batch.run import check_targets
from pumit.batch.task import BatchSettings, ScanTask
from pumit.errors import ExportError, VolumeError
from pumit.export.dicom_series import write_dicom_series
from pumit.io.scans import Scan, find_scans
from pumit.volume import Volume


def write_series(folder: Path, seed: int = 0) -> str:
    noise = np.random.default_rng(seed).integers(0, 100, (3, 8, 8)).astype(np.int16)
    folder.parent.mkdir(parents=True, exist_ok=True)
    volume = write_dicom_series(Volume(noise), folder, patient_id="X")
    return volume.source.series_instance_uid


def names(*paths: Path) -> list[str]:
    return [scan.name for scan in find_scans(paths)]


def test_a_folder_gives_its_files_and_nothing_else(tmp_path):
    # macOS writes hidden files onto other disks, ._NAME beside each file.
    touch(tmp_path, "b.nii.gz", "a.nrrd", "notes.md", "._a.nrrd", ".DS_Store", "._b.png")
    assert names(tmp_path) == ["a", "b"]


def test_a_list_names_paths_next_to_it_and_may_name_results(tmp_path):
    lines = "# scans\n\nsub/a.nii.gz\nsub/a.nii.gz\tsecond\n"
    (tmp_path / "list.txt").write_text(lines)
    scans = find_scans([tmp_path / "list.txt"])
    assert [scan.name for scan in scans] == ["a", "second"]
    assert scans[0].path == tmp_path / "sub" / "a.nii.gz"
    (tmp_path / "list.txt").write_text("# nothing\n")
    with pytest.raises(VolumeError, match="is empty"):
        find_scans([tmp_path / "list.txt"])


def test_a_tree_gives_each_series_by_its_folder(tmp_path):
    write_series(tmp_path / "p1" / "ct", 1)
    first = write_series(tmp_path / "p2" / "both", 2)
    write_series(tmp_path / "other", 3)
    for file in (tmp_path / "other").iterdir():
        file.rename(tmp_path / "p2" / "both" / f"x{file.name}")
    (tmp_path / "p3").mkdir()
    (tmp_path / "p3" / "t1.nii.gz").write_bytes(b"")
    scans = find_scans([tmp_path])
    assert [scan.name for scan in scans][:2] == ["p3/t1", "p1/ct"]
    (scan,) = find_scans([tmp_path / "p1" / "ct"])
    assert (scan.name, scan.path) == ("ct", tmp_path / "p1" / "ct")
    assert {scan.name.rpartition("/")[0] for scan in scans[2:]} == {"p2/both"}
    assert first in {scan.series for scan in scans[2:]}
    assert all(Volume.read(s.path, series=s.series).shape == (3, 8, 8) for s in scans[1:])


def test_a_damaged_slice_is_a_scan_that_fails(tmp_path):
    write_series(tmp_path / "good")
    write_series(tmp_path / "bad", 1)
    for file in (tmp_path / "bad").iterdir():
        file.write_bytes(b"\0" * 128 + b"DICM" + b"nonsense")
    scans = {scan.name: scan for scan in find_scans([tmp_path])}
    assert set(scans) == {"good", "bad/damaged"}
    with pytest.raises(VolumeError):
        Volume.read(scans["bad/damaged"].path)


def test_two_scans_of_one_name_are_refused_before_any_work(tmp_path):
    tasks = [
        ScanTask(
            Scan(tmp_path / folder / "t1.nii.gz", name), tmp_path / f"{name}.nrrd", BatchSettings()
        )
        for folder, name in (("p1", "t1"), ("p2", "T1"))
    ]
    with pytest.raises(ExportError, match=r"p1/t1\.nii\.gz and p2/t1\.nii\.gz"):
        check_targets(tasks)


def test_dicom_beside_other_files_is_found(tmp_path, caplog):
    """As discs bring a logo in the folder of their images, or above it."""
    write_series(tmp_path / "disc" / "IMAGES")
    touch(tmp_path / "disc", "logo.png", "IMAGES/logo.jpg")
    for folder in (tmp_path / "disc", tmp_path / "disc" / "IMAGES"):
        (scan,) = find_scans([folder])
        assert Volume.read(scan.path, series=scan.series).shape == (3, 8, 8)
        assert "pictures next to other scans" in caplog.text
        caplog.clear()
    write_series(tmp_path / "disc" / "SECOND", 1)
    assert names(tmp_path / "disc") == ["IMAGES", "SECOND"]
    touch(tmp_path / "disc" / "IMAGES", "t1.nii.gz")
    assert names(tmp_path / "disc" / "IMAGES") == ["t1", "IMAGES"]


def test_what_a_scene_holds_but_scans_is_passed_over(tmp_path, caplog):
    touch(
        tmp_path / "scene",
        "scene.mrml",
        "Scene.png",
        "CT.nrrd",
        "Segmentation.seg.nrrd",
        "CT-label.nrrd",
        "tumour-label.nrrd",
        "F.mrk.json",
    )
    assert names(tmp_path / "scene") == ["CT"]
    assert "Skipped 3 segmentations among the scans" in caplog.text
    # Without a scene only what is named after a volume is its label map.
    touch(tmp_path / "files", "a.nrrd", "a-label.nrrd", "white-label.nii.gz", "b.seg.nrrd", "c.png")
    assert names(tmp_path / "files") == ["a", "c", "white-label"]
    touch(tmp_path / "results", "a.seg.nrrd")
    with pytest.raises(VolumeError, match="segmentations and no scan"):
        find_scans([tmp_path / "results"])


def test_mere_pictures_are_scans(tmp_path):
    touch(tmp_path, "a.png", "b.jpg", "masks/a.png")
    assert names(tmp_path) == ["a", "b"]
    touch(tmp_path / "tree", "p1/a.png", "p2/a.png")
    assert names(tmp_path / "tree") == ["p1/a", "p2/a"]


def test_a_chosen_series_leaves_out_files_that_are_not_dicom(tmp_path):
    uid = write_series(tmp_path)
    (tmp_path / "t1.nii.gz").write_bytes(b"")
    (scan,) = find_scans([tmp_path], series=uid)
    assert (scan.path, scan.series) == (tmp_path, uid)
    (scan,) = find_scans([tmp_path], series="1.2.3")
    with pytest.raises(VolumeError, match=r"1\.2\.3"):
        Volume.read(scan.path, series=scan.series)
