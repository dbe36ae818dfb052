"""Pixels have the size that a header states anywhere, and a warning if Slicer takes another."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from generated_scans import dicom_slice, refused
from pumit.volume import Volume
from pydicom.dataset import Dataset

ROOT = "1.2.840.10008.5.1.4.1.1."
ULTRASOUND, CINE, RADIOTHERAPY = "6.1", "3.1", "481.1"
PIXELS = np.arange(42, dtype=np.uint8).reshape(6, 7)
WHOLE, LEFT, RIGHT = (0, 0, 6, 5), (0, 0, 2, 5), (3, 0, 6, 5)


def region(
    down_cm: float = 0.04, right_cm: float = 0.03, box: tuple[int, ...] = WHOLE, **more: Any
) -> Dataset:
    """A calibrated region of tissue in two dimensions; `more` changes it."""
    ds = Dataset()
    ds.RegionSpatialFormat = ds.RegionDataType = 1
    ds.RegionFlags = 0
    ds.RegionLocationMinX0, ds.RegionLocationMinY0 = box[:2]
    ds.RegionLocationMaxX1, ds.RegionLocationMaxY1 = box[2:]
    ds.PhysicalUnitsXDirection = ds.PhysicalUnitsYDirection = 3
    ds.PhysicalDeltaX, ds.PhysicalDeltaY = right_cm, down_cm
    for keyword, value in more.items():
        setattr(ds, keyword, value)
    return ds


def written(path: Path, sop_class: str, **more: Any) -> Path:
    """An image without a position, of a SOP class given without its root."""
    options = {"pixel_spacing": None, "intercept": 0.0, "SOPClassUID": ROOT + sop_class}
    ds = dicom_slice(PIXELS, None, **options | more)
    if frames := more.get("NumberOfFrames"):
        ds.PixelData = PIXELS.tobytes() * frames
    ds.save_as(path, enforce_file_format=True)
    return path


def in_plane(volume: Volume) -> tuple[float, float]:
    return volume.spacing_mm[1:]


@pytest.mark.parametrize(
    ("regions", "size_mm"),
    [
        ([region(-0.04, 0.03)], (0.4, 0.3)),  # the axis points up
        ([region(box=LEFT), region(box=RIGHT)], (0.4, 0.3)),
        ([region(RegionSpatialFormat=2, PhysicalUnitsXDirection=4), region(box=LEFT)], (0.4, 0.3)),
        ([region(0.1, 0.1, RegionDataType=10), region(box=LEFT)], (0.4, 0.3)),
        ([region(), region(box=LEFT, PhysicalUnitsXDirection=0)], (0.4, 0.3)),
        ([region(box=LEFT), region(0.05, 0.03, box=RIGHT)], (1.0, 1.0)),
        ([region(box=LEFT), region(PhysicalUnitsYDirection=0)], (1.0, 1.0)),
        ([region(float("nan"))], (1.0, 1.0)),
        ([region(RegionDataType=2)], (1.0, 1.0)),
        ([region(PhysicalDeltaX=None)], (1.0, 1.0)),
        ([], (1.0, 1.0)),
    ],
)
def test_ultrasound_has_the_pixel_size_of_its_regions(tmp_path, caplog, regions, size_mm):
    for kind, more in ((ULTRASOUND, {}), (CINE, {"NumberOfFrames": 3})):
        caplog.clear()
        more |= {"Modality": "US", "SequenceOfUltrasoundRegions": regions}
        path = written(tmp_path / "us.dcm", kind, **more)
        volume = Volume.read(path)
        assert in_plane(volume) == pytest.approx(size_mm)
        # Pixels correspond to Slicer's, which are of 1 mm.
        image = SimpleITK.ReadImage(str(path))
        assert image.GetSpacing()[:2] == (1, 1)
        by_itk = SimpleITK.GetArrayFromImage(image)
        np.testing.assert_array_equal(volume.array.ravel(), by_itk.ravel())
        is_said = "0.4 x 0.3 mm, but Slicer takes 1 x 1 mm" in caplog.text
        assert is_said == (size_mm != (1.0, 1.0))


@pytest.mark.parametrize(
    ("more", "size_mm", "is_said"),
    [
        ({}, (0.4, 0.3), False),
        ({"RadiationMachineSAD": 1000, "RTImageSID": 1500}, (0.8 / 3, 0.2), True),
        ({"RadiationMachineSAD": 1000, "RTImageSID": 1000}, (0.4, 0.3), False),
        ({"RadiationMachineSAD": 1000}, (0.4, 0.3), False),
        ({"RadiationMachineSAD": 1000, "RTImageSID": 0}, (0.4, 0.3), False),
    ],
)
def test_radiotherapy_image_is_measured_at_the_isocentre(tmp_path, caplog, more, size_mm, is_said):
    path = written(
        tmp_path / "a.dcm",
        RADIOTHERAPY,
        Modality="RTIMAGE",
        ImagePlanePixelSpacing=[0.4, 0.3],
        **more,
    )
    assert in_plane(Volume.read(path)) == pytest.approx(size_mm)
    assert ("but Slicer takes 0.4 x 0.3 mm" in caplog.text) == is_said


KINDS = (
    *("1", "1.1", "1.1.1", "1.2", "1.2.1", "1.3", "1.3.1", "12.1", "12.2", "12.3"),
    *("2", "2.1", "3.1", "4", "4.1", "6.1", "7", "7.1", "7.2", "7.3", "7.4", "20", "481.1"),
    *("77.1.1", "77.1.2", "77.1.2.1", "77.1.4", "77.1.4.1", "77.1.5.1", "77.1.5.4", "128"),
)


@pytest.mark.parametrize(
    "stated",
    [
        {"pixel_spacing": (0.4, 0.3)},
        {"ImagerPixelSpacing": [0.2, 0.1]},
        {"NominalScannedPixelSpacing": [0.6, 0.5]},
        {"ImagePlanePixelSpacing": [0.9, 0.8]},
        {"pixel_spacing": (0.4, 0.3), "ImagerPixelSpacing": [0.2, 0.1]},
        {"pixel_spacing": (0.4, 0.3), "ImagerPixelSpacing": [0.4, 0.3]},
        {"pixel_spacing": (0.4, 0.3), "ImagerPixelSpacing": [0, 0]},
        {"pixel_spacing": (0.2, 0.1), "SequenceOfUltrasoundRegions": [region()]},
        {"pixel_spacing": (0.4, 0.3), "NominalScannedPixelSpacing": [0.6, 0.5]},
    ],
)
def test_a_size_is_said_to_differ_from_slicers_where_it_does(tmp_path, caplog, stated):
    for kind in KINDS:
        caplog.clear()
        path = written(tmp_path / "a.dcm", kind, **stated)
        right, down, _ = SimpleITK.ReadImage(str(path)).GetSpacing()
        differs = in_plane(Volume.read(path)) != pytest.approx((down, right))
        assert ("but Slicer takes" in caplog.text) == differs, kind
        assert not differs or f"but Slicer takes {down:g} x {right:g} mm" in caplog.text


def test_size_that_is_no_length_is_refused(tmp_path):
    path = written(tmp_path / "a.dcm", RADIOTHERAPY, ImagePlanePixelSpacing=[0.0, 1.0])
    refused(path, "ImagePlanePixelSpacing must be positive")
