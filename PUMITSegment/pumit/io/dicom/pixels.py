"""Stored pixels of DICOM files as intensities: HU, Bq/ml, or what the scanner meant."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import SimpleITK
from pydicom.dataset import Dataset, FileDataset
from pydicom.pixels import apply_color_lut, apply_modality_lut, pixel_array

from pumit.errors import VolumeError
from pumit.geometry import Array
from pumit.io.dicom.slices import DicomSlice
from pumit.io.parser_errors import muted_stderr, parser_errors, parsing


def read_pixels(slices: Sequence[DicomSlice]) -> Array:
    """Read slices of one size, in the order given.

    Rescale slope and intercept are applied slice by slice; PET has one pair per slice. Values
    that stay whole numbers stay integers. Colour becomes RGB. MONOCHROME1 is not inverted:
    intensities are the file's.

    Returns:
        (D, H, W), or (3, D, H, W) for colour, or (frames, 1, H, W) for a cine.

    Raises:
        VolumeError: If pixels are missing, damaged, or compressed in a way nothing here decodes.
    """
    rows, columns, samples = slices[0].size
    with parsing("DICOM pixel data"):
        if len(slices) == 1 and slices[0].position_lps is None:
            return _projection(slices[0])
        shape = (len(slices), rows, columns) + ((samples,) if samples > 1 else ())
        array = np.empty(shape, dtype=_result_type(slices))
        decoded: tuple[Path | None, Array] = (None, array)
        for index, s in enumerate(slices):
            if decoded[0] != s.file.path:
                decoded = (s.file.path, _decode(s))
            frames = decoded[1]
            if s.frame >= len(frames) or frames.shape[1:] != shape[1:]:
                raise VolumeError(
                    f"A DICOM file holds {len(frames)} frames of {frames.shape[1:3]} pixels where "
                    f"its header promises frame {s.frame + 1} of {(rows, columns)}; "
                    "export the series again."
                )
            values = _rescaled(frames[s.frame], s)
            if not _fits(values, array.dtype):
                array = array.astype(np.int32)
            array[index] = values
    return np.ascontiguousarray(np.moveaxis(array, -1, 0)) if samples > 1 else array


def _projection(s: DicomSlice) -> Array:
    frames = _decode(s)
    array = np.stack([_rescaled(frame, s) for frame in frames])
    if _fits(array, _result_type([s])):
        array = array.astype(_result_type([s]))
    if array.ndim == 4:
        if len(array) > 1:
            raise VolumeError(
                f"A colour cine of {len(array)} frames cannot be segmented; export one frame."
            )
        return np.ascontiguousarray(np.moveaxis(array, -1, 0))
    return array if len(array) == 1 else array[:, None]


def _is_exact(s: DicomSlice) -> bool:
    header = s.file.header
    has_table = bool(header.get("ModalityLUTSequence"))
    is_integer = int(header.get("BitsAllocated") or 16) <= 16
    return s.slope == 1 and s.intercept == round(s.intercept) and is_integer and not has_table


def _result_type(slices: Sequence[DicomSlice]) -> np.dtype[Any]:
    """Smallest type that holds every intensity the headers allow, at most 16 bits.

    A CT may announce 16 bits unsigned and use 12: the voxels decide whether 32 are needed.
    """
    if not all(_is_exact(s) for s in slices):
        return np.dtype(np.float32)
    low = high = 0.0
    for s in slices:
        bits = min(int(s.file.header.get("BitsStored") or 16), 16)
        is_signed = int(s.file.header.get("PixelRepresentation") or 0) == 1
        first, last = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
        low, high = min(low, first + s.intercept), max(high, last + s.intercept)
    for kind in (np.uint8, np.int16, np.uint16):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return np.dtype(kind)
    return np.dtype(np.int16)


def _fits(values: Array, dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "f":
        return True
    limits = np.iinfo(dtype)
    return bool(limits.min <= values.min() and values.max() <= limits.max)


def _rescaled(stored: Array, s: DicomSlice) -> Array:
    if stored.dtype.kind == "f" or (s.slope, s.intercept) == (1, 0):
        return stored
    return np.asarray(stored * np.float64(s.slope) + s.intercept)


def _decode(s: DicomSlice) -> Array:
    """All frames of a file: (F, H, W), or (F, H, W, 3) in RGB.

    Floating-point frames are intensities already, integers are stored values.
    """
    ds = pydicom.dcmread(s.file.path, force=True)
    if "PixelData" not in ds and "FloatPixelData" not in ds and "DoubleFloatPixelData" not in ds:
        raise VolumeError("A DICOM file of the series has no pixel data; export it again.")
    _complete_meta(ds)
    syntax = ds.file_meta.TransferSyntaxUID
    try:
        array = _with_pydicom(ds)
    except parser_errors() as error:
        if not syntax.is_compressed:
            raise
        array = _with_gdcm(s.file.path, syntax, error)
    is_colour = s.size[2] > 1
    expected = 4 if is_colour else 3
    return array[None] if array.ndim == expected - 1 else array


def _complete_meta(ds: FileDataset) -> None:
    """Objects without a file header are uncompressed, in the encoding that was met."""
    if "TransferSyntaxUID" not in ds.file_meta:
        is_implicit = ds.original_encoding[0]
        ds.file_meta.TransferSyntaxUID = (
            pydicom.uid.ImplicitVRLittleEndian
            if is_implicit
            else pydicom.uid.ExplicitVRLittleEndian
        )


def _with_pydicom(ds: Dataset) -> Array:
    array = pixel_array(ds)
    if ds.get("PhotometricInterpretation") == "PALETTE COLOR":
        return _palette(array, ds)
    if "ModalityLUTSequence" in ds and ds.ModalityLUTSequence:
        return np.asarray(apply_modality_lut(array, ds)).astype(np.float32)
    return array


def _palette(indices: Array, ds: Dataset) -> Array:
    colours = np.asarray(apply_color_lut(indices, ds))
    if colours.dtype == np.uint16:
        colours = (colours >> 8).astype(np.uint8)
    return colours[..., :3]


def _with_gdcm(path: Path, syntax: pydicom.uid.UID, cause: Exception) -> Array:
    """Decode with ITK's GDCM, which knows lossless JPEG, and rescales by itself."""
    try:
        with muted_stderr():
            reader = SimpleITK.ImageFileReader()
            reader.SetImageIO("GDCMImageIO")
            reader.SetFileName(os.fspath(path))
            array = SimpleITK.GetArrayFromImage(reader.Execute())
    except RuntimeError:
        raise VolumeError(
            f"DICOM pixels compressed as {syntax.name} cannot be decoded here, or they are "
            "damaged; decompress the series first, for example with gdcmconv --raw."
        ) from cause
    # Rescaled already: floating point says so.
    return array if array.ndim == 4 else array.astype(np.float32)
