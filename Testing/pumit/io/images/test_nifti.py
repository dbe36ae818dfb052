"""NIfTI headers in all their variants mean the same voxels at the same place."""

import gzip
import itertools
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from generated_scans import itk_image, pattern, refused, rotation
from placed_files import placed_files
from pumit.errors import VolumeError
from pumit.io.labels.label_source import read_labels
from pumit.volume import Volume

# Byte offsets in a version 1 header.
DIM, DATATYPE, PIXDIM, VOX_OFFSET, SLOPE, UNITS = 40, 70, 76, 108, 112, 123
QFORM_CODE, SFORM_CODE, QUATERN, SROW = 252, 254, 256, 280


def nifti(array: np.ndarray | None = None, **more: Any) -> bytearray:
    """What ITK writes, uncompressed, as bytes to change."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.nii"
        SimpleITK.WriteImage(itk_image(pattern() if array is None else array, **more), str(path))
        return bytearray(path.read_bytes())


def patched(offset: int, form: str, *values: float, data: bytearray | None = None) -> bytearray:
    data = nifti() if data is None else data
    struct.pack_into("<" + form, data, offset, *values)
    return data


def read(tmp_path: Path, data: bytes) -> Volume:
    (tmp_path / "a.nii").write_bytes(data)
    return Volume.read(tmp_path / "a.nii")


def refuse(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "a.nii").write_bytes(data)
    refused(tmp_path / "a.nii", reason)


def sheared(sform: np.ndarray, qform_code: int, sform_code: int) -> bytearray:
    data = patched(SROW, "12f", *sform.ravel())
    return patched(QFORM_CODE, "2h", qform_code, sform_code, data=data)


def test_slope_and_intercept_are_applied_as_itk_does(tmp_path):
    for array in (pattern(), pattern().astype(np.int32), pattern().astype(np.float64)):
        (tmp_path / "a.nii").write_bytes(patched(SLOPE, "2f", 0.1, -1024, data=nifti(array)))
        expected = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "a.nii")))
        np.testing.assert_allclose(Volume.read(tmp_path / "a.nii").array, expected, rtol=1e-6)
    np.testing.assert_array_equal(read(tmp_path, patched(SLOPE, "2f", 0, 50)).array, pattern())


@pytest.mark.parametrize("kind", ["of version 2", "big-endian"])
def test_other_layouts_read_the_same(tmp_path, kind):
    volume = Volume(pattern(), (2.5, 0.9, 0.7), (-10.0, 20.0, 30.0), rotation(10, 20, 30))
    files = {what: content for what, _, content in placed_files(volume)}
    plain, found = (read(tmp_path, files[f"NIfTI {what}"]) for what in ("plain", kind))
    np.testing.assert_array_equal(found.array, pattern())
    np.testing.assert_allclose(grid(found), grid(plain), atol=1e-6)
    assert found.array.dtype.isnative


def test_data_behind_header_extensions_is_found(tmp_path):
    plain = nifti()
    moved = patched(VOX_OFFSET, "f", 512, data=bytearray(plain[:352]))
    np.testing.assert_array_equal(read(tmp_path, moved + bytes(160) + plain[352:]).array, pattern())


def test_microns_become_millimetres(tmp_path):
    data = patched(UNITS, "B", 3, data=nifti(spacing=(700.0, 900.0, 2500.0)))
    assert read(tmp_path, data).spacing_mm == pytest.approx((2.5, 0.9, 0.7))


@pytest.mark.parametrize("sform_code", [1, 4])
def test_two_voxel_sizes_in_a_header_are_said(tmp_path, caplog, sform_code):
    read(tmp_path, nifti())
    assert not caplog.text
    data = patched(PIXDIM + 4, "3f", 1.0, 1.0, 1.0)
    # Only in the patient's own space: a template may have another size.
    volume = read(tmp_path, patched(QFORM_CODE, "2h", 1, sform_code, data=data))
    assert volume.spacing_mm == (1.0, 1.0, 1.0)
    assert ("1 x 1 x 1 mm (used) and 0.7 x 0.9 x 2.5 mm" in caplog.text) == (sform_code == 1)


def test_an_sform_of_zeros_states_no_size(tmp_path, caplog):
    data = patched(SROW, "12f", *[0.0] * 12)
    volume = read(tmp_path, patched(QFORM_CODE, "2h", 1, 1, data=data))
    assert volume.spacing_mm == read(tmp_path, nifti()).spacing_mm
    assert not caplog.text


@pytest.mark.parametrize("codes", [(1, 1), (1, 2), (2, 1), (1, 4)])
def test_two_places_are_said(tmp_path, caplog, codes):
    data = patched(QFORM_CODE, "2h", *codes, data=nifti())
    read(tmp_path, data)
    assert not caplog.text
    (left,) = struct.unpack_from("<f", data, SROW + 12)
    read(tmp_path, patched(SROW + 12, "f", left + 50, data=data))
    assert "put voxels up to 50 mm apart" in caplog.text


@pytest.mark.parametrize(("qform_code", "sform_code"), [(0, 1), (2, 2), (1, 2), (0, 4)])
def test_sheared_sform_is_followed(tmp_path, caplog, qform_code, sform_code):
    # A gantry tilted by 15 degrees: the slice step leans along the rows' normal.
    tilt = np.tan(np.radians(15)) * 2.5
    sform = np.array([[0.7, 0, 0, 10], [0, 0.9, tilt, 20], [0, 0, 2.5, 30]])
    ramp = (np.arange(5)[:, None, None] * 100 + np.zeros((5, 6, 7))).astype(np.int16)
    data = nifti(ramp)
    data[:352] = sheared(sform, qform_code, sform_code)[:352]
    volume = read(tmp_path, data)
    assert "sheared by 15.0 degrees" in caplog.text
    assert volume.shape[0] == 5
    assert volume.array.dtype == np.int16
    assert volume.spacing_mm == pytest.approx((2.5, 0.9, 0.7))
    for k in range(5):
        # RAS of the slice's own centre, then LPS.
        ras = sform @ (3, 2.5, k, 1)
        index = volume.world_to_index((-ras[0], -ras[1], ras[2]))
        assert index[0] == pytest.approx(k, abs=1e-6)
        d, h, w = np.round(index).astype(int)
        assert volume.array[d, h, w] == 100 * k


def test_voxels_that_are_no_number_do_not_spread_where_a_sheared_grid_is_interpolated(tmp_path):
    sform = np.array([[0.7, 0, 0, 10], [0, 0.9, 0.67, 20], [0, 0, 2.5, 30]])
    voxels = np.full((5, 6, 7), 40, np.float32)
    voxels[0, 0, 0] = -3  # the smallest, which voxels outside become
    voxels[2, 3, 3] = np.nan
    data = patched(SROW, "12f", *sform.ravel(), data=nifti(voxels))
    array = read(tmp_path, patched(QFORM_CODE, "2h", 0, 1, data=data)).array
    assert np.isfinite(array).all()
    assert array.min() == -3
    # Replaced before the interpolation, which so mixes it with its neighbours.
    assert ((array[2] > -3) & (array[2] < 40)).any()


def test_labels_on_a_sheared_grid_are_not_interpolated_to_other_classes(tmp_path):
    sform = np.array([[0.7, 0, 0, 10], [0, 0.9, 0.67, 20], [0, 0, 2.5, 30]])
    labels = np.full((5, 6, 7), 9, np.uint8)  # the whole scan is labelled
    labels[:, 3:] = 5
    data = patched(SROW, "12f", *sform.ravel(), data=nifti(labels))
    data = patched(QFORM_CODE, "2h", 0, 1, data=data)
    scan = read(tmp_path, data)
    found = read_labels(tmp_path / "a.nii", scan)
    assert np.unique(found.volume.array).tolist() == [0, 5, 9]
    assert [segment.value for segment in found.segments] == [5, 9]


def test_qform_wins_over_a_sheared_template_space(tmp_path):
    straight = nifti(direction=rotation(10, 20, 30))
    expected = read(tmp_path, straight)
    patched(
        SROW,
        "12f",
        *np.array([[1, 0.3, 0, 9], [0, 1, 0, 9], [0, 0, 1, 9.0]]).ravel(),
        data=straight,
    )
    patched(QFORM_CODE, "2h", 1, 4, data=straight)
    volume = read(tmp_path, straight)
    np.testing.assert_array_equal(volume.array, pattern())
    np.testing.assert_allclose(volume.direction, expected.direction, atol=1e-5)


def test_sform_that_no_grid_can_follow_is_refused(tmp_path):
    sform = np.array([[1, 1, 0, 0], [0, 0.01, 0, 0], [0, 0, 1, 0.0]])
    refuse(tmp_path, sheared(sform, 0, 1), "parallel")
    refuse(tmp_path, sheared(np.zeros((3, 4)), 0, 1), "sform has an axis of length zero")
    sform = np.array([[1, 3, 0, 0], [0, 1, 3, 0], [0, 0, 1, 0.0]])
    data = nifti(np.zeros((40, 40, 40), np.int16))
    data[:352] = patched(DIM, "8h", 3, 40, 40, 40, 1, 1, 1, 1, data=sheared(sform, 0, 1))[:352]
    refuse(tmp_path, data, "times the voxels|parallel")


def test_a_position_that_is_not_finite_is_refused_or_left_to_the_other_one(tmp_path):
    """ITK's own reading of these numbers never ended."""
    zeros = np.zeros((3, 4))
    zeros[2, 2:] = np.nan
    refuse(tmp_path, sheared(zeros, 0, 1), "sform has values that are not finite")
    refuse(tmp_path, sheared(zeros, -20480, 67), "sform has values that are not finite")
    plain = read(tmp_path, patched(QFORM_CODE, "2h", 1, 0))
    both = read(tmp_path, sheared(zeros, 1, 1))
    assert both.origin_lps == plain.origin_lps
    assert both.direction.tolist() == plain.direction.tolist()


def by_itk(path: Path) -> np.ndarray:
    """Steps and origin, 3 x 4, as ITK and so Slicer reads them."""
    image = SimpleITK.ReadImage(str(path))
    direction = np.array(image.GetDirection()).reshape(3, 3)
    return np.column_stack([direction * image.GetSpacing(), image.GetOrigin()])


def grid(volume: Volume) -> np.ndarray:
    return np.column_stack([volume.direction * volume.spacing_mm[::-1], volume.origin_lps])


SHEARED = np.array([[-0.7, 0, 0, 12.5], [0, -0.9, -0.3, -30.25], [0, 0, 2.5, 101]])


@pytest.mark.parametrize("quaternion", [(0.1, -0.2, 0.3), (0.8, 0.7, 0.3)], ids=["valid", "long"])
@pytest.mark.parametrize("qfac", [1.0, -1.0])
def test_every_header_is_read_as_itk_reads_it_or_refused(tmp_path, quaternion, qfac):
    oblique = np.column_stack([rotation(10, 20, 30) * (0.7, 0.9, 2.5), (1, 2, 3)])
    forms = {"oblique": oblique, "mirrored": oblique * (1, 1, -1, 1), "sheared": SHEARED}
    read_count = 0
    for (name, sform), qform_code, sform_code in itertools.product(
        forms.items(), (0, 1, 2), (0, 1, 2, 4)
    ):
        data = patched(SROW, "12f", *sform.ravel())
        patched(QFORM_CODE, "2h", qform_code, sform_code, data=data)
        patched(PIXDIM, "4f", qfac, 0.7, 0.9, 2.5, data=data)
        patched(QUATERN, "6f", *quaternion, 10, 20, 30, data=data)
        (tmp_path / "a.nii").write_bytes(data)
        if name == "sheared" and sform_code in ((1, 2) if qform_code else (1, 2, 4)):
            continue  # followed, although ITK does not; see the tests of shear
        try:
            volume = Volume.read(tmp_path / "a.nii")
        except VolumeError:
            assert quaternion[0] == 0.8  # ITK makes some rotation of any quaternion
            continue
        np.testing.assert_allclose(grid(volume), by_itk(tmp_path / "a.nii"), atol=1e-4)
        np.testing.assert_array_equal(volume.array, pattern())
        read_count += 1
    assert read_count > 10  # with a long quaternion, where there is no qform or ITK uses the sform


@pytest.mark.parametrize("codes", [(0, 0), (1, 0), (0, 1), (1, 2)])
def test_negative_spacing_is_refused(tmp_path, codes):
    """ITK and Slicer mirror the scan by it."""
    for axis in (1, 2, 3):
        data = patched(PIXDIM + 4 * axis, "f", -1.5)
        refuse(tmp_path, patched(QFORM_CODE, "2h", *codes, data=data), "-1.5.* must be positive")


@pytest.mark.parametrize("quaternion", [(0.8, 0.7, 0.3), (float("nan"), 0, 0)])
def test_invalid_qform_is_refused_where_itk_uses_it(tmp_path, quaternion):
    for codes in ((1, 0), (2, 0), (1, 2), (1, 4)):
        data = patched(QUATERN, "3f", *quaternion)
        refuse(tmp_path, patched(QFORM_CODE, "2h", *codes, data=data), "qform is invalid")


def test_invalid_qform_does_no_harm_where_itk_uses_the_sform(tmp_path):
    expected = grid(read(tmp_path, nifti(direction=rotation(10, 20, 30))))
    for codes in ((0, 1), (2, 1)):
        data = patched(QUATERN, "3f", 0.8, 0.7, 0.3, data=nifti(direction=rotation(10, 20, 30)))
        volume = read(tmp_path, patched(QFORM_CODE, "2h", *codes, data=data))
        np.testing.assert_allclose(grid(volume), expected, atol=1e-4)
        np.testing.assert_allclose(by_itk(tmp_path / "a.nii"), expected, atol=1e-4)


def test_half_turn_whose_quaternion_was_rounded_is_read(tmp_path):
    data = patched(QUATERN, "3f", 0.7072, 0.7071, 0.0)
    volume = read(tmp_path, patched(QFORM_CODE, "2h", 1, 0, data=data))
    np.testing.assert_allclose(grid(volume), by_itk(tmp_path / "a.nii"), atol=1e-4)


def test_sform_that_only_itk_finds_sheared_is_read(tmp_path):
    sform = np.array([[-0.7, 0, 0, 10], [0, -0.9, 0.002, 20], [0, 0, 2.5, 30]])
    volume = read(tmp_path, sheared(sform, 0, 1))
    np.testing.assert_allclose(volume.origin_lps, (-10, -20, 30))
    np.testing.assert_array_equal(volume.array, pattern())


def test_sheared_sform_far_from_the_qform_is_said(tmp_path, caplog):
    read(tmp_path, sheared(SHEARED, 0, 1))  # ITK and Slicer refuse it
    assert "Slicer" not in caplog.text
    read(tmp_path, sheared(SHEARED, 1, 1))
    # The fifth slice is moved by 4 x 0.3 mm.
    assert "Slicer use the qform, by which voxels are up to 1.2 mm away" in caplog.text


def test_missing_spacing_of_a_missing_axis_is_no_matter(tmp_path):
    data = patched(PIXDIM + 12, "f", 0.0, data=nifti(pattern((6, 7))))
    assert read(tmp_path, data).is_planar


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (patched(PIXDIM + 4, "f", 0.0), "spacing"),
        (patched(PIXDIM + 4, "f", float("nan")), "spacing"),
        (patched(PIXDIM + 4, "f", float("inf")), "spacing"),
        (patched(DIM, "h", 9), "impossible size"),
        (patched(DIM + 2, "h", -7), "impossible size"),
        (patched(DIM + 2, "h", 0), "impossible size"),
        (patched(DIM + 2, "h", 30000), "truncated"),
        (patched(DIM, "8h", 7, 7, 6, 5, 1, 1, 2, 1), "dimensions"),
        (patched(DIM, "8h", 5, 7, 3, 1, 5, 2, 1, 1), "dimensions"),
        (patched(DATATYPE, "h", 32), "data type"),
        (patched(DATATYPE, "h", 77), "data type"),
        (patched(VOX_OFFSET, "f", 5.0), "impossible voxel offset"),
        (patched(VOX_OFFSET, "f", -5.0), "impossible voxel offset"),
        (patched(VOX_OFFSET, "f", float("nan")), "impossible voxel offset"),
        (patched(VOX_OFFSET, "f", 1e9), "truncated"),
        (nifti()[:200], "header"),
        (nifti()[:-1], "truncated"),
    ],
)
def test_damaged_header_is_refused(tmp_path, data, reason):
    refuse(tmp_path, data, reason)


def test_damaged_or_hostile_compressed_data_is_refused(tmp_path):
    data = bytearray(gzip.compress(bytes(nifti())))
    data[-6] ^= 1  # the checksum
    refuse(tmp_path, data, "damaged")
    header = patched(DIM, "8h", 3, 30000, 30000, 300, 1, 1, 1, 1)[:352]
    refuse(tmp_path, gzip.compress(bytes(header) + bytes(100_000)), "truncated")


@pytest.mark.parametrize("given", ["a.hdr", "a.img"])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_pair_of_header_and_voxels_is_read(tmp_path, given, is_compressed):
    image = itk_image(pattern(), direction=rotation(10, 20, 30))
    SimpleITK.WriteImage(image, str(tmp_path / "a.img"))
    assert (tmp_path / "a.hdr").read_bytes()[344:347] == b"ni1"
    if is_compressed:
        for name in ("a.hdr", "a.img"):
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
            (tmp_path / name).unlink()
        given += ".gz"
    volume = Volume.read(tmp_path / given)
    np.testing.assert_array_equal(volume.array, pattern())
    np.testing.assert_allclose(volume.origin_lps, image.GetOrigin(), atol=1e-4)
    np.testing.assert_allclose(volume.direction, rotation(10, 20, 30), atol=1e-5)


def test_single_file_that_calls_itself_a_pair_is_read(tmp_path):
    SimpleITK.WriteImage(itk_image(pattern()), str(tmp_path / "a.nii"))
    data = bytearray((tmp_path / "a.nii").read_bytes())
    data[344:347] = b"ni1"
    np.testing.assert_array_equal(read(tmp_path, data).array, pattern())


def test_half_of_a_pair_and_header_of_analyze_are_refused(tmp_path):
    SimpleITK.WriteImage(itk_image(pattern()), str(tmp_path / "a.img"))
    (tmp_path / "a.img").rename(tmp_path / "b.img")
    refused(tmp_path / "a.hdr", r"an \.img file of the same name")
    data = bytearray((tmp_path / "a.hdr").read_bytes()[:348])
    data[344:348] = b"\0" * 4
    (tmp_path / "a.hdr").write_bytes(data)
    refused(tmp_path / "a.hdr", "left from right")
