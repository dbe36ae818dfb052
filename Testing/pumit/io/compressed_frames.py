"""Encodings of DICOM pixels for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate, generate_frames
from pydicom.uid import JPEGLosslessSV1

RAMP = (np.add.outer(np.arange(24), np.arange(32)) * 9 % 600 + 10).astype(np.uint16)


def jpeg_lossless(pixels: npt.NDArray[Any], folder: Path) -> bytes:
    """Encode a picture as ITK's GDCM does."""
    writer = SimpleITK.ImageFileWriter()
    writer.SetImageIO("GDCMImageIO")
    writer.UseCompressionOn()
    writer.SetCompressor("JPEG")
    writer.SetFileName(str(folder / "encoded.dcm"))
    writer.Execute(SimpleITK.GetImageFromArray(pixels[None]))
    encoded = dcmread(folder / "encoded.dcm")
    assert encoded.file_meta.TransferSyntaxUID == JPEGLosslessSV1
    return next(generate_frames(encoded.PixelData, number_of_frames=1))


def compressed(ds: Dataset, frames: list[bytes], syntax: str) -> Dataset:
    ds.file_meta.TransferSyntaxUID = syntax
    ds.PixelData = encapsulate(frames)
    ds["PixelData"].VR = "OB"
    ds["PixelData"].is_undefined_length = True
    return ds


def as_jpeg_lossless(ds: Dataset, folder: Path) -> Dataset:
    frames = np.frombuffer(ds.PixelData, np.uint16).reshape(-1, ds.Rows, ds.Columns)
    return compressed(ds, [jpeg_lossless(f, folder) for f in frames], JPEGLosslessSV1)
