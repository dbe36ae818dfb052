"""Images of any kind come to one form, and where they lie stays known."""

from __future__ import annotations

import struct
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from PIL import Image
from pumit.errors import VolumeError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.networks.pumit import Anisotropy
from pumit.preprocessing.pretraining_image import PreparedImage, prepare, prepare_file
from pumit.volume import Volume
from scipy.spatial.transform import Rotation

ORDERS = list(permutations(range(3)))


def ct() -> Volume:
    """Air, and an off-centre body of many intensities, (6, 20, 24), slices 4 mm apart."""
    array = np.full((6, 20, 24), -1000, dtype=np.int16)
    rng = np.random.default_rng(0)
    array[1:5, 3:15, 6:20] = rng.integers(-200, 300, (4, 12, 14))
    turn = Rotation.from_euler("xyz", [15, -20, 30], degrees=True).as_matrix()
    return Volume(array, (4.0, 0.8, 0.7), (10, 20, 30), turn)


def permuted(volume: Volume, order: tuple[int, ...]) -> Volume:
    """The same scan with its array axes in another order."""
    array = volume.array.transpose(order)
    spacing = [volume.spacing_mm[a] for a in order]
    columns = volume.direction[:, [2 - a for a in order][::-1]]
    return Volume(
        array, (spacing[0], spacing[1], spacing[2]), volume.origin_lps, np.asarray(columns)
    )


def values_at(image: PreparedImage, volume: Volume) -> np.ndarray:
    """Intensities of the volume where the image's voxels lie."""
    index = np.stack(np.meshgrid(*(np.arange(n) for n in image.array.shape[1:]), indexing="ij"), -1)
    at = image.to_volume(index)
    whole = np.rint(at).astype(int)
    np.testing.assert_allclose(at, whole, atol=1e-9)
    return volume.array[..., whole[..., 0], whole[..., 1], whole[..., 2]]


def test_a_scan_is_scaled_between_its_percentiles_and_cropped() -> None:
    volume = ct()
    image = prepare(volume)
    body = volume.array[volume.array > -1000]
    low, high = np.percentile(body, (0.5, 99.5))
    expected = np.clip((volume.array - low) / (high - low), 0, 1)[1:5, 3:15, 6:20]
    assert image.array.shape == (1, 4, 12, 14)
    assert image.array.dtype == np.float32
    np.testing.assert_allclose(image.array[0], expected, atol=1e-6)
    assert image.spacing_mm == (4.0, 0.8, 0.7)
    assert image.start == (1, 3, 6)
    assert image.depth.rule == "spacing"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("description", [None, "axial"])
def test_however_a_scan_is_stored_it_is_the_same_slices(
    order: tuple[int, ...], description: str | None
) -> None:
    upright = prepare(ct(), description)
    volume = permuted(ct(), order)
    image = prepare(volume, description)
    assert volume.shape[image.depth.axis] == 6
    # In-plane axes stay as they are stored.
    is_swapped = order.index(1) > order.index(2)
    same = image.array.swapaxes(2, 3) if is_swapped else image.array
    np.testing.assert_array_equal(same, upright.array)
    spacing = tuple(volume.spacing_mm[a] for a in image.depth.order)
    assert image.spacing_mm == spacing
    low, high = np.percentile(volume.array[volume.array > -1000], (0.5, 99.5))
    seen = np.clip((values_at(image, volume) - low) / (high - low), 0, 1)
    np.testing.assert_allclose(image.array[0], seen, atol=1e-6)


def test_a_picture_is_divided_by_255_and_flat() -> None:
    array = np.zeros((3, 1, 10, 12), dtype=np.uint8)
    array[0, 0, 2:6, 3:9], array[2, 0, 4:8, 3:5] = 51, 102
    image = prepare(Volume(array, (PLANAR_SLICE_SPACING_MM, 1.0, 1.0)))
    assert image.array.shape == (3, 1, 6, 6)
    np.testing.assert_allclose(image.array, array[:, :, 2:8, 3:9] / 255, atol=1e-7)
    assert Anisotropy.from_spacing(image.spacing_mm).da0 == 5


@pytest.mark.parametrize("axis", range(3))
def test_a_single_slice_along_any_axis_is_a_2d_image(axis: int) -> None:
    array = np.expand_dims(np.random.default_rng(0).normal(size=(8, 9)), axis)
    image = prepare(Volume(array, (3.0, 3.0, 3.0)))
    assert image.array.shape[1] == 1
    assert image.spacing_mm[0] == PLANAR_SLICE_SPACING_MM
    assert image.spacing_mm[1:] == (3.0, 3.0)


@pytest.mark.parametrize(
    ("size", "expected"), [((1024, 1536), (512, 768)), ((700, 600), (597, 512)), ((512, 900), None)]
)
def test_a_large_picture_gets_a_shorter_side_of_512(
    size: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(1, 256, (1, *size), dtype=np.uint8)
    image = prepare(Volume(array, (PLANAR_SLICE_SPACING_MM, 0.1, 0.2)))
    expected = expected or size
    assert image.array.shape[2:] == expected
    # The box that the image covers stays.
    np.testing.assert_allclose(
        np.multiply(image.spacing_mm[1:], expected), np.multiply((0.1, 0.2), size)
    )
    np.testing.assert_allclose(image.array.mean(), array.mean() / 255, atol=2e-3)
    first, last = image.to_volume([[-0.5] * 3, [0.5, expected[0] - 0.5, expected[1] - 0.5]])
    np.testing.assert_allclose(first, -0.5)
    np.testing.assert_allclose(last[1:], np.asarray(size) - 0.5)


def test_areas_are_averaged() -> None:
    array = np.random.default_rng(0).integers(1, 256, (2, 1024, 1024), dtype=np.uint8)
    image = prepare(Volume(array, (9.0, 1.0, 1.0)))
    blocks = array.reshape(2, 512, 2, 512, 2).mean((2, 4)) / 255
    np.testing.assert_allclose(image.array[0], blocks, atol=1e-6)
    assert image.spacing_mm == (9.0, 2.0, 2.0)


def test_channels_are_scaled_each_by_itself_and_cropped_together() -> None:
    array = np.zeros((2, 3, 8, 8), dtype=np.float32)
    rng = np.random.default_rng(0)
    array[0, :, 1:4, 1:4] = rng.uniform(1, 2, (3, 3, 3))
    array[1, :, 5:7, 5:7] = rng.uniform(1e3, 2e3, (3, 2, 2))
    image = prepare(Volume(array))
    assert image.array.shape == (2, 3, 6, 6)
    assert image.array[0].max() == image.array[1].max() == 1


@pytest.mark.parametrize("values", [(-1.0, 1.0), (0.1, 0.3), (-1000.3, -1000.2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_image_of_two_values_is_kept(values: tuple[float, float], dtype: type) -> None:
    array = np.full((4, 9, 9), values[0], dtype=dtype)
    array[1:3, 2:7, 3:8] = values[1]
    image = prepare(Volume(array))
    assert image.array.shape == (1, 2, 5, 5)
    np.testing.assert_allclose(image.array, 1, atol=1e-6)


@pytest.mark.parametrize(
    "array",
    [
        *(np.full((3, 4, 5), value) for value in (7.0, 7.3, -0.1, 1e-7)),
        np.full((3, 4, 5), 0.1, dtype=np.float32),
        np.full((3, 4, 5), -7, dtype=np.int16),
        np.zeros((3, 1, 5, 5), dtype=np.uint8),
        np.zeros((2, 2, 2), dtype=bool),
    ],
)
def test_an_image_that_holds_nothing_is_one_line(array: np.ndarray) -> None:
    with pytest.raises(VolumeError, match="leave it out") as caught:
        prepare(Volume(array))
    assert "\n" not in str(caught.value)


def test_voxels_that_are_not_numbers_are_one_line() -> None:
    array = np.zeros((2, 3, 4))
    array[0, 0, 0] = np.nan
    with pytest.raises(VolumeError, match="NaN"):
        prepare(Volume(array))


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize("version", [1, 2])
def test_a_nifti_header_may_name_the_slice_axis(tmp_path: Path, code: int, version: int) -> None:
    path = tmp_path / "a.nii"
    rng = np.random.default_rng(0)
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(rng.normal(size=(4, 5, 6))), str(path))
    data = bytearray(path.read_bytes())
    if version == 1:
        data[39] = code << 4 | 0b1001
    else:
        data = as_version_2(data, code << 4)
    path.write_bytes(data)
    image = prepare_file(path)
    expected = (0, "spacing") if code == 0 else (3 - code, "metadata")
    assert (image.depth.axis, image.depth.rule) == expected


def as_version_2(data: bytearray, dim_info: int) -> bytearray:
    """A NIfTI-2 header of the same voxels, 1 mm apart."""
    header = bytearray(544)
    struct.pack_into("<i8s", header, 0, 540, b"n+2\0\r\n\x1a\n")
    datatype, bits = struct.unpack_from("<hh", data, 70)
    struct.pack_into("<hh8q", header, 12, datatype, bits, *struct.unpack_from("<8h", data, 40))
    struct.pack_into("<8d", header, 104, *([1.0] * 8))
    struct.pack_into("<q", header, 168, 544)
    header[524] = dim_info
    return header + data[352:]


def test_files_without_such_a_field_go_by_their_spacing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scan = SimpleITK.GetImageFromArray(rng.normal(size=(4, 5, 6)))
    scan.SetSpacing((1.0, 5.0, 1.0))
    SimpleITK.WriteImage(scan, str(tmp_path / "a.nrrd"))
    image = prepare_file(tmp_path / "a.nrrd")
    assert (image.depth.axis, image.depth.rule) == (1, "spacing")
    Image.fromarray(rng.integers(1, 255, (8, 9, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    assert prepare_file(tmp_path / "a.png").array.shape == (3, 1, 8, 9)
