"""Headers of compressed frames, checked before decoding.

Sources: JPEG ISO/IEC 10918-1 B.2, JPEG-LS ISO/IEC 14495-1 C.2, JPEG 2000 ISO/IEC 15444-1 A, RLE
DICOM PS3.5 G.
"""

import struct
from dataclasses import dataclass
from itertools import pairwise

from pydicom.dataset import Dataset
from pydicom.uid import RLELossless

from pumit.errors import VolumeError
from pumit.io.parser_errors import is_absurd

_JPEG, _JPEG_2000 = b"\xff\xd8", b"\xff\x4f\xff\x51"
_JP2 = b"\x00\x00\x00\x0cjP  "
# Start-of-frame markers; 0xC4, 0xC8 and 0xCC between them are not.
_JPEG_LS, _END = 0xF7, b"\xff\xd9"
_FRAMES = {*range(0xC0, 0xD0), _JPEG_LS} - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL, _ORDINARY_FRAMES = {0xC0, 0xC1}, {0xC0, 0xC1, _JPEG_LS}
_MOST_SCANS = 4
_SOT, _SOD, _EOC = 0xFF90, 0xFF93, 0xFFD9
_SIZ, _COD, _COC, _POC, _PPM, _PPT = 0xFF51, 0xFF52, 0xFF53, 0xFF5F, 0xFF60, 0xFF61
# Smallest ordinary tile, code-block and precinct: the decoder keeps a record of each, so tiny ones
# take much memory.
_TILE_PIXELS, _LEAST_BLOCK, _LEAST_PRECINCT = 1024, 2, 6
_MOST_LAYERS, _MOST_LEVELS = 64, 32
# RLE encodes up to 128 equal bytes in two; 128 unequal bytes take one more.
_LONGEST_RUN = 64


@dataclass(frozen=True)
class Codestream:
    """Header of a compressed frame.

    Attributes:
        samples: Samples per pixel.
        is_ordinary: Whether it is encoded as scanners do it. Other frames may be valid, but may
            also be crafted to take any amount of time and memory to decode.
    """

    rows: int
    columns: int
    samples: int
    bits: int
    is_ordinary: bool


def frame_bytes(ds: Dataset) -> int:
    """Return the uncompressed size of one frame, bytes."""
    values = int(ds.Rows) * int(ds.Columns) * int(ds.get("SamplesPerPixel") or 1)
    return (values * int(ds.BitsAllocated) + 7) // 8


def check_frame(ds: Dataset, encoded: bytes) -> bool:
    """Compare a compressed frame with the header of its object.

    Returns:
        Whether the frame is encoded as scanners do it; see `Codestream.is_ordinary`.

    Raises:
        VolumeError: If rows, columns, samples or bits contradict the header.
        ValueError: If the compression is unknown, or the frame is damaged.
        LookupError: If it is damaged.
        struct.error: If it is damaged.
    """
    rows, columns, bits = int(ds.Rows), int(ds.Columns), int(ds.BitsAllocated)
    samples = int(ds.get("SamplesPerPixel") or 1)
    if is_absurd(frame_bytes(ds), len(encoded)):
        raise ValueError("a frame too short for its size")
    if ds.file_meta.TransferSyntaxUID == RLELossless:
        plane_bytes = (rows * columns + 7) // 8 if bits == 1 else rows * columns
        _check_run_lengths(encoded, plane_bytes, samples * ((bits + 7) // 8))
        return True
    found = read_codestream(encoded)
    # Decoders return at least eight bits per sample.
    if (found.rows, found.columns, found.samples) != (rows, columns, samples) or (
        found.bits > max(bits, 8)
    ):
        raise VolumeError(
            f"A DICOM header states {rows} x {columns} pixels of {samples} x {bits} bits, but "
            f"its compressed pixels are {found.rows} x {found.columns} of {found.samples} x "
            f"{found.bits} bits: the file is damaged; export it again."
        )
    return found.is_ordinary


def read_codestream(encoded: bytes) -> Codestream:
    """Read the header of a JPEG, JPEG-LS or JPEG 2000 frame, whatever its transfer syntax says.

    Raises:
        ValueError: If it is none of these, or damaged.
        LookupError: If it is damaged.
        struct.error: If it is damaged.
    """
    if encoded.startswith(_JPEG):
        return _jpeg(encoded)
    if encoded.startswith(_JPEG_2000):
        return _jpeg_2000(encoded, 0)
    if encoded.startswith(_JP2):
        return _jpeg_2000(encoded, _content_of_jp2(encoded))
    raise ValueError("not a compressed frame of a known kind")


def _jpeg(data: bytes) -> Codestream:
    at = len(_JPEG)
    while True:
        if data[at] != 0xFF:
            raise ValueError("no marker")
        kind = data[at + 1]
        if kind == 0xFF:  # fill byte
            at += 1
            continue
        if kind in _FRAMES:
            break
        if kind in (0xD9, 0xDA):
            raise ValueError("no start of frame")
        is_alone = kind == 0x01 or 0xD0 <= kind <= 0xD8
        at += 2 if is_alone else 2 + max(struct.unpack_from(">H", data, at + 2)[0], 2)
    bits, rows, columns, samples = struct.unpack_from(">BHHB", data, at + 4)
    # Each scan takes few bytes but makes the decoder process the whole image.
    has_few_scans = kind not in _SEQUENTIAL or data.count(b"\xff\xda") <= _MOST_SCANS
    # CharLS takes seconds on a frame that is truncated and padded.
    is_whole = kind != _JPEG_LS or data.rstrip(b"\0").endswith(_END)
    is_ordinary = kind in _ORDINARY_FRAMES and has_few_scans and is_whole
    return Codestream(rows, columns, samples, bits, is_ordinary)


def _content_of_jp2(data: bytes) -> int:
    at = 0
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"jp2c":
            start = at + (16 if length == 1 else 8)
            if data[start : start + 4] != _JPEG_2000:
                break
            return start
        if length < 8:
            break
        at += length
    raise ValueError("no codestream")


def _jpeg_2000(data: bytes, start: int) -> Codestream:
    # The SIZ segment: image and tile size, then three bytes for each component.
    right, bottom, left, top, tile_w, tile_h, tile_left, tile_top, samples = struct.unpack_from(
        ">8IH", data, start + 8
    )
    parts = [struct.unpack_from(">3B", data, start + 42 + 3 * k) for k in range(samples)]
    rows, columns = bottom - top, right - left
    if not samples or not tile_w or not tile_h or rows < 1 or columns < 1:
        raise ValueError("impossible size")
    tiles = -(-(right - tile_left) // tile_w) * -(-(bottom - tile_top) // tile_h)
    is_ordinary = (
        start == 0
        and all(part[1:] == (1, 1) for part in parts)
        and 0 < tiles <= 1 + rows * columns // _TILE_PIXELS
        and _has_ordinary_segments(data, start + 2)
    )
    bits = max((part[0] & 0x7F) + 1 for part in parts)
    return Codestream(rows, columns, samples, bits, is_ordinary)


def _has_ordinary_segments(data: bytes, at: int) -> bool:
    """Whether all tiles use the coding style of the main header, with large blocks."""
    part = end = 0
    while at + 4 <= len(data):
        kind, length = struct.unpack_from(">HH", data, at)
        if kind == _SOT:
            part = at
            end = at + (struct.unpack_from(">I", data, at + 6)[0] or len(data))
        elif kind == _SOD:
            if end <= at:  # a tile that ends before its data would be walked for ever
                return False
            at = end
            continue
        elif kind == _EOC:
            break
        elif (
            kind in (_COC, _POC, _PPM, _PPT)
            or (kind == _COD and part)
            or (kind == _COD and not _is_ordinary_style(data[at + 4 : at + 2 + length]))
        ):
            return False
        at += 2 + max(length, 2)
    return True


def _is_ordinary_style(style: bytes) -> bool:
    flags, _order, layers, _mix, levels, width, height = struct.unpack_from(">BBHBBBB", style)
    # Code-blocks are 4 * 2**exponent wide, precincts 2**exponent at their resolution level.
    is_large = min(width, height) >= _LEAST_BLOCK
    if flags & 1:
        sizes = style[10 : 11 + levels]
        is_large = (
            is_large
            and len(sizes) == levels + 1
            and all(
                min(size & 15, size >> 4) + levels - level >= _LEAST_PRECINCT
                for level, size in enumerate(sizes)
            )
        )
    return is_large and layers <= _MOST_LAYERS and levels <= _MOST_LEVELS


def _check_run_lengths(data: bytes, size: int, planes: int) -> None:
    """Raise ValueError if RLE segments cannot hold byte planes of this size."""
    count, *offsets = struct.unpack_from("<16I", data)
    if count != planes or count > 15:
        raise ValueError("another number of segments")
    bounds = [*offsets[:count], len(data)]
    for first, last in pairwise(bounds):
        length = last - first
        if first < 64 or not size <= length * _LONGEST_RUN or length > 2 * size + 64:
            raise ValueError("a segment too short or too long for its plane")
