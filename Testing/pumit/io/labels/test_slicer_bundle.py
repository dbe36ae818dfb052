"""A Slicer bundle gives its volumes and segmentations, and nothing else, to anybody."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from label_objects_made import SCENE, a_volume, blobs, save, save_segments, write_bundle
from pumit.cli.main import main
from pumit.errors import VolumeError
from pumit.io.labels.label_source import announced_segments, read_labels, read_scan
from pumit.io.slicer_bundle import bundle_nodes


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    volume = a_volume()
    return save(tmp_path / "v.nrrd", volume), save_segments(tmp_path / "s.seg.nrrd", volume)


def test_nodes_are_read_by_their_names(tmp_path, files):
    path = write_bundle(tmp_path / "a.mrb", *files)
    nodes = bundle_nodes(path)
    assert [(n.name, n.kind) for n in nodes] == [
        ("CT & more", "volume"),
        ("Segments", "segmentation"),
    ]
    assert nodes[1].reference == nodes[0].identifier
    volume = read_scan([tmp_path / "a.mrb#CT & more"])
    assert np.array_equal(volume.array, a_volume().array)
    assert [s.name for s in announced_segments(tmp_path / "a.mrb#Segments")] == ["liver", "spleen"]
    found = read_labels(tmp_path / "a.mrb#vtkMRMLSegmentationNode1", volume)
    assert np.array_equal(found.mask(found.segments[1]), blobs()[1])


def test_a_segmentation_of_a_scene_is_compared(tmp_path, files, capsys):
    path = write_bundle(tmp_path / "a.mrb", *files)
    main(["evaluate", "--predictions", f"{path}#Segments", "--labels", str(files[1])])
    assert "AP at IoU 0.50 to 0.95 1.0000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../../v.nrrd", "member": "../v.nrrd"}, None),
        ({"name": "../../../../etc/passwd"}, "holds no file"),
        ({"name": "/etc/passwd"}, "holds no file"),
        ({"name": "Data/gone.nrrd"}, "holds no file"),
        ({"name": "Data/v.vtk", "member": "a scene/Data/v.vtk"}, "save it as .nrrd"),
        ({"scene": "<MRML><Volume"}, "damaged"),
        ({"scene": '<!DOCTYPE x [<!ENTITY a "b">]>' + SCENE}, "not written by Slicer"),
        ({"scene": SCENE.replace("CT &amp; more", "other")}, "no node 'CT & more' in a.mrb"),
    ],
)
def test_what_a_bundle_cannot_give_is_one_line(tmp_path, files, changes, message):
    inner = tmp_path / "inner"
    inner.mkdir()
    write_bundle(inner / "a.mrb", *files, **changes)
    before = sorted(p for p in tmp_path.rglob("*"))
    if message is None:  # a member that is called so is read, and written nowhere
        assert read_scan([inner / "a.mrb#CT & more"]).shape == a_volume().shape
    else:
        with pytest.raises(VolumeError, match=message) as raised:
            read_scan([inner / "a.mrb#CT & more"])
        assert "\n" not in str(raised.value)
    assert sorted(p for p in tmp_path.rglob("*")) == before


def test_nodes_under_different_transforms_are_refused(tmp_path, files):
    path = write_bundle(tmp_path / "a.mrb", *files, more="transform:vtkMRMLTransformNode1;")
    with pytest.raises(VolumeError, match="harden them"):
        read_scan([Path(f"{path}#CT & more")], Path(f"{path}#Segments"))


def test_bomb_is_refused_before_it_is_unpacked(tmp_path, files, monkeypatch):
    monkeypatch.setattr("pumit.io.dicom.files.RATIO_FROM_BYTES", 1 << 16)
    (tmp_path / "zeros.nrrd").write_bytes(bytes(1 << 22))
    path = write_bundle(tmp_path / "a.mrb", tmp_path / "zeros.nrrd", files[1])
    with pytest.raises(VolumeError, match="too much for a scan"):
        read_scan([Path(f"{path}#CT & more")])


def test_file_that_is_no_bundle_is_refused(tmp_path):
    (tmp_path / "a.mrb").write_bytes(b"nothing")
    with pytest.raises(VolumeError, match="Slicer bundle is damaged"):
        bundle_nodes(tmp_path / "a.mrb")
    with zipfile.ZipFile(tmp_path / "b.mrb", "w") as archive:
        archive.writestr("x.txt", "x")
    with pytest.raises(VolumeError, match="0 scenes"):
        bundle_nodes(tmp_path / "b.mrb")
