"""Files are read once; what is kept of them is what would have been read again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
import torch
from pumit.errors import ExportError, VolumeError
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.training.classification.cases import Cases
from pumit.training.classification.reader import read_class_folders
from pumit.training.classification.task import PreparedImages, keep_prepared
from pumit.volume import Volume

FORM = ClassifierInput((4, 8, 8), 1)


@pytest.fixture
def cases(tmp_path: Path, rng: np.random.Generator) -> Cases:
    for name in ("a", "b"):
        (tmp_path / "set" / "train" / name).mkdir(parents=True)
        for i in range(2):
            image = SimpleITK.GetImageFromArray(rng.normal(size=(5, 9, 7)).astype(np.float32))
            SimpleITK.WriteImage(image, str(tmp_path / "set" / "train" / name / f"{name}{i}.mha"))
        (tmp_path / "set" / "val" / name).mkdir(parents=True)
        (tmp_path / "set" / "val" / name / "x.mha").write_bytes(b"")
    return read_class_folders(tmp_path / "set").splits["train"]


def test_kept_images_are_those_of_the_files(cases, tmp_path):
    kept, fresh = keep_prepared(cases, FORM, tmp_path / "kept"), PreparedImages(cases, FORM)
    assert len(kept) == len(fresh) == 4
    for i in range(4):
        assert kept[i].dtype == torch.float32
        torch.testing.assert_close(kept[i], fresh[i], atol=1e-3, rtol=0)


def test_nothing_is_read_again_until_something_changes(cases, tmp_path):
    reads: list[int] = []

    def read(index: int) -> Volume:
        reads.append(index)
        return cases.read(index)

    counted, other = replace(cases, read=read), ClassifierInput((4, 8, 4), 1)
    for form, expected in ((FORM, 4), (FORM, 4), (other, 8), (other, 8)):
        keep_prepared(counted, form, tmp_path / "kept")
        assert len(reads) == expected
    cases.files[0].write_bytes(cases.files[1].read_bytes() + b"\0")
    keep_prepared(counted, other, tmp_path / "kept")
    assert reads[8:] == [0]


def test_what_cannot_be_used_is_refused_by_name(cases, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ExportError, match="the folder kept"):
        keep_prepared(cases, FORM, tmp_path / "file" / "kept")
    colours = SimpleITK.GetImageFromArray(np.zeros((5, 9, 7, 3), np.uint8), isVector=True)
    SimpleITK.WriteImage(colours, str(cases.files[2]))
    with pytest.raises(VolumeError, match=r"train/b/b0.mha has 3 channels, train/a/a0.mha 1"):
        keep_prepared(cases, FORM, tmp_path / "kept")
    cases.files[1].write_bytes(b"nothing")
    with pytest.raises(VolumeError, match=r"^train/a/a1.mha: ") as caught:
        keep_prepared(cases, FORM, tmp_path / "kept")
    assert str(tmp_path) not in str(caught.value)
    cases.files[0].unlink()
    with pytest.raises(VolumeError, match=r"a0.mha"):
        keep_prepared(cases, FORM, tmp_path / "kept")
