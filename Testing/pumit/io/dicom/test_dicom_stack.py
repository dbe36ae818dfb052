"""A DICOM series becomes HU on the patient's grid, or a sentence that says what is wrong."""

import re

import numpy as np
import pytest
from generated_scans import AXIAL, along_normal, dicom_slice, refused, rotation, write_stack
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.encaps import encapsulate

OBLIQUE = tuple(rotation(20, -30, 40)[:, :2].T.ravel())
SAGITTAL = (0.0, 1.0, 0.0, 0.0, 0.0, -1.0)


@pytest.mark.parametrize("orientation", [AXIAL, OBLIQUE, SAGITTAL])
def test_slices_are_sorted_along_their_normal(tmp_path, orientation):
    positions = along_normal(9, orientation=orientation)
    hu = write_stack(tmp_path / "ct", positions[::-1], orientation=orientation)[::-1]
    volume = Volume.read(tmp_path / "ct")
    np.testing.assert_array_equal(volume.array, hu)
    assert volume.array.dtype == np.int16
    assert volume.spacing_mm == pytest.approx((2.5, 0.9, 0.7), abs=1e-5)
    row, column = np.asarray(orientation).reshape(2, 3)
    for k, position in enumerate(positions):
        np.testing.assert_allclose(volume.index_to_world((k, 0, 0)), position, atol=1e-4)
        expected = np.asarray(position) + 3 * 0.7 * row + 2 * 0.9 * column
        np.testing.assert_allclose(volume.index_to_world((k, 2, 3)), expected, atol=1e-4)
    assert volume.source.series_instance_uid == "1.2.3"
    places = [dcmread(file).ImagePositionPatient for file in volume.source.files]
    np.testing.assert_allclose(places, positions, atol=1e-4)


def test_every_slice_has_its_own_rescale(tmp_path):
    stored = np.full((4, 5), 100, np.uint16)
    for k, slope in enumerate((0.5, 2.0, 0.25)):
        ds = dicom_slice(stored, (0, 0, 3.0 * k), slope=slope, intercept=0.0, Modality="PT")
        ds.save_as(tmp_path / f"{k}.dcm", enforce_file_format=True)
    volume = Volume.read(tmp_path)
    np.testing.assert_allclose(volume.array[:, 0, 0], (50, 200, 25))
    assert volume.array.dtype == np.float32
    stored = np.array([[0, 65535]], np.uint16)  # a wide range stays exact
    dicom_slice(stored, (0, 0, 0)).save_as(tmp_path / "0.dcm", enforce_file_format=True)
    np.testing.assert_array_equal(Volume.read(tmp_path / "0.dcm").array[0], [[-1024, 64511]])


@pytest.mark.parametrize("has_thickness", [True, False])
def test_slices_of_several_thicknesses_are_not_missing(tmp_path, has_thickness):
    """As of a head: thin ones at the base of the skull, thick ones above."""
    offset = 0.0
    thicknesses = [2.5] * 12 + [5.0] * 5
    for k, thickness in enumerate(thicknesses):
        offset += (thickness + thicknesses[max(k - 1, 0)]) / 2
        more = {"SliceThickness": thickness} if has_thickness else {}
        ds = dicom_slice(np.zeros((6, 7), np.uint16), (0, 0, offset), number=k + 1, **more)
        ds.save_as(tmp_path / f"{k}.dcm", enforce_file_format=True)
    refused(tmp_path, "spaced unequally, 2.50 to 5.00 mm apart")
    (tmp_path / "4.dcm").unlink()
    if has_thickness:
        refused(tmp_path, "missing")


def test_rounded_positions_are_taken_as_even(tmp_path):
    positions = [(0.0, 0.0, round(0.625 * k, 1)) for k in range(20)]
    hu = write_stack(tmp_path / "ct", positions)
    volume = Volume.read(tmp_path / "ct")
    np.testing.assert_array_equal(volume.array, hu)
    assert volume.spacing_mm[0] == pytest.approx(0.625, abs=0.01)


def test_unequal_gaps_are_interpolated_to_even_ones(tmp_path):
    heights = np.array([0, 2.0, 4.0, 6.6, 9.2, 11.8, 13.8, 15.8])
    stored = [np.full((4, 5), round(1000 + 10 * z), np.uint16) for z in heights]
    for k, (pixels, z) in enumerate(zip(stored, heights, strict=True)):
        dicom_slice(pixels, (0, 0, z)).save_as(tmp_path / f"{k}.dcm", enforce_file_format=True)
    volume = Volume.read(tmp_path)
    assert volume.array.dtype == np.int16
    d = volume.shape[0]
    world = volume.index_to_world([(k, 0, 0) for k in range(d)])[:, 2]
    assert world[0] == 0
    assert world[-1] == pytest.approx(15.8)
    np.testing.assert_allclose(volume.array[:, 0, 0], 10 * world - 24, atol=0.51)


def test_gantry_tilt_becomes_a_perpendicular_grid(tmp_path):
    tilt = 0.8  # mm along H per slice
    positions = [(0.0, tilt * k, 2.5 * k) for k in range(10)]
    for k, position in enumerate(positions):
        pixels = np.full((12, 10), 1000, np.uint16)
        pixels[6, 4] = 3000  # a rod that follows the tilt
        ds = dicom_slice(pixels, position, pixel_spacing=(0.8, 0.8))
        ds.save_as(tmp_path / f"{k}.dcm", enforce_file_format=True)
    volume = Volume.read(tmp_path)
    assert volume.shape == (10, 21, 10)
    assert volume.spacing_mm == pytest.approx((2.5, 0.8, 0.8))
    assert len(volume.source.files) == 10
    for position in positions:
        d, h, w = np.round(volume.world_to_index(np.add(position, (3.2, 4.8, 0)))).astype(int)
        assert volume.array[d, h, w] == 3000 - 1024


def test_single_slice_or_file_is_planar_with_its_own_position(tmp_path):
    write_stack(tmp_path / "ct", [(1.0, 2.0, 3.0)], orientation=SAGITTAL)
    write_stack(tmp_path / "ct5", along_normal(5))
    volume = Volume.read(tmp_path / "ct")
    assert volume.spacing_mm == pytest.approx((PLANAR_SLICE_SPACING_MM, 0.9, 0.7))
    np.testing.assert_allclose(volume.index_to_world((0, 0, 1)), (1, 2.7, 3))
    volume = Volume.read(sorted((tmp_path / "ct5").iterdir())[0])
    assert volume.is_planar
    assert len(volume.source.files) == 1


@pytest.mark.parametrize(
    ("more", "spacing"),
    [({"ImagerPixelSpacing": [0.2, 0.1]}, (0.2, 0.1)), ({}, (1.0, 1.0))],
)
def test_x_ray_has_the_pixel_size_it_states(tmp_path, more, spacing):
    dx = "1.2.840.10008.5.1.4.1.1.1.1"
    pixels = np.arange(42, dtype=np.uint16).reshape(6, 7)
    ds = dicom_slice(
        pixels, None, SOPClassUID=dx, Modality="DX", intercept=0.0, pixel_spacing=None, **more
    )
    ds.save_as(tmp_path / "x.dcm", enforce_file_format=True)
    volume = Volume.read(tmp_path / "x.dcm")
    assert volume.spacing_mm == (PLANAR_SLICE_SPACING_MM, *spacing)
    np.testing.assert_array_equal(volume.array[0], pixels)


def test_colour_slices_become_three_channels(tmp_path):
    pixels = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
    for k in range(3):
        ds = dicom_slice(pixels, (0, 0, k), intercept=0.0)
        ds.save_as(tmp_path / f"{k}.dcm", enforce_file_format=True)
    volume = Volume.read(tmp_path)
    assert volume.array.shape == (3, 3, 6, 8)
    np.testing.assert_array_equal(volume.array[:, 1], np.moveaxis(pixels, -1, 0))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[132:],
        lambda content: content.replace(b"\2\0\x10\0UI", b"\2\0\x11\0UI"),
    ],
    ids=["preamble", "transfer syntax"],
)
def test_file_without_its_beginning_is_read(tmp_path, change):
    hu = write_stack(tmp_path / "ct", along_normal(3))
    for file in list((tmp_path / "ct").iterdir()):
        file.write_bytes(change(file.read_bytes()))
    np.testing.assert_array_equal(Volume.read(tmp_path / "ct").array, hu)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"pixel_spacing": (0.0, 0.7)}, "PixelSpacing must be positive"),
        ({"pixel_spacing": (-0.5, 0.7)}, "PixelSpacing must be positive"),
        ({"pixel_spacing": None}, "PixelSpacing is missing"),
        ({"orientation": (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)}, "ImageOrientationPatient"),
        ({"orientation": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)}, "ImageOrientationPatient"),
        ({"ImagePositionPatient": [1, 2]}, "ImagePositionPatient must be 3 numbers"),
    ],
)
def test_unusable_geometry_is_refused(tmp_path, more, reason):
    write_stack(tmp_path / "ct", along_normal(3), **more)
    refused(tmp_path / "ct", reason)


def test_pixel_spacing_that_differs_is_refused(tmp_path):
    write_stack(tmp_path / "ct", along_normal(3))
    write_stack(tmp_path / "ct", along_normal(6)[3:], prefix="b", pixel_spacing=(0.5, 0.5))
    refused(tmp_path / "ct", "PixelSpacing differs")


def test_compression_that_nothing_decodes_is_named(tmp_path):
    ds = dicom_slice(np.zeros((6, 7), np.uint16), (0, 0, 0))
    ds.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.4.201"
    ds.PixelData = encapsulate([b"\xff\x4f\xff\x51" + bytes(40)])
    ds["PixelData"].VR = "OB"
    ds.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    message = refused(tmp_path / "a.dcm", "High-Throughput JPEG 2000")
    assert re.search("decompress the series first", message)


@pytest.mark.parametrize(
    ("positions", "reason"),
    [
        (
            [p for k, p in enumerate(along_normal(9)) if k != 4],
            r"1 slice is missing: between slices 4 and 5 of 8 .* 5.00 mm where 2.50 mm .*"
            r"\(-50.0, 20.0, 110.0\)",
        ),
        (
            [p for k, p in enumerate(along_normal(12)) if k not in (3, 4, 9)],
            "3 slices are missing: between slices 3 and 4 of 9",
        ),
        ([*along_normal(6), (-50.0, 20.0, 100.3)], "0.30 mm apart where 2.50 mm is usual"),
        (
            [(-40.0 if k == 4 else x, y, z) for k, (x, y, z) in enumerate(along_normal(9))],
            "Slice 5 of 9 is shifted sideways by 10.00 mm",
        ),
    ],
)
def test_places_that_are_no_stack_are_named(tmp_path, positions, reason):
    write_stack(tmp_path / "ct", positions)
    refused(tmp_path / "ct", reason)


@pytest.mark.parametrize("part", [0.3, 0.7, 0.98])
def test_truncated_slice_is_refused(tmp_path, part):
    write_stack(tmp_path / "ct", along_normal(5))
    file = sorted((tmp_path / "ct").iterdir())[2]
    file.write_bytes(file.read_bytes()[: int(part * file.stat().st_size)])
    refused(tmp_path / "ct", "damaged|no pixel data|missing|mixes|must be|No DICOM|differ")


def test_pixels_of_another_size_than_promised_are_refused(tmp_path):
    ds = dicom_slice(np.zeros((6, 7), np.uint16), (0, 0, 0), Rows=60)
    ds.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    refused(tmp_path / "a.dcm", "damaged")
