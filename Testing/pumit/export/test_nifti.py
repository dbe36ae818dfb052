import gzip

import numpy as np
import pytest
from pumit.export.nifti import gzipped_labels, nifti_bytes, nifti_parts
from pumit.volume import Volume
from scipy.spatial.transform import Rotation

TURNED = Rotation.from_euler("zyx", [20, -35, 130], degrees=True).as_matrix()


@pytest.mark.parametrize("direction", [TURNED, TURNED * (1, 1, -1)], ids=["right", "left-handed"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">i2", "u2", "i4", "u4", "f4", "f8"])
def test_an_oblique_scan_is_read_back_with_voxels_and_place(tmp_path, direction, dtype):
    voxels = np.arange(4 * 5 * 6).reshape(4, 5, 6).astype(dtype)
    volume = Volume(voxels, (5.0, 0.8, 0.9), (-20.0, 7.0, 100.0), direction)
    (tmp_path / "scan.nii").write_bytes(nifti_bytes(voxels, volume))
    found = Volume.read(tmp_path / "scan.nii")
    np.testing.assert_array_equal(found.array, voxels)
    corners = [(0, 0, 0), (3, 4, 5)]
    wanted = volume.index_to_world(corners)
    np.testing.assert_allclose(found.index_to_world(corners), wanted, atol=1e-4)


def test_numbers_that_viewers_do_not_read_become_floats(tmp_path):
    voxels = np.arange(8, dtype=np.int64).reshape(2, 2, 2)
    (tmp_path / "scan.nii").write_bytes(nifti_bytes(voxels, Volume(voxels)))
    found = Volume.read(tmp_path / "scan.nii")
    assert found.array.dtype == np.float32
    np.testing.assert_array_equal(found.array, voxels)


def test_colours_are_kept(tmp_path):
    voxels = np.arange(3 * 2 * 4, dtype=np.uint8).reshape(3, 1, 2, 4)
    volume = Volume(voxels, (1e8, 1.0, 1.0))
    (tmp_path / "photo.nii").write_bytes(nifti_bytes(voxels, volume))
    found = Volume.read(tmp_path / "photo.nii")
    np.testing.assert_array_equal(found.array, voxels)
    assert found.is_planar


@pytest.mark.parametrize("degrees", [0, 90, 180, 179.9999, 270])
@pytest.mark.parametrize("axis", ["x", "y", "z", "xy"])
def test_turns_are_read_back(tmp_path, axis, degrees):
    turn = Rotation.from_euler(axis, [degrees] * len(axis), degrees=True).as_matrix()
    volume = Volume(np.zeros((2, 3, 4), np.uint8), direction=turn)
    (tmp_path / "scan.nii").write_bytes(nifti_bytes(volume.array, volume))
    np.testing.assert_allclose(Volume.read(tmp_path / "scan.nii").direction, turn, atol=1e-5)


def test_compressed_labels_are_whole_and_the_same_each_time():
    labels = np.zeros((9, 40, 50), dtype=np.uint8)
    labels[2:7, 5:30, 9:41] = 3
    parts = [b"".join(gzipped_labels(nifti_parts(labels, Volume(labels)))) for _ in range(2)]
    assert parts[0] == parts[1]
    assert gzip.decompress(parts[0]) == nifti_bytes(labels, Volume(labels))
