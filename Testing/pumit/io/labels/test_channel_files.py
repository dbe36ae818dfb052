"""Channels in separate files become one volume, if they lie on one grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from pumit.errors import VolumeError
from pumit.io.labels.channel_files import channel_files, read_channels, scan_name


def write(path: Path, value: int, shape: tuple[int, int, int] = (3, 4, 5), x_mm: float = 0) -> None:
    image = SimpleITK.GetImageFromArray(np.full(shape, value, np.int16))
    image.SetOrigin((x_mm, 0.0, 0.0))
    SimpleITK.WriteImage(image, str(path))


def test_following_files_are_found_up_to_the_first_gap(tmp_path: Path) -> None:
    for number in (0, 1, 3):
        write(tmp_path / f"a_b_{number:04d}.nii.gz", number)
    first = tmp_path / "a_b_0000.nii.gz"
    assert scan_name(first) == "a_b"
    assert [path.name for path in channel_files(first)] == ["a_b_0000.nii.gz", "a_b_0001.nii.gz"]
    assert scan_name(tmp_path / "a_b_0001.nii.gz") is None
    volume = read_channels(channel_files(first))
    assert volume.array.shape == (2, 3, 4, 5)
    assert volume.array[1, 0, 0, 0] == 1


def test_single_file_is_read_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "x_0000.nii.gz", 7)
    assert read_channels([tmp_path / "x_0000.nii.gz"]).array.shape == (3, 4, 5)


def test_other_grid_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a_0000.nii.gz", 0)
    write(tmp_path / "a_0001.nii.gz", 0, x_mm=2.0)
    with pytest.raises(VolumeError, match=r"a_0001\.nii\.gz .* grid by 2\.0"):
        read_channels(channel_files(tmp_path / "a_0000.nii.gz"))
    write(tmp_path / "a_0001.nii.gz", 0, (3, 4, 6))
    with pytest.raises(VolumeError, match="3 x 4 x 6 voxels"):
        read_channels(channel_files(tmp_path / "a_0000.nii.gz"))
