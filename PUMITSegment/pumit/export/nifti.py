"""Writer of NIfTI-1 without ITK: in memory for servers, and for label maps."""

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.export.spacing import written_spacing_mm
from pumit.volume import Volume

_HEADER_BYTES, _DATA_OFFSET = 348, 352
_MILLIMETRES, _SCANNER = 2, 1
_RGB = 128
_GZIP = 31  # zlib's `wbits` for the largest window and the gzip format
# Data type codes of NIfTI-1 (nifti1.h).
_CODES = {"u1": 2, "i2": 4, "i4": 8, "f4": 16, "f8": 64, "i1": 256, "u2": 512, "u4": 768}


def nifti_bytes(array: npt.NDArray[Any], volume: Volume) -> bytes:
    """Return an uncompressed NIfTI-1 file; see `nifti_parts`."""
    return b"".join(nifti_parts(array, volume))


def gzipped_labels(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Compress a label map by gzip, with run-length matching only, which suffices for labels."""
    packer = zlib.compressobj(1, wbits=_GZIP, memLevel=9, strategy=zlib.Z_RLE)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def nifti_parts(array: npt.NDArray[Any], volume: Volume, *, note: str = "") -> Iterator[bytes]:
    """Yield the parts of a NIfTI-1 file: its header, then slice after slice.

    Types that NIfTI viewers do not read, such as 64-bit integers, become float32.

    Args:
        array: Intensities or labels, (D, H, W), or (3, D, H, W) of uint8 for colours.
        volume: Volume whose grid they are on; a planar one gets `written_spacing_mm`.
        note: Text for `descrip`, cut to 79 bytes.
    """
    import SimpleITK  # takes longer than writing another kind of file

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
    u, _, vt = np.linalg.svd(axes * (1, 1, side))  # the nearest rotation
    versor = SimpleITK.VersorTransform()
    versor.SetMatrix((u @ vt).ravel().tolist())
    quaternion = np.array(versor.GetVersor())
    turn = quaternion[:3] * (1 if quaternion[3] >= 0 else -1)
    # 2. The header; other fields are 0.
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
    yield bytes(head)
    # 3. The voxels, W fastest.
    for part in np.moveaxis(array, 0, -1) if is_colour else array:
        yield part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes()
