"""Intensities are the same whatever encoded the pixels."""

import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from compressed_frames import RAMP, as_jpeg_lossless, compressed, jpeg_lossless
from generated_scans import (
    along_normal,
    dicom_slice,
    save_unknown,
    write_enhanced,
    write_stack,
)
from pumit.errors import AmbiguousSeriesError
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import (
    ExplicitVRBigEndian,
    JPEGLosslessSV1,
    ParametricMapStorage,
    RLELossless,
)

CORONAL = (1.0, 0.0, 0.0, 0.0, 0.0, -1.0)
DEFLATED_FRAMES = "1.2.840.10008.1.2.8.1"


def read_both(tmp_path: Path, ds: Dataset) -> tuple[Volume, Volume]:
    """The same object plain and in lossless JPEG."""
    ds.save_as(tmp_path / "plain.dcm", enforce_file_format=True)
    as_jpeg_lossless(ds, tmp_path).save_as(tmp_path / "jpeg.dcm", enforce_file_format=True)
    return Volume.read(tmp_path / "plain.dcm"), Volume.read(tmp_path / "jpeg.dcm")


@pytest.mark.parametrize("syntax", ["plain", "RLE", "deflated", "JPEG"])
def test_only_the_wanted_frame_of_a_film_is_decoded(tmp_path, syntax):
    frames = np.zeros((40, 120, 161, 3), dtype=np.uint8)
    frames[:, 2:50, 3:70, 1] = np.arange(40)[:, None, None]
    ds = dicom_slice(frames[0], None, intercept=0, NumberOfFrames=40, Modality="US")
    ds.PixelData = frames.tobytes()
    if syntax == "RLE":
        ds.compress(RLELossless)
    elif syntax == "deflated":
        parts = [zlib.compress(f.tobytes(), wbits=-zlib.MAX_WBITS) for f in frames]
        compressed(ds, [part + b"\0" * (len(part) % 2) for part in parts], DEFLATED_FRAMES)
    elif syntax == "JPEG":
        compressed(ds, [jpeg_lossless(f, tmp_path) for f in frames], JPEGLosslessSV1)
    save_unknown(ds, tmp_path / "film.dcm")
    Volume.read(tmp_path / "film.dcm", series="1.2.3#1")  # imports what decodes it
    tracemalloc.start()
    try:
        volume = Volume.read(tmp_path / "film.dcm", series="1.2.3#31")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(volume.array[:, 0], np.moveaxis(frames[30], -1, 0))
    assert peak < (tmp_path / "film.dcm").stat().st_size + frames.nbytes / 4


def table() -> Dataset:
    """A modality table that no straight line replaces."""
    item = Dataset()
    item.LUTDescriptor = [700, 0, 16]
    item.ModalityLUTType = "US"
    values = (np.arange(700) ** 1.5).astype(np.uint16)
    item.add_new(0x00283006, "OW", values.tobytes())
    return item


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"PhotometricInterpretation": "MONOCHROME1"},
        {"PhotometricInterpretation": "MONOCHROME1", "slope": 2.5, "intercept": -7.0},
        {"ModalityLUTSequence": [table()]},
        {"ModalityLUTSequence": [table()], "PhotometricInterpretation": "MONOCHROME1"},
        {"BitsStored": 12, "HighBit": 11},
    ],
)
def test_lossless_jpeg_means_the_same_intensities(tmp_path, more):
    ds = dicom_slice(RAMP, None, Modality="DX", **more)
    if "ModalityLUTSequence" in more:
        del ds.RescaleSlope, ds.RescaleIntercept
    plain, jpeg = read_both(tmp_path, ds)
    np.testing.assert_array_equal(jpeg.array, plain.array)
    assert jpeg.array.dtype == plain.array.dtype
    slope, intercept = more.get("slope", 1.0), more.get("intercept", -1024.0)
    is_table, is_inverted = "ModalityLUTSequence" in more, "PhotometricInterpretation" in more
    expected = np.floor(RAMP.astype(float) ** 1.5) if is_table else RAMP.astype(float)
    expected = 65535 - expected if is_inverted else expected  # after the table
    expected = expected if is_table else expected * slope + intercept
    np.testing.assert_array_equal(plain.array[0], expected)


def image(pixels: np.ndarray, **more: Any) -> Dataset:
    """A radiograph whose largest value is black."""
    options = {"PhotometricInterpretation": "MONOCHROME1", "Modality": "DX", "intercept": 0.0}
    return dicom_slice(pixels, None, **options | more)


@pytest.mark.parametrize(
    ("dtype", "more"),
    [
        (np.uint8, {}),
        (np.uint16, {}),
        (np.uint16, {"BitsStored": 12, "HighBit": 11}),
        (np.uint16, {"BitsStored": 12, "HighBit": 11, "slope": 2.0, "intercept": -1000.0}),
        (np.uint16, {"RescaleType": "US"}),
        (np.int16, {}),
    ],
)
def test_image_whose_largest_value_is_black_is_inverted_as_by_itk(tmp_path, caplog, dtype, more):
    pixels = (RAMP % 120).astype(dtype) - (60 if dtype is np.int16 else 0)
    ds = image(pixels.astype(dtype), **more)
    ds.save_as(tmp_path / "plain.dcm", enforce_file_format=True)
    read = [Volume.read(tmp_path / "plain.dcm")] if dtype is np.uint8 else read_both(tmp_path, ds)
    expected = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "plain.dcm")))
    for volume in read:
        np.testing.assert_array_equal(volume.array, expected)
        assert np.corrcoef(volume.array.ravel(), pixels.ravel())[0, 1] < -0.99
    assert caplog.text.count("intensities are inverted") == len(read)


def test_each_slice_of_a_series_is_inverted_with_one_warning(tmp_path, caplog):
    dark = {"Modality": "MR", "PhotometricInterpretation": "MONOCHROME1"}
    stored = write_stack(tmp_path / "mr", along_normal(4), intercept=0.0, **dark) + 1024
    np.testing.assert_array_equal(Volume.read(tmp_path / "mr").array, 65535 - stored.astype(int))
    assert caplog.text.count("intensities are inverted") == 1


@pytest.mark.parametrize(
    "more",
    [
        {"Modality": "CT", "RescaleType": "HU"},
        {"Modality": "CT", "ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"]},
        {"Modality": "PT", "Units": "BQML"},
        {"RescaleType": "OD"},
    ],
)
def test_intensities_with_a_unit_are_not_inverted(tmp_path, caplog, more):
    plain, jpeg = read_both(tmp_path, image(RAMP, intercept=-1024.0, **more))
    np.testing.assert_array_equal(plain.array[0], RAMP.astype(int) - 1024)
    np.testing.assert_array_equal(jpeg.array, plain.array)
    assert caplog.text.count("while Slicer inverts them") == 2


def test_floating_point_pixels_are_not_inverted(tmp_path, caplog):
    ds = image(RAMP, BitsAllocated=32, SOPClassUID=ParametricMapStorage)
    del ds.PixelData, ds.BitsStored, ds.HighBit, ds.PixelRepresentation
    ds.FloatPixelData = RAMP.astype("<f4").tobytes()
    ds.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    np.testing.assert_array_equal(Volume.read(tmp_path / "a.dcm").array[0], RAMP)
    assert "MONOCHROME1" not in caplog.text


def test_each_frame_has_its_own_slope_in_lossless_jpeg_too(tmp_path):
    places = [np.array([0.0, 0, 3 * k]) for k in range(3)]
    slopes = [0.5, 1.0, 2.0]
    stored = write_enhanced(tmp_path / "e.dcm", places, slopes=slopes)
    plain, jpeg = read_both(tmp_path, dcmread(tmp_path / "e.dcm"))
    expected = stored * np.reshape(slopes, (3, 1, 1)) - 1024
    np.testing.assert_allclose(plain.array, expected)
    np.testing.assert_array_equal(jpeg.array, plain.array)


@pytest.mark.parametrize(("bits", "in_words"), [(8, False), (8, True), (16, True)])
@pytest.mark.parametrize("is_big_endian", [False, True])
def test_palette_has_the_same_colours_in_each_byte_order(tmp_path, bits, is_big_endian, in_words):
    """Tables of 8 bits are stored in bytes or in words."""
    index = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
    ds = dicom_slice(index, None, intercept=0.0, PhotometricInterpretation="PALETTE COLOR")
    ramp = np.arange(256)
    colours = {"Red": ramp, "Green": 255 - ramp, "Blue": ramp // 2}
    order = ">" if is_big_endian else "<"
    for colour, values in colours.items():
        if bits == 16:
            data = (values * 257).astype(f"{order}u2").tobytes()
        elif in_words:
            data = values.astype(f"{order}u2").tobytes()
        else:  # the first of two bytes is the lower one of a word
            data = values.astype(np.uint8).view("<u2").astype(f"{order}u2").tobytes()
        ds.add_new(f"{colour}PaletteColorLookupTableDescriptor", "US", [256, 0, bits])
        ds.add_new(f"{colour}PaletteColorLookupTableData", "OW", data)
    if is_big_endian:
        ds.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
        ds["PixelData"].VR = "OB"
    ds.save_as(tmp_path / "us.dcm", enforce_file_format=True)
    array = Volume.read(tmp_path / "us.dcm").array[:, 0]
    for found, values in zip(array, colours.values(), strict=True):
        np.testing.assert_array_equal(found, values[index])


def test_slope_that_nobody_filled_in_is_one(tmp_path, caplog):
    hu = write_stack(tmp_path / "ct", along_normal(3), slope=0.0)
    np.testing.assert_array_equal(Volume.read(tmp_path / "ct").array, hu)
    assert caplog.text.count("slope of 0") == 1


def test_deflated_frames_and_run_lengths_are_read(tmp_path):
    for dtype in (np.uint8, np.int16):
        pixels = (RAMP % 200).astype(dtype) - dtype(3 if dtype is np.int16 else 0)
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        frame = packer.compress(pixels.tobytes()) + packer.flush()
        deflated = dicom_slice(pixels, None, intercept=0.0)
        compressed(deflated, [frame + b"\0" * (len(frame) % 2)], DEFLATED_FRAMES)
        run_lengths = dicom_slice(pixels, None, intercept=0.0)
        run_lengths.compress(RLELossless)
        for ds in (deflated, run_lengths):
            save_unknown(ds, tmp_path / "a.dcm")
            np.testing.assert_array_equal(Volume.read(tmp_path / "a.dcm").array[0], pixels)


@pytest.mark.parametrize(
    ("modality", "more", "unit"),
    [
        ("CT", {"RescaleType": "HU"}, "HU"),
        ("CT", {"ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"]}, "HU"),
        ("CT", {"ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER"]}, ""),
        ("CT", {"ImageType": ["DERIVED", "SECONDARY"]}, ""),
        ("CT", {"RescaleType": "Z_EFF", "ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"]}, ""),
        ("PT", {"Units": "BQML", "RescaleType": "US"}, "Bq/ml"),
        ("PT", {"Units": "GML"}, "SUV (g/ml)"),
        ("PT", {"Units": "PROPCPS"}, ""),
        ("MR", {"RescaleType": "HU"}, ""),
        ("DX", {}, ""),
    ],
)
def test_unit_of_intensities_is_the_one_that_dicom_states(tmp_path, modality, more, unit):
    place = None if modality == "DX" else (0.0, 0.0, 0.0)
    ds = dicom_slice(np.ones((4, 5), np.uint16), place, Modality=modality, **more)
    ds.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    source = Volume.read(tmp_path / "a.dcm").source
    assert source.intensity_unit == unit


@pytest.mark.parametrize("place", [None, (10.0, 20.0, 30.0)])
def test_each_frame_of_a_film_in_colours_is_an_image_to_choose(tmp_path, place):
    frames = np.arange(3 * 4 * 5 * 3, dtype=np.uint8).reshape(3, 4, 5, 3)
    more = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.3.1", "FrameIncrementPointer": 0x00181063}
    more |= {"intercept": 0, "NumberOfFrames": 3, "Modality": "US"}
    ds = dicom_slice(frames[0], place, orientation=CORONAL, **more)
    ds.PixelData = frames.tobytes()
    ds.save_as(tmp_path / "film.dcm", enforce_file_format=True)
    with pytest.raises(AmbiguousSeriesError, match=r"1\.2\.3#2 \(US, abdomen, frame 2 of 3"):
        Volume.read(tmp_path / "film.dcm")
    volume = Volume.read(tmp_path / "film.dcm", series="1.2.3#2")
    np.testing.assert_array_equal(volume.array[:, 0], np.moveaxis(frames[1], -1, 0))
    assert volume.source.frame == 2
    assert volume.origin_lps == (place or (0.0, 0.0, 0.0))
    assert np.array_equal(volume.direction, np.eye(3)) == (place is None)
