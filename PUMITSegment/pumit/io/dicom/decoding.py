"""Stored pixel values of DICOM files, as they are before any rescale, table or inversion.

Every decoder gives the same: what is made of the values is one step for all (`pixels`).
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pydicom
import SimpleITK
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.encaps import generate_frames
from pydicom.pixels import iter_pixels, pixel_array
from pydicom.pixels.decoders.rle import _rle_decode_segment, _rle_parse_header
from pydicom.uid import UID, RLELossless, SecondaryCaptureImageStorage

from pumit.errors import VolumeError
from pumit.geometry import Array
from pumit.io.parser_errors import muted_stderr, parser_errors

DEFLATED_FRAMES = UID("1.2.840.10008.1.2.8.1")
# A frame that is deflated further than this is no image.
_MAX_DEFLATE_RATIO = 1100
# The attributes that decoders need; of others, such as a slope, GDCM would make something.
_IMAGE_PIXEL = (
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "PlanarConfiguration",
    "NumberOfFrames",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
)
_MULTIFRAME_CAPTURE = {
    1: UID("1.2.840.10008.5.1.4.1.1.7.2"),  # bytes
    2: UID("1.2.840.10008.5.1.4.1.1.7.3"),  # words
    3: UID("1.2.840.10008.5.1.4.1.1.7.4"),  # colours
}


def stored_frames(ds: FileDataset) -> Array:
    """Decode all frames of a file.

    Args:
        ds: The whole object.

    Returns:
        (F, H, W), or (F, H, W, 3) in RGB. Floating-point pixels are intensities already, integers
        are stored values: of no decoder rescaled, inverted, or looked up in a table.

    Raises:
        VolumeError: If there are no pixels, or nothing here decodes their compression.
    """
    if "PixelData" not in ds and "FloatPixelData" not in ds and "DoubleFloatPixelData" not in ds:
        raise VolumeError("A DICOM file of the series has no pixel data; export it again.")
    _complete_meta(ds)
    syntax = ds.file_meta.TransferSyntaxUID
    try:
        frames = list(_deflated_frames(ds)) if is_deflated(syntax) else None
        array = pixel_array(ds) if frames is None else np.stack(frames)
    except parser_errors() as error:
        if is_deflated(syntax) or not syntax.is_compressed:
            raise
        array = _with_gdcm(ds, error)
    expected = 4 if int(ds.get("SamplesPerPixel") or 1) > 1 else 3
    return array[None] if array.ndim == expected - 1 else array


def frames_one_by_one(ds: FileDataset, indices: list[int]) -> Iterator[Array]:
    """Stored values of chosen frames, (Rows, Columns), in their order, one at a time.

    Packed bits, compressed or not, are frames of 0 and 1.
    """
    syntax = ds.file_meta.TransferSyntaxUID
    is_packed = int(ds.BitsAllocated) == 1
    if is_deflated(syntax) or (is_packed and syntax == RLELossless):
        found = list(_deflated_frames(ds) if is_deflated(syntax) else _packed_rle_frames(ds))
        return iter([found[index] for index in indices])
    if is_packed and not syntax.is_compressed:
        return _bits(ds, indices)
    return iter_pixels(ds, indices=indices, raw=True)


def is_deflated(syntax: UID) -> bool:
    """Whether frames are deflated one by one (PS3.5 A.4.13), which pydicom 3.0 does not know."""
    return syntax == DEFLATED_FRAMES


def _complete_meta(ds: FileDataset) -> None:
    """Objects without a file header are uncompressed, in the encoding that was met."""
    if "TransferSyntaxUID" not in ds.file_meta:
        is_implicit = ds.original_encoding[0]
        ds.file_meta.TransferSyntaxUID = (
            pydicom.uid.ImplicitVRLittleEndian
            if is_implicit
            else pydicom.uid.ExplicitVRLittleEndian
        )


def _bits(ds: Dataset, indices: list[int]) -> Iterator[Array]:
    """Frames of packed bits, which begin anywhere in a byte (pydicom 3.0 loses these ends)."""
    size = int(ds.Rows) * int(ds.Columns)
    packed = np.frombuffer(ds.PixelData, dtype=np.uint8)
    for index in indices:
        first = index * size
        part = packed[first // 8 : (first + size + 7) // 8]
        bits = np.unpackbits(part, bitorder="little")[first % 8 :][:size]
        yield bits.reshape(int(ds.Rows), int(ds.Columns))


def _encoded_frames(ds: Dataset) -> Iterator[bytes]:
    count = max(int(ds.get("NumberOfFrames") or 1), 1)
    yield from generate_frames(ds.PixelData, number_of_frames=count)


def _deflated_frames(ds: Dataset) -> Iterator[Array]:
    samples = int(ds.get("SamplesPerPixel") or 1)
    shape = (int(ds.Rows), int(ds.Columns)) + ((samples,) if samples > 1 else ())
    if samples > 1 and int(ds.get("PlanarConfiguration") or 0):
        raise VolumeError("Deflated colour frames by plane cannot be read; decompress the file.")
    bits = int(ds.BitsAllocated)
    size = (int(np.prod(shape)) * bits + 7) // 8
    for encoded in _encoded_frames(ds):
        if size > len(encoded) * _MAX_DEFLATE_RATIO:
            raise ValueError("a frame too short for its size")
        data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(encoded, size)
        if bits == 1:
            yield _unpacked(data, shape)
            continue
        kind = "i" if int(ds.get("PixelRepresentation") or 0) else "u"
        values = np.frombuffer(data, dtype=f"<{kind}{bits // 8}", count=int(np.prod(shape)))
        yield values.reshape(shape).astype(values.dtype.newbyteorder("="))


def _packed_rle_frames(ds: Dataset) -> Iterator[Array]:
    """Frames of packed bits in one run-length encoded segment each, as dcmqi writes them."""
    shape = (int(ds.Rows), int(ds.Columns))
    for encoded in _encoded_frames(ds):
        (first, *more) = _rle_parse_header(encoded[:64])
        if more:
            raise ValueError("packed bits in several segments")
        yield _unpacked(bytes(_rle_decode_segment(encoded[first:])), shape)


def _unpacked(data: bytes, shape: tuple[int, ...]) -> Array:
    size = int(np.prod(shape))
    if len(data) * 8 < size:
        raise ValueError("a frame too short for its size")
    packed = np.frombuffer(data, dtype=np.uint8)
    return np.unpackbits(packed, bitorder="little")[:size].reshape(shape)


def _with_gdcm(ds: FileDataset, cause: Exception) -> Array:
    """Decode with ITK's GDCM, which knows lossless JPEG.

    GDCM gets nothing but the pixels and their format: of a whole header it would apply the first
    frame's slope to all, invert MONOCHROME1, and pass over tables.
    """
    syntax = ds.file_meta.TransferSyntaxUID
    try:
        with tempfile.TemporaryDirectory(prefix="pumit-") as folder, muted_stderr():
            file = Path(folder, "pixels.dcm")
            _bare(ds).save_as(file, enforce_file_format=True)
            reader = SimpleITK.ImageFileReader()
            reader.SetImageIO("GDCMImageIO")
            reader.SetFileName(os.fspath(file))
            array: Array = SimpleITK.GetArrayFromImage(reader.Execute())
    except parser_errors():
        raise VolumeError(
            f"DICOM pixels compressed as {syntax.name} cannot be decoded here, or they are "
            "damaged; decompress the series first, for example with gdcmconv --raw."
        ) from cause
    return array


def _bare(ds: FileDataset) -> Dataset:
    """A secondary capture of the same encoded pixels, whose values mean nothing but themselves."""
    bare = Dataset()
    for keyword in _IMAGE_PIXEL:
        if keyword in ds:
            setattr(bare, keyword, ds[keyword].value)
    samples = int(ds.get("SamplesPerPixel") or 1)
    if samples == 1:
        bare.PhotometricInterpretation = "MONOCHROME2"
    kind = 3 if samples > 1 else 1 if int(ds.BitsAllocated) <= 8 else 2
    is_multiframe = int(ds.get("NumberOfFrames") or 1) > 1
    bare.SOPClassUID = _MULTIFRAME_CAPTURE[kind] if is_multiframe else SecondaryCaptureImageStorage
    bare.SOPInstanceUID = "1.2.3"
    bare.PixelData = ds.PixelData
    bare["PixelData"].VR = "OB"
    bare["PixelData"].is_undefined_length = True
    bare.file_meta = FileMetaDataset()
    bare.file_meta.TransferSyntaxUID = ds.file_meta.TransferSyntaxUID
    return bare
