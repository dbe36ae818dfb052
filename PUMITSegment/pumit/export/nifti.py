"""NIfTI files in memory: for servers, which write nothing to a disk."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from pumit.export.spacing import written_spacing_mm
from pumit.volume import Volume

_HEADER_BYTES, _DATA_OFFSET = 348, 352
_MILLIMETRES, _SCANNER = 2, 1
_RGB = 128
# Codes of NIfTI-1 (nifti1.h).
_CODES = {"u1": 2, "i2": 4, "i4": 8, "f4": 16, "f8": 64, "i1": 256, "u2": 512, "u4": 768}


def nifti_bytes(array: npt.NDArray[Any], volume: Volume, *, note: str = "") -> bytes:
    """Write voxels as an uncompressed NIfTI-1 file.

    What NIfTI viewers do not read, such as 64-bit integers, becomes float32.

    Args:
        array: Intensities or labels, (D, H, W), or (3, D, H, W) of uint8 for colours.
        volume: The volume whose grid they are on; of a planar one see `written_spacing_mm`.
        note: Text of the header's `descrip`, at most 79 bytes.
    """
    is_colour = array.ndim == 4
    kind = f"{array.dtype.kind}{array.dtype.itemsize}".replace("b1", "u1")
    code = _RGB if is_colour else _CODES.get(kind, _CODES["f4"])
    if kind not in _CODES:
        array, kind = array.astype(np.float32), "f4"
    d, h, w = array.shape[-3:]
    # 1. The grid in RAS mm: columns are steps along W, H and D.
    spacing = written_spacing_mm(volume)[::-1]
    axes = np.diag([-1.0, -1.0, 1.0]) @ volume.direction
    origin = np.asarray(volume.origin_lps) * (-1, -1, 1)
    side = 1.0 if np.linalg.det(axes) > 0 else -1.0
    x, y, z, r = Rotation.from_matrix(axes * (1, 1, side)).as_quat()
    turn = np.array([x, y, z]) * (1 if r >= 0 else -1)
    # 2. The header; what is not set is 0.
    head = bytearray(_DATA_OFFSET)
    bits = 24 if is_colour else 8 * array.dtype.itemsize
    struct.pack_into("<i", head, 0, _HEADER_BYTES)
    struct.pack_into("<8h", head, 40, 3, w, h, d, 1, 1, 1, 1)
    struct.pack_into("<2h", head, 70, code, bits)
    struct.pack_into("<8f", head, 76, side, *spacing, 0, 0, 0, 0)
    struct.pack_into("<3f", head, 108, _DATA_OFFSET, 1, 0)
    head[123] = _MILLIMETRES
    struct.pack_into("<80s", head, 148, note.encode("utf-8")[:79])
    struct.pack_into("<2h", head, 252, _SCANNER, _SCANNER)
    struct.pack_into("<6f", head, 256, *turn, *origin)
    rows = np.column_stack([axes * spacing, origin])
    struct.pack_into("<12f", head, 280, *rows.ravel())
    head[344:348] = b"n+1\0"
    # 3. The voxels, W fastest.
    voxels = np.moveaxis(array, 0, -1) if is_colour else array
    stored = np.ascontiguousarray(voxels, dtype=voxels.dtype.newbyteorder("<"))
    return bytes(head) + stored.tobytes()
