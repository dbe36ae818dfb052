"""Images of any kind come to one form, their depth axis first."""

import itertools
import struct

import numpy as np
import pytest
import SimpleITK
from PIL import Image
from pumit.errors import PumitError, VolumeError
from pumit.file_image import DicomSource
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.networks.pumit import Anisotropy
from pumit.preprocessing.pretraining_image import find_depth_axis, prepare, prepare_file
from pumit.volume import Volume
from scipy.spatial.transform import Rotation

ORDERS = list(itertools.permutations(range(3)))
RNG = np.random.default_rng(0)
BODY = RNG.random((4, 6, 5)).astype(np.float32)  # (S, P, L)
SPACING = (3.0, 1.0, 1.2)


def volume(
    spacing: tuple[float, ...] = (1.0, 1.0, 1.0),
    shape: tuple[int, ...] = (4, 5, 6),
    direction: np.ndarray | None = None,
    source: DicomSource | None = None,
) -> Volume:
    turned = np.eye(3) if direction is None else direction
    return Volume(np.zeros(shape), spacing, (0, 0, 0), turned, source)  # type: ignore[arg-type]


# The depth axis


@pytest.mark.parametrize("tilt", [0.0, 20.0])
@pytest.mark.parametrize(
    ("name", "world"), [("sagittal", 0), ("Coronal", 1), ("axial", 2), ("transverse", 2)]
)
def test_a_plane_finds_its_normal_however_the_scan_is_stored(tilt, name, world):
    turn = Rotation.from_euler("xyz", [tilt] * 3, degrees=True).as_matrix()
    for axes in ORDERS:  # array axes (D, H, W) along these world axes, one backwards
        columns = np.eye(3)[:, list(axes)[::-1]]  # W, H, D
        columns[:, 1] *= -1
        assert find_depth_axis(volume(direction=turn @ columns), name) == axes.index(world)


def test_description_comes_before_metadata_and_metadata_before_spacing():
    series, thin = DicomSource((), "1.2.3"), (1.0, 4.0, 1.0)
    assert find_depth_axis(volume(thin, source=series), "axis 2", scanned_axis=1) == 2
    assert find_depth_axis(volume(thin, source=series), "2") == 2
    assert find_depth_axis(volume(thin, source=series), scanned_axis=1) == 0
    assert find_depth_axis(volume(thin), scanned_axis=2) == 2
    assert find_depth_axis(volume(thin)) == 1
    for axis in range(3):  # a single slice is its own depth, whatever is said
        shape = np.where(np.arange(3) == axis, 1, (8, 9, 10))
        assert find_depth_axis(volume((1, 2, 3), tuple(shape)), "axial", scanned_axis=0) == axis


@pytest.mark.parametrize(
    ("spacing", "axis"),
    [
        ((0.7, 0.7, 5.0), 2),  # thick CT
        ((4.69, 4.69, 3.27), 2),  # PET: slices thinner than pixels are wide
        ((0.9, 0.35, 0.4), 0),
        ((1.0, 1.005, 1.0), 0),  # isotropic but for rounding
        ((1.0, 2.0, 4.0), 2),
    ],
)
def test_the_spacing_unlike_the_others_is_the_depths(spacing, axis):
    assert find_depth_axis(volume(spacing)) == axis


def test_a_misspelt_plane_is_named_with_the_nearest_right_one():
    with pytest.raises(PumitError, match="did you mean 'axial'"):
        find_depth_axis(volume(), "axal")
    with pytest.raises(PumitError, match=r"known: .*coronal.*axis 2"):
        find_depth_axis(volume(), "7")


@pytest.mark.parametrize("version", [1, 2])
def test_a_nifti_header_may_name_the_slice_axis(tmp_path, version):
    path = tmp_path / "a.nii"
    array = RNG.uniform(1, 2, (4, 5, 6)).astype(np.float32)
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(array), str(path))
    one = path.read_bytes()
    for code, order in ((0, (0, 1, 2)), (1, (2, 0, 1)), (2, (1, 0, 2)), (3, (0, 1, 2))):
        data = bytearray(one) if version == 1 else as_version_2(one)
        data[39 if version == 1 else 524] = code << 4 | 0b1001
        path.write_bytes(data)
        found, _ = prepare_file(path)
        expected, _ = prepare(Volume(array), f"axis {order[0]}")
        np.testing.assert_array_equal(found, expected)


def as_version_2(data: bytes) -> bytearray:
    """A NIfTI-2 header of the same voxels, 1 mm apart."""
    header = bytearray(544)
    struct.pack_into("<i8s", header, 0, 540, b"n+2\0\r\n\x1a\n")
    datatype, bits = struct.unpack_from("<hh", data, 70)
    struct.pack_into("<hh8q", header, 12, datatype, bits, *struct.unpack_from("<8h", data, 40))
    struct.pack_into("<8d", header, 104, *([1.0] * 8))
    struct.pack_into("<q", header, 168, 544)
    return header + data[352:]


def test_files_without_such_a_field_go_by_their_spacing(tmp_path):
    scan = SimpleITK.GetImageFromArray(RNG.normal(size=(4, 5, 6)))
    scan.SetSpacing((1.0, 5.0, 1.0))
    SimpleITK.WriteImage(scan, str(tmp_path / "a.nrrd"))
    assert prepare_file(tmp_path / "a.nrrd")[1] == (5.0, 1.0, 1.0)
    Image.fromarray(RNG.integers(1, 255, (8, 9, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    assert prepare_file(tmp_path / "a.png")[0].shape == (3, 1, 8, 9)


# Intensities, crop and size


def ct() -> Volume:
    """Air, and an off-centre body of many intensities, (6, 20, 24), slices 4 mm apart."""
    array = np.full((6, 20, 24), -1000, dtype=np.int16)
    array[1:5, 3:15, 6:20] = np.random.default_rng(0).integers(-200, 300, (4, 12, 14))
    turn = Rotation.from_euler("xyz", [15, -20, 30], degrees=True).as_matrix()
    return Volume(array, (4.0, 0.8, 0.7), (10, 20, 30), turn)


@pytest.mark.parametrize("description", [None, "axial"])
def test_a_scan_is_scaled_between_its_percentiles_and_cropped(description):
    scan = ct()
    low, high = np.percentile(scan.array[scan.array > -1000], (0.5, 99.5))
    expected = np.clip((scan.array - low) / (high - low), 0, 1)[1:5, 3:15, 6:20]
    for order in ORDERS:  # however it is stored, it is the same slices
        columns = np.asarray(scan.direction[:, [2 - a for a in order][::-1]])
        spacing = tuple(scan.spacing_mm[a] for a in order)
        stored = Volume(scan.array.transpose(order), spacing, scan.origin_lps, columns)  # type: ignore[arg-type]
        array, found = prepare(stored, description)
        is_swapped = order.index(1) > order.index(2)  # in-plane axes stay as they are stored
        same = array[0].swapaxes(1, 2) if is_swapped else array[0]
        assert array.dtype == np.float32
        np.testing.assert_allclose(same, expected, atol=1e-6)
        assert found == ((4.0, 0.7, 0.8) if is_swapped else (4.0, 0.8, 0.7))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0)])
def test_an_upright_scan_is_the_same_however_it_is_stored(order):
    expected, _ = prepare(Volume(BODY, SPACING))
    for signs in itertools.product((1, -1), repeat=3):
        array = BODY.transpose(order)[tuple(slice(None, None, s) for s in signs)]
        # World direction (L, P, S) of each stored axis; Volume has them as columns W, H, D.
        along = np.eye(3)[::-1][list(order)] * np.array(signs)[:, None]
        stored = Volume(array, tuple(SPACING[a] for a in order), direction=along[::-1].T)  # type: ignore[arg-type]
        found, spacing_mm = prepare(stored, is_upright=True)
        np.testing.assert_allclose(found, expected)
        assert found.flags.c_contiguous
        assert spacing_mm == pytest.approx(SPACING)


def test_a_file_is_put_upright(tmp_path):
    image = SimpleITK.GetImageFromArray(BODY[:, ::-1])
    image.SetSpacing(SPACING[::-1])
    image.SetDirection((1, 0, 0, 0, -1, 0, 0, 0, 1))
    SimpleITK.WriteImage(image, str(tmp_path / "a.nrrd"))
    found, _ = prepare_file(tmp_path / "a.nrrd", is_upright=True)
    np.testing.assert_allclose(found, prepare(Volume(BODY, SPACING))[0], atol=1e-6)


def test_a_picture_is_divided_by_255_and_flat():
    array = np.zeros((3, 1, 10, 12), dtype=np.uint8)
    array[0, 0, 2:6, 3:9], array[2, 0, 4:8, 3:5] = 51, 102
    found, spacing = prepare(Volume(array, (PLANAR_SLICE_SPACING_MM, 1.0, 1.0)))
    np.testing.assert_allclose(found, array[:, :, 2:8, 3:9] / 255, atol=1e-7)
    assert Anisotropy.from_spacing(spacing).da0 == 5


@pytest.mark.parametrize("axis", range(3))
def test_a_single_slice_along_any_axis_is_a_2d_image(axis):
    array = np.expand_dims(RNG.normal(size=(8, 9)), axis)
    found, spacing = prepare(Volume(array, (3.0, 3.0, 3.0)))
    assert found.shape[1] == 1
    assert spacing == (PLANAR_SLICE_SPACING_MM, 3.0, 3.0)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((1024, 1536), (512, 768)), ((700, 600), (597, 512)), ((512, 900), (512, 900))],
)
def test_a_large_picture_gets_a_shorter_side_of_512(size, expected):
    array = RNG.integers(1, 256, (1, *size), dtype=np.uint8)
    found, spacing = prepare(Volume(array, (PLANAR_SLICE_SPACING_MM, 0.1, 0.2)))
    assert found.shape[2:] == expected
    # The box that the image covers stays.
    np.testing.assert_allclose(np.multiply(spacing[1:], expected), np.multiply((0.1, 0.2), size))
    if expected == (512, 768):  # areas are averaged
        blocks = array.reshape(512, 2, 768, 2).mean((1, 3)) / 255
        np.testing.assert_allclose(found[0, 0], blocks, atol=1e-6)


def test_channels_are_scaled_each_by_itself_and_cropped_together():
    array = np.zeros((2, 3, 8, 8), dtype=np.float32)
    array[0, :, 1:4, 1:4] = RNG.uniform(1, 2, (3, 3, 3))
    array[1, :, 5:7, 5:7] = RNG.uniform(1e3, 2e3, (3, 2, 2))
    found, _ = prepare(Volume(array))
    assert found.shape == (2, 3, 6, 6)
    assert found[0].max() == found[1].max() == 1


@pytest.mark.parametrize("values", [(-1.0, 1.0), (0.1, 0.3), (-1000.3, -1000.2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_image_of_two_values_is_kept(values, dtype):
    array = np.full((4, 9, 9), values[0], dtype=dtype)
    array[1:3, 2:7, 3:8] = values[1]
    found, _ = prepare(Volume(array))
    np.testing.assert_allclose(found, np.ones((1, 2, 5, 5)), atol=1e-6)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.full((3, 4, 5), -0.1), "leave it out"),
        (np.full((3, 4, 5), 0.1, dtype=np.float32), "leave it out"),
        (np.full((3, 4, 5), -7, dtype=np.int16), "leave it out"),
        (np.zeros((3, 1, 5, 5), dtype=np.uint8), "leave it out"),
        (np.array([[[np.nan, 1.0]]]), "NaN"),
    ],
)
def test_an_image_that_holds_nothing_is_one_line(array, reason):
    with pytest.raises(VolumeError, match=reason):
        prepare(Volume(array))
