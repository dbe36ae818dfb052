"""Generated scans for the loaders' tests."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import SimpleITK
from pumit.errors import VolumeError
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import (
    CTImageStorage,
    EnhancedCTImageStorage,
    ExplicitVRLittleEndian,
    generate_uid,
)
from scipy.spatial.transform import Rotation

Array = npt.NDArray[Any]

AXIAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def refused(path: Path, reason: str, **options: Any) -> str:
    """The one line with which a scan is refused; it names neither a folder nor a patient."""
    with pytest.raises(VolumeError, match=reason) as caught:
        Volume.read(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path.parent) not in message
    assert "secret" not in message.lower()
    return message


def rotation(*degrees: float) -> Array:
    """A rotation about x, y, z; its columns are a right-handed direction."""
    return np.asarray(Rotation.from_euler("xyz", degrees, degrees=True).as_matrix())


def pattern(shape: tuple[int, ...] = (5, 6, 7)) -> npt.NDArray[np.int16]:
    """Voxels that all differ."""
    return (np.arange(np.prod(shape)).reshape(shape) * 3 - 100).astype(np.int16)


def itk_image(
    array: Array,
    *,
    spacing: tuple[float, ...] = (0.7, 0.9, 2.5),
    origin: tuple[float, ...] = (-12.5, 30.25, 101.0),
    direction: Array | None = None,
    is_vector: bool = False,
) -> SimpleITK.Image:
    image = SimpleITK.GetImageFromArray(array, isVector=is_vector)
    size = image.GetDimension()
    image.SetSpacing((*spacing, 1.0)[:size])
    image.SetOrigin((*origin, 0.0)[:size])
    if direction is not None:
        full = np.eye(size)
        full[:3, :3] = direction
        image.SetDirection(full.ravel().tolist())
    return image


def dicom_slice(
    pixels: Array,
    position: tuple[float, ...] | None,
    *,
    series: str = "1.2.3",
    number: int = 1,
    orientation: tuple[float, ...] = AXIAL,
    pixel_spacing: tuple[float, float] | None = (0.9, 0.7),
    slope: float = 1.0,
    intercept: float = -1024.0,
    **more: Any,
) -> Dataset:
    """A CT slice that a strict reader accepts; `more` sets further attributes."""
    ds = Dataset()
    ds.SOPClassUID, ds.SOPInstanceUID = CTImageStorage, generate_uid()
    ds.StudyInstanceUID, ds.SeriesInstanceUID = "1.2", series
    ds.FrameOfReferenceUID = "1.2.9"
    ds.PatientName, ds.PatientID = "Secret^Patient", "SECRET-ID"
    ds.Modality, ds.SeriesDescription = "CT", "abdomen"
    ds.InstanceNumber = number
    if position is not None:
        ds.ImagePositionPatient = [round(float(p), 6) for p in position]
        ds.ImageOrientationPatient = [round(float(c), 9) for c in orientation]
    if pixel_spacing is not None:
        ds.PixelSpacing = list(pixel_spacing)
    is_colour = pixels.ndim == 3
    ds.Rows, ds.Columns = pixels.shape[:2]
    ds.SamplesPerPixel = 3 if is_colour else 1
    ds.PhotometricInterpretation = "RGB" if is_colour else "MONOCHROME2"
    if is_colour:
        ds.PlanarConfiguration = 0
    ds.BitsAllocated = ds.BitsStored = pixels.dtype.itemsize * 8
    ds.HighBit = ds.BitsStored - 1
    ds.PixelRepresentation = int(pixels.dtype.kind == "i")
    ds.RescaleSlope, ds.RescaleIntercept = slope, intercept
    data = np.ascontiguousarray(pixels).tobytes()
    ds.PixelData = data + b"\0" * (len(data) % 2)
    for keyword, value in more.items():
        setattr(ds, keyword, value)
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID
    ds.file_meta.MediaStorageSOPInstanceUID = ds.SOPInstanceUID
    return ds


def source_frames_of(path: Path) -> list[int]:
    """The source frames that a DICOM-SEG refers to, sorted."""
    return sorted(
        int(item.ReferencedFrameNumber)
        for frame in dcmread(path).PerFrameFunctionalGroupsSequence
        for derivation in frame.DerivationImageSequence
        for item in derivation.SourceImageSequence
    )


def save_unknown(ds: Dataset, path: Path) -> None:
    """Save an object whose transfer syntax pydicom does not know."""
    ds.preamble = b"\0" * 128
    ds.save_as(path, implicit_vr=False, little_endian=True, force_encoding=True)


def write_stack(
    folder: Path, positions: list[tuple[float, ...]], *, prefix: str = "", **more: Any
) -> npt.NDArray[np.int16]:
    """Write one file per position, named in no order; return the HU, slice by slice."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = (np.arange(len(positions) * 42).reshape(-1, 6, 7) * 2 + 900).astype(np.uint16)
    for k, (pixels, position) in enumerate(zip(stored, positions, strict=True)):
        ds = dicom_slice(pixels, position, number=k + 1, **more)
        name = f"{prefix}{(k * 7) % (len(positions) + 5)}-{k}.dcm"
        ds.save_as(folder / name, enforce_file_format=True)
    return (stored.astype(np.int32) - 1024).astype(np.int16)


def along_normal(
    count: int, gap_mm: float = 2.5, orientation: tuple[float, ...] = AXIAL
) -> list[tuple[float, ...]]:
    """Positions of evenly spaced slices."""
    axes = np.asarray(orientation).reshape(2, 3)
    step = gap_mm * np.cross(axes[0], axes[1])
    return [tuple(np.array([-50.0, 20, 100]) + k * step) for k in range(count)]


def group(**items: object) -> list[Dataset]:
    ds = Dataset()
    for keyword, value in items.items():
        setattr(ds, keyword, value)
    return [ds]


def write_enhanced(
    path: Path,
    positions: list[np.ndarray],
    *,
    orientation: tuple[float, ...] = AXIAL,
    slopes: list[float] | None = None,
    times: list[int] | None = None,
) -> np.ndarray:
    """Write one enhanced CT, intercept -1024; return its stored values, frame by frame."""
    stored = np.arange(len(positions) * 42, dtype=np.uint16).reshape(-1, 6, 7) + 900
    ds = dicom_slice(stored[0], None, pixel_spacing=None, SOPClassUID=EnhancedCTImageStorage)
    del ds.RescaleSlope, ds.RescaleIntercept
    ds.NumberOfFrames, ds.PixelData = len(positions), stored.tobytes()
    shared, frames = Dataset(), []
    shared.PixelMeasuresSequence = group(PixelSpacing=[0.9, 0.7], SliceThickness=2)
    shared.PlaneOrientationSequence = group(
        ImageOrientationPatient=[round(c, 9) for c in orientation]
    )
    for k, position in enumerate(positions):
        frame = Dataset()
        place = [round(float(p), 6) for p in position]
        frame.PlanePositionSequence = group(ImagePositionPatient=place)
        slope = slopes[k] if slopes else 1
        frame.PixelValueTransformationSequence = group(RescaleSlope=slope, RescaleIntercept=-1024)
        if times:
            frame.FrameContentSequence = group(TemporalPositionIndex=times[k])
        frames.append(frame)
    ds.SharedFunctionalGroupsSequence = [shared]
    ds.PerFrameFunctionalGroupsSequence = frames
    ds.save_as(path, enforce_file_format=True)
    return stored


def touch(folder: Path, *names: str) -> Path:
    """Make empty files, and return their folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder
