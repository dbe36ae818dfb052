"""Label maps are read with the names and layers of their segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from pumit.errors import VolumeError
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.io.labels.label_file import is_same_grid, read_label_file
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.volume import Volume


def save(array: np.ndarray, path: Path) -> Path:
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(array), str(path))
    return path


def test_segments_that_overlap_come_back_whole(tmp_path: Path) -> None:
    volume = Volume(np.zeros((4, 5, 6)), (3.0, 1.0, 1.0), (1.0, 2.0, 3.0))
    masks = np.zeros((2, 4, 5, 6), dtype=bool)
    masks[0, 1:3, 1:4], masks[1, 2:, 2:, 3:] = True, True
    segments = [Segment(name, mask) for name, mask in zip(("kidney", "tumour"), masks, strict=True)]
    path = tmp_path / "a.seg.nrrd"
    write_seg_nrrd(Segmentation(volume, tuple(segments), Algorithm("a", "1")), path)
    file = read_label_file(path)
    assert file.is_named
    assert is_same_grid(file.volume, volume)
    assert [segment.name for segment in file.segments] == ["kidney", "tumour"]
    for segment, mask in zip(file.segments, masks, strict=True):
        np.testing.assert_array_equal(file.mask(segment), mask)


@pytest.mark.parametrize("name", ["a.nii.gz", "a.nrrd", "a.mha"])
def test_values_are_segments_where_nothing_is_named(tmp_path: Path, name: str) -> None:
    array = np.zeros((3, 4, 5), dtype=np.float32)
    array[1, 1:3], array[2, 2] = 7, 2
    file = read_label_file(save(array, tmp_path / name))
    assert [segment.value for segment in file.segments] == [2, 7]
    assert not file.is_named
    np.testing.assert_array_equal(file.mask(file.segments[1]), array == 7)


def test_what_is_no_label_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="fractions"):
        read_label_file(save(np.full((3, 4, 5), 0.5, np.float32), tmp_path / "a.nii.gz"))
    with pytest.raises(VolumeError, match="channels"):
        read_label_file(save(np.ones((2, 3, 4, 5), np.uint8), tmp_path / "b.nii.gz"))


def test_grids_differ_by_place_and_by_size() -> None:
    one = Volume(np.zeros((4, 5, 6)), (3.0, 1.0, 1.0))
    assert is_same_grid(one, Volume(np.ones((4, 5, 6)), (3.0, 1.0, 1.0), (0.05, 0, 0)))
    assert not is_same_grid(one, Volume(np.ones((4, 5, 6)), (3.0, 1.0, 1.0), (0.5, 0, 0)))
    assert not is_same_grid(one, Volume(np.ones((4, 5, 7)), (3.0, 1.0, 1.0)))
    assert not is_same_grid(one, Volume(np.ones((4, 5, 6)), (3.2, 1.0, 1.0)))
