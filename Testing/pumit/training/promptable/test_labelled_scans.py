"""Real scans give fields with targets of every degree, and bad folders are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from labelled_scans import write
from pumit.errors import PumitError, VolumeError
from pumit.preprocessing.fields import field_shape
from pumit.training.promptable.labelled_scans import RealScans, data_set_of, part_of
from pumit.training.promptable.real_scan import load_scan
from pumit.training.promptable.supervoxels import coherent_pieces
from pumit.training.synthesis.scene import MAX_SHARE, MIN_REAL_SHARE, UNKNOWN

SIZE = 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two labelled cases, the second with thick slices along the last axis."""
    d, h, w = np.indices((24, 40, 40))
    label = (((d - 12) ** 2 + (h - 20) ** 2 + (w - 20) ** 2) < 81).astype(np.int16)
    label[(d - 12) ** 2 + (h - 20) ** 2 + (w - 20) ** 2 < 16] = 2
    noise = np.random.default_rng(0).normal(0, 10, label.shape)
    image = (100 * (label > 0) + 60 * (label == 2) + noise).astype(np.int16)
    write(tmp_path / "a" / "image.nii.gz", image, (2.0, 1.0, 1.0))
    write(tmp_path / "a" / "label.nii.gz", label, (2.0, 1.0, 1.0))
    write(tmp_path / "b" / "image.nii.gz", image.transpose(1, 2, 0).copy(), (1.0, 1.0, 4.0))
    write(tmp_path / "b" / "label.nii.gz", label.transpose(1, 2, 0).copy(), (1.0, 1.0, 4.0))
    write(tmp_path / "bare.nii.gz", image, (1.0, 1.0, 1.0))
    return tmp_path


@pytest.mark.parametrize("da0", range(6))
def test_scenes_of_every_degree(folder, da0):
    scans = RealScans(folder, ["a", "b"], [folder / "bare.nii.gz"])
    generator = torch.Generator().manual_seed(0)
    scenes = [s for s in (scans.draw(da0, SIZE, generator) for _ in range(12)) if s is not None]
    assert len(scenes) > 3
    again = scans.draw(da0, SIZE, torch.Generator().manual_seed(0))
    assert again is None or torch.equal(again.image, scenes[0].image)
    for scene in scenes:
        assert scene.image.shape == field_shape(da0, SIZE)
        assert torch.isfinite(scene.image).all()
        for target in scene.targets:
            assert target.dtype == torch.bool
            assert MIN_REAL_SHARE <= float(target.float().mean()) <= MAX_SHARE


def test_the_thick_axis_becomes_depth(folder):
    scan = load_scan(folder / "b" / "image.nii.gz", folder / "b" / "label.nii.gz")
    assert scan.image.spacing_mm == (4.0, 1.0, 1.0)
    assert scan.image.array.shape == (24, 40, 40)
    assert scan.places.keys() == {1, 2}
    for value, (voxels, _) in scan.places.items():
        assert (np.asarray(scan.labels.array)[tuple(voxels.T)] == value).all()


def test_a_label_map_that_does_not_fit_and_a_missing_case_are_refused(folder):
    with pytest.raises(VolumeError):
        RealScans(folder, ["a", "none"])
    write(folder / "a" / "label.nii.gz", np.ones((24, 40, 39), np.int16), (2.0, 1.0, 1.0))
    with pytest.raises(VolumeError, match=r"^a: .* does not fit"):
        RealScans(folder, ["a"])


def test_coherent_pieces_are_usable_and_inside():
    rng = np.random.default_rng(0)
    h, w = np.indices((32, 32))
    image = (np.sin(h / 4) + np.cos(w / 5))[None].astype(np.float32)
    inside = np.ones(image.shape, bool)
    inside[:, :, 24:] = False
    found = [p for _ in range(20) for p in coherent_pieces(image, inside, rng)]
    assert found
    for piece in found:
        assert 0.002 <= float(piece.float().mean()) <= 0.4


def test_data_sets_are_drawn_by_the_root_of_their_patients(folder):
    """Nine patients of one data set come three times as often as the one of another."""
    label = folder / "a" / "label.nii.gz"
    names = [f"many_set_{i}" for i in range(9)]
    for name in names:
        (folder / name).mkdir()
        for kind in ("image", "label"):
            (folder / name / f"{kind}.nii.gz").symlink_to(label.with_name(f"{kind}.nii.gz"))
    scans = RealScans(folder, [*names, "b"])
    rng = np.random.default_rng(0)
    counts = sum(scans._any(rng) is not scans.scans[-1] for _ in range(1000))
    assert 700 < counts < 800


def test_a_data_set_is_drawn_as_often_as_its_share_says(folder):
    scans = RealScans(folder, ["a", "b"], shares={"b": 0.2})
    rng = np.random.default_rng(0)
    counts = sum(scans._any(rng) is scans.scans[1] for _ in range(1000))
    assert 150 < counts < 250
    scans = RealScans(folder, ["a", "b"], shares={"c": 0.2})
    with pytest.raises(PumitError, match="'c'"):
        scans.draw(1, SIZE, torch.Generator().manual_seed(0))


def test_an_index_tells_which_scans_are_of_one_patient(folder):
    facts = {"dataset": "hearts", "patient": "7"}
    (folder / "index.json").write_text(json.dumps({"a": facts, "b": facts}))
    scans = RealScans(folder, ["a", "b"], [folder / "bare.nii.gz"])
    assert scans._sets == {"hearts": {"7": [0, 1]}, "unlabelled": {"bare.nii.gz": [2]}}
    # Without one, a case tells its data set by its first words.
    named = [data_set_of(case) for case in ("ct_sts001", "mr-sct-t2", "a")]
    assert named == ["ct_sts", "mr_sct", "a"]


def test_a_part_lies_on_one_side_of_a_plane():
    mask = torch.zeros((8, 20, 20), dtype=torch.bool)
    mask[2:6, 5:15, 5:15] = True
    for seed in range(20):
        part = part_of(mask, torch.Generator().manual_seed(seed))
        assert not bool((part & ~mask).any())
        assert int(part.sum()) < int(mask.sum())


def test_targets_are_pieces_of_the_image_as_often_as_requested(folder):
    """At 1 the labels are not read at all."""
    scans = RealScans(folder, ["a"], unlabelled_targets=1.0)
    for scan in scans.scans:
        scan.labels = None
    scenes = [scans.draw(1, SIZE, torch.Generator().manual_seed(i)) for i in range(10)]
    assert sum(s is not None for s in scenes) > 5
    scans = RealScans(folder, ["a"], unlabelled_targets=0.0)
    with_labels = [scans.draw(1, SIZE, torch.Generator().manual_seed(i)) for i in range(10)]
    for scene in with_labels:
        assert scene is None or len(scene.targets) <= 2  # of two structures


def test_classes_are_numbered_by_data_set(folder):
    """Each data set has its own background."""
    index = {"a": {"dataset": "hearts"}, "b": {"dataset": "brains"}}
    (folder / "index.json").write_text(json.dumps(index))
    scans = RealScans(folder, [], [folder / "bare.nii.gz"])
    scans.add(folder, ["a", "b"])
    known = scans.number_classes()
    assert known == [
        *(("brains", label) for label in (0, 1, 2)),
        *(("hearts", label) for label in (0, 1, 2)),
    ]
    _, hearts, brains = scans.scans
    assert hearts.classes.tolist() == [3, 4, 5]
    assert brains.classes.tolist() == [0, 1, 2]


@pytest.mark.parametrize("da0", [0, 1, 5])
def test_wide_scenes_have_the_class_of_each_voxel(folder, da0):
    scans = RealScans(folder, ["a"], [folder / "bare.nii.gz"])
    scans.number_classes()
    generator = torch.Generator().manual_seed(0)
    scenes = [scans.draw(da0, SIZE, generator, is_wide=True) for _ in range(10)]
    drawn = [s for s in scenes if s is not None]
    assert drawn
    for scene in drawn:
        assert scene.is_upright
        assert scene.classes.shape == scene.image.shape
        assert set(scene.classes.unique().tolist()) <= {UNKNOWN, 0, 1, 2}
        structure = scene.image[scene.classes > 0].mean()
        assert structure > scene.image[scene.classes == 0].mean() + 0.1  # they lie on each other


def test_an_index_that_cannot_be_read_is_named(folder):
    (folder / "index.json").write_text("{")
    with pytest.raises(PumitError, match=r"index\.json .* cannot be read") as caught:
        RealScans(folder, ["a"])
    assert str(folder) not in str(caught.value)
    (folder / "index.json").write_text('{"a": 3}')  # tells nothing of the case
    assert list(RealScans(folder, ["a"])._sets) == ["a"]


def test_labels_that_would_overflow_are_refused_with_their_case(folder):
    """Beyond 16 bits a label would become another one."""
    label = np.zeros((24, 40, 40), np.int32)
    label[8:16, 10:30, 10:30] = 70_000
    write(folder / "a" / "label.nii.gz", label, (2.0, 1.0, 1.0))
    with pytest.raises(VolumeError, match=r"a: .* 70000"):
        RealScans(folder, ["a"])
