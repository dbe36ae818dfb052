"""Siemens mosaics: all slices of a volume as tiles of one image."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pydicom
from pydicom.dataset import Dataset

from pumit.errors import VolumeError
from pumit.geometry import Floats
from pumit.io.dicom.files import first_value
from pumit.io.parser_errors import parser_errors

_HEADER, _CSA = "SIEMENS MR HEADER", "SIEMENS CSA HEADER"
_MOST_TAGS = 1000


@dataclass(frozen=True)
class Mosaic:
    """Slice arrangement of a mosaic.

    Attributes:
        count: Number of slices; tiles are in row-major order.
        normal_lps: Direction from one slice to the next, LPS.
    """

    count: int
    normal_lps: Floats
    gap_mm: float


def read_mosaic(path: Path) -> Mosaic:
    """Read the slice arrangement of a mosaic from the private header.

    Raises:
        VolumeError: If the private header is gone or incomplete.
    """
    header = pydicom.dcmread(path, stop_before_pixels=True, force=True)
    private = _private_values(header)
    count = _tile_count(header, private)
    normal = _vector(private.get("SliceNormalVector", []))
    gap = first_value(header, "SpacingBetweenSlices") or first_value(header, "SliceThickness")
    if count is None or normal is None or not gap:
        raise VolumeError(
            "The DICOM file is a Siemens mosaic, slices as tiles of one picture, without the "
            "private header that states their number and order; export the series from the "
            "scanner again, either not as mosaics or with all private attributes."
        )
    return Mosaic(count, normal, abs(float(gap)))


def _tile_count(header: Dataset, private: dict[str, list[str]]) -> int | None:
    try:
        count = int(header.private_block(0x0019, _HEADER)[0x0A].value)
    except parser_errors():
        numbers = private.get("NumberOfImagesInMosaic", [])
        count = int(float(numbers[0])) if numbers else 0
    return count if count > 0 else None


def _vector(texts: list[str]) -> Floats | None:
    try:
        vector = np.array([float(text) for text in texts[:3]])
    except ValueError:
        return None
    return vector if vector.shape == (3,) and np.isfinite(vector).all() and vector.any() else None


def _private_values(header: Dataset) -> dict[str, list[str]]:
    """Read the CSA image header as values by name; empty if it is gone or damaged.

    Source:
        Layout as documented by nibabel, https://nipy.org/nibabel/dicom/siemens_csa.html.
    """
    try:
        data = bytes(header.private_block(0x0029, _CSA)[0x10].value)
        return _csa(data)
    except parser_errors():
        return {}


def _csa(data: bytes) -> dict[str, list[str]]:
    is_second = data[:4] == b"SV10"
    at = 8 if is_second else 0
    (tags, _), at = struct.unpack_from("<2I", data, at), at + 8
    found: dict[str, list[str]] = {}
    base = 0
    for number in range(min(tags, _MOST_TAGS)):
        name, _, _, _, items, _ = struct.unpack_from("<64si4s3i", data, at)
        at += 84
        base = items if number == 0 else base
        texts = []
        for _ in range(items):
            lengths = struct.unpack_from("<4i", data, at)
            at += 16
            length = lengths[1] if is_second else lengths[0] - base
            if length < 0 or at + length > len(data):
                break
            texts.append(data[at : at + length].split(b"\0")[0].decode("latin-1").strip())
            at += -(-length // 4) * 4
        found[name.split(b"\0")[0].decode("latin-1")] = [text for text in texts if text]
    return found
