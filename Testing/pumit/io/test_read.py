"""Scans keep their voxels and positions in every format, and bad files end in one line."""

import gzip
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from generated_scans import dicom_slice, itk_image, pattern, refused, rotation
from PIL import Image
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.io.images.picture import _pixels
from pumit.volume import Volume

FORMATS = ["nii", "nii.gz", "nrrd", "nhdr", "mha", "mhd"]
FLIP = np.diag([1.0, 1.0, -1.0])
DIRECTIONS = {
    "axial": np.eye(3),
    "oblique": rotation(20, -35, 50),
    "left-handed": rotation(20, -35, 50) @ FLIP,
    "sagittal": np.array([[0.0, 0, -1], [1, 0, 0], [0, -1, 0]]),
}


def assert_is_image(volume: Volume, image: SimpleITK.Image) -> None:
    """Every voxel has the value and the world position that ITK wrote."""
    array = SimpleITK.GetArrayFromImage(image)
    np.testing.assert_array_equal(volume.array, array)
    d, h, w = volume.shape
    for k, j, i in [(0, 0, 0), (d - 1, 0, 0), (0, h - 1, 0), (0, 0, w - 1), (d - 1, h - 1, w - 1)]:
        expected = image.TransformIndexToPhysicalPoint((i, j, k))
        np.testing.assert_allclose(volume.index_to_world((k, j, i)), expected, atol=1e-4)


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize("direction", DIRECTIONS.values(), ids=DIRECTIONS)
def test_voxels_keep_value_type_and_world_position(tmp_path, extension, direction):
    path = tmp_path / f"scan.{extension}"
    for dtype in (np.uint8, np.int16, np.uint16, np.int32, np.float32, np.float64):
        image = itk_image((pattern() % 251).astype(dtype), direction=direction)
        SimpleITK.WriteImage(image, str(path))
        volume = Volume.read(path)
        assert volume.array.dtype == dtype
        assert_is_image(volume, image)
        np.testing.assert_allclose(volume.direction, direction, atol=1e-6)
        assert volume.source is None


@pytest.mark.parametrize("extension", ["nii.gz", "nrrd", "mha"])
def test_times_and_components_become_channels(tmp_path, extension):
    times, direction = pattern((4, 5, 6, 7)), rotation(10, 20, 30)
    parts = pattern((5, 6, 7, 3)).astype(np.float32)
    path = tmp_path / f"scan.{extension}"
    for image, expected in (
        (itk_image(times, direction=direction), times),
        (itk_image(times[:1], direction=direction), times[0]),
        (itk_image(parts, direction=direction, is_vector=True), parts.transpose(3, 0, 1, 2)),
    ):
        SimpleITK.WriteImage(image, str(path))
        volume = Volume.read(path)
        np.testing.assert_array_equal(volume.array, expected)
        np.testing.assert_allclose(volume.direction, direction, atol=1e-6)
        assert volume.spacing_mm == pytest.approx((2.5, 0.9, 0.7))


@pytest.mark.parametrize("extension", ["nii.gz", "nrrd", "mha"])
@pytest.mark.parametrize("shape", [(6, 7), (1, 6, 7)])
def test_single_slice_is_planar(tmp_path, extension, shape):
    path = tmp_path / f"scan.{extension}"
    SimpleITK.WriteImage(itk_image(pattern(shape)), str(path))
    volume = Volume.read(path)
    assert volume.shape == (1, 6, 7)
    assert volume.is_planar
    assert volume.spacing_mm == pytest.approx((PLANAR_SLICE_SPACING_MM, 0.9, 0.7))


@pytest.mark.parametrize("extension", ["nii", "nii.gz", "nrrd", "mha"])
def test_content_decides_not_the_name(tmp_path, extension):
    image = itk_image(pattern(), direction=DIRECTIONS["left-handed"])
    SimpleITK.WriteImage(image, str(tmp_path / f"scan.{extension}"))
    for name in ("upload", "upload.nii.gz", "upload.png", "Aufnahme äöü 中.nrrd"):
        shutil.copy(tmp_path / f"scan.{extension}", tmp_path / name)
        assert_is_image(Volume.read(tmp_path / name, series="1.2.3"), image)  # only of DICOM


@pytest.mark.parametrize("extension", ["nii.gz", "nrrd", "mha"])
def test_few_nonfinite_voxels_get_the_smallest_value_and_many_are_refused(
    tmp_path, extension, caplog
):
    array = pattern().astype(np.float32)
    damaged = array.copy()
    damaged[0, 0, :3] = (np.nan, np.inf, -np.inf)
    path = tmp_path / f"scan.{extension}"
    SimpleITK.WriteImage(itk_image(damaged), str(path))
    with caplog.at_level(logging.WARNING):
        volume = Volume.read(path)
    (warning,) = [r.getMessage() for r in caplog.records if r.name.startswith("pumit")]
    assert warning.startswith("3 voxels ")
    assert "-91" in warning
    np.testing.assert_array_equal(volume.array[1:], array[1:])
    np.testing.assert_array_equal(volume.array[0, 0, :3], -91)
    for part in (0.6, 1.0):
        array.ravel()[: round(part * array.size)] = np.nan
        SimpleITK.WriteImage(itk_image(array), str(path))
        refused(path, "NaN or infinite")


@pytest.mark.parametrize("extension", FORMATS)
def test_truncated_file_is_refused(tmp_path, extension, capfd):
    path = tmp_path / f"scan.{extension}"
    noise = np.random.default_rng(0).integers(0, 1000, (9, 20, 30)).astype(np.int16)
    SimpleITK.WriteImage(itk_image(noise), str(path), extension != "nii")
    data = max(tmp_path.iterdir(), key=lambda p: p.stat().st_size)
    content = data.read_bytes()
    for part in (0.1, 0.5, 0.9, 0.99):
        data.write_bytes(content[: int(part * len(content))])
        refused(path, "damaged|truncated|ends within|known kind")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "content",
    # Without a time, so that all processes of a test run collect the same tests.
    [b"", b"\0", b"hello\n", b"\x1f\x8b", b"\0" * 5000, gzip.compress(b"no image" * 100, mtime=0)],
)
def test_file_that_is_no_image_is_refused(tmp_path, content):
    for name in ("a.nii", "a.nii.gz", "a.nrrd", "a.mha", "a.png", "a.dcm", "a.zip"):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, "empty|known kind|damaged")


def test_path_that_leads_to_no_image_is_refused(tmp_path):
    refused(tmp_path / "scan.nii", "no file or folder 'scan.nii'")
    refused(tmp_path, "No DICOM image found: no DICOM objects")
    (tmp_path / "readme.txt").write_text("nothing here")
    refused(tmp_path, "No DICOM image found: no DICOM objects")
    if hasattr(os, "mkfifo"):  # is not waited for
        os.mkfifo(tmp_path / "pipe.nii")
        refused(tmp_path / "pipe.nii", "neither a file nor a folder")


@pytest.mark.parametrize("name", ["a.nii.gz", "folder"])
def test_missing_permission_is_named(tmp_path, monkeypatch, name):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
        target, method = os, "walk"
    else:
        path.write_bytes(b"x")
        target, method = Path, "open"

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    # Root may read everything, so the refusal is the test's own.
    monkeypatch.setattr(target, method, refuse)
    refused(path, "permission")


@pytest.mark.parametrize("extension", ["nrrd", "mha"])
@pytest.mark.parametrize(
    ("nrrd", "mha", "reason"),
    [
        (
            (b"sizes: 7 6 5", b"sizes: 7000 6000 500"),
            (b"DimSize = 7 6 5", b"DimSize = 7000 6000 5"),
            "header states|memory|damaged",
        ),
        (
            (b"(1,0,0) (0,2,0)", b"(0,0,0) (0,2,0)"),
            (b"ElementSpacing = 1 2 3", b"ElementSpacing = 0 2 3"),
            "zero voxel spacing",
        ),
        (
            (b"(1,0,0) (0,2,0)", b"(1,0,0) (2,0.02,0)"),
            (b"TransformMatrix = 1 0 0 0 1 0", b"TransformMatrix = 1 0 0 1 0 0"),
            "parallel|damaged",
        ),
    ],
    ids=["size", "spacing", "axes"],
)
def test_impossible_header_is_refused(tmp_path, extension, nrrd, mha, reason):
    path = tmp_path / f"scan.{extension}"
    SimpleITK.WriteImage(itk_image(pattern(), spacing=(1.0, 2.0, 3.0)), str(path))
    path.write_bytes(path.read_bytes().replace(*nrrd).replace(*mha))
    refused(path, reason)


@pytest.mark.parametrize(
    ("extension", "old", "new", "said"),
    [
        ("nrrd", b"endian", b'space units: "um" "um" "um"\nendian', "lengths in um"),
        ("nrrd", b"endian", b'space units: "\xce\xbcm" "mm" "mm"\nendian', "lengths in \u03bcm"),
        ("nrrd", b"endian", b'space units: "mm" "mm" "cm"\nendian', "lengths in cm"),
        ("nrrd", b"endian", b'space units: "mm" "mm" "mm"\nendian', ""),
        ("nrrd", b"", b"", ""),
        ("nrrd", b"space directions:", b"#", "no voxel spacing"),
        ("mha", b"ElementSpacing", b"ElementSpaces ", "no voxel spacing"),
        ("mha", b"", b"", ""),
    ],
)
def test_lengths_that_are_not_millimetres_are_said(tmp_path, caplog, extension, old, new, said):
    path = tmp_path / f"scan.{extension}"
    SimpleITK.WriteImage(itk_image(pattern()), str(path))
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    Volume.read(path)
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)


@pytest.mark.parametrize("extension", ["nrrd", "mha"])
def test_sheared_header_becomes_a_perpendicular_grid(tmp_path, extension):
    path = tmp_path / f"scan.{extension}"
    ramp = np.arange(5.0)[:, None, None] + np.zeros((5, 6, 7))
    SimpleITK.WriteImage(itk_image(ramp, spacing=(1.0, 1.0, 2.0)), str(path))
    content = path.read_bytes().replace(b"(0,0,2)", b"(0,0.5,2)")
    content = content.replace(b"0 1 0 0 0 1\n", b"0 1 0 0 0.2425356 0.9701425\n")
    path.write_bytes(content)
    volume = Volume.read(path)
    assert volume.shape[0] == 5
    assert volume.shape[1] == 8
    assert np.abs(volume.direction.T @ volume.direction - np.eye(3)).max() < 1e-9


def test_16_bit_gray_keeps_its_values_as_older_versions_of_pillow_hold_it():
    values = np.array([[0, 256, 65_535]], np.int32)
    pixels = _pixels(Image.fromarray(values))
    assert pixels.dtype == np.uint16
    np.testing.assert_array_equal(pixels, values)


def test_preamble_of_another_kind_is_still_dicom(tmp_path):
    """Its 128 bytes are free: some hold a TIFF, a NIfTI header's length or a picture's start."""
    pixels = np.arange(42, dtype=np.uint16).reshape(6, 7)
    for k, start in enumerate(
        (
            b"\x5c\x01\x00\x00",
            b"\x89PNG\r\n\x1a\n",
            b"PK\x03\x04",
            b"NRRD0004",
            b"\x1f\x8b",
            b"II*\0",
        )
    ):
        ds = dicom_slice(pixels, (0, 0, 0), intercept=0.0)
        path = tmp_path / f"{k}.dcm"
        ds.save_as(path, enforce_file_format=True)
        data = path.read_bytes()
        path.write_bytes(start.ljust(128, b"\0") + data[128:])
        np.testing.assert_array_equal(Volume.read(path).array[0], pixels)
        np.testing.assert_array_equal(
            SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(path))[0], pixels
        )
