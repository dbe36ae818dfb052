"""Serialization of arrays: the `NNIA` envelope of the nnInteractive protocol with blosc2 chunks.

Layout, little-endian: `NNIA`, version (u8, 1), codec (u8: 1 Zstandard, 2 LZ4), number of axes (u8),
length of the dtype's name (u8), the name, the shape (i64 each), number of chunks (u32), and for
each chunk its uncompressed length (u64), compressed length (u64) and blosc2 bytes.

Input is untrusted: memory is allocated only after the declared type and shape have passed the
limits, and chunks are decoded only if their headers agree with the envelope. Pickle is never used,
hence not blosc2's `pack` functions.

On the same machine chunks are stored, not compressed. Stored chunks are written and read without
blosc2, whose import takes a second and holds the GIL.

Several arrays with JSON metadata travel in one bundle: length of the JSON (u32), the JSON, and for
each array its length (u64) and its envelope. The JSON's key `arrays` lists their names in order.
"""

import json
import math
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pumit.wire.protocol import ArrayError, TooLarge

_MAGIC = b"NNIA"
_VERSION = 1
# The envelope has no code for stored chunks; they are valid under either codec.
_CODECS = {"zstd": 1, "lz4": 2, "stored": 2}
Codec: TypeAlias = Literal["zstd", "lz4", "stored"]
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_DTYPES = frozenset(["bool", *_INTEGERS, "float16", "float32", "float64"])
# A multiple of every item size; small, so that other threads of a viewer are not blocked.
_CHUNK_BYTES = 1 << 22
_MAX_CHUNK_BYTES = 1 << 30
_MAX_AXES = 4
# Bytes that `read_header` needs at most: fields, dtype name and shape.
LONGEST_HEADER = 8 + max(map(len, _DTYPES)) + 8 * _MAX_AXES
# Limits of the chunk count. Clients send chunks of megabytes; one-byte chunks would cost a hundred
# times their size.
_FEW_CHUNKS = 4096
_USUAL_CHUNK_BYTES = 1 << 16

# Fields of a blosc2 chunk header (c-blosc2, README_CHUNK_FORMAT.rst).
_CHUNK_HEADER_BYTES = 32
_CHUNK_VERSIONS = range(2, 8)
_CHUNK_VERSION = 5  # of written chunks
_EXTENDED_HEADER = 0x05
_STORED = 0x02  # uncompressed, so that the codec is irrelevant
_STORED_BLOCK_BYTES = 1 << 13
_KNOWN_CODECS = (1, 4)  # LZ4 and Zstandard, as in the envelope
_KNOWN_FILTERS = (0, 1, 2)  # none, shuffle, bit shuffle
_UNSAFE_FLAGS = 0x01 | 0x02 | 0x08  # dictionary, longer header, lazy chunk (which names a file)
_UNINITIALISED = 4  # a run of uninitialised memory, which could hold another user's image

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ArrayHeader:
    """Header of an envelope; `payload_offset` is that of the chunks, bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    payload_offset: int

    @property
    def nbytes(self) -> int:
        """Size of the decoded array, bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class PackedArray:
    """An envelope in parts, to send a large array without joining them.

    Attributes:
        is_sent: Whether all parts were iterated over.
    """

    def __init__(self, parts: list[bytes | memoryview]) -> None:
        self._parts, self.is_sent = parts, False

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield from self._parts
        self.is_sent = True

    def __len__(self) -> int:
        """Size of the whole envelope, bytes."""
        return sum(map(len, self._parts))


def pack_array(array: Array, *, codec: Codec = "lz4") -> bytes:
    """Encode an array; see `pack_array_in_parts`."""
    return b"".join(pack_array_in_parts(array, codec=codec))


def pack_array_in_parts(array: Array, *, codec: Codec = "lz4") -> PackedArray:
    """Encode an array as parts that a client sends one by one.

    The GIL is released during compression, so that a viewer stays responsive. Stored chunks are
    views of the array.

    Args:
        array: Plain numbers, one to four axes, not empty.
        codec: "stored" (uncompressed) on the same machine, "lz4" on a fast network, "zstd" on a
            slow one.

    Raises:
        ArrayError: If the array has a type or shape that the envelope cannot hold.
    """
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    if array.dtype.name not in _DTYPES or not 1 <= array.ndim <= _MAX_AXES or array.size == 0:
        raise ArrayError(f"Cannot send an array of {array.dtype} with shape {array.shape}.")
    name = array.dtype.name.encode("ascii")
    head = struct.pack("<4sBBBB", _MAGIC, _VERSION, _CODECS[codec], array.ndim, len(name))
    raw = array.reshape(-1).view(np.uint8).data
    pieces = [raw[i : i + _CHUNK_BYTES] for i in range(0, len(raw), _CHUNK_BYTES)]
    shape = struct.pack(f"<{array.ndim}qI", *array.shape, len(pieces))
    parts: list[bytes | memoryview] = [head, name, shape]
    if codec == "stored":
        for piece in pieces:
            chunk_head = _stored_chunk_header(len(piece), array.itemsize)
            sizes = struct.pack("<QQ", len(piece), len(chunk_head) + len(piece))
            parts += [sizes, chunk_head, piece]
        return PackedArray(parts)
    import blosc2

    blosc2.set_releasegil(True)
    filters = [blosc2.Filter.NOFILTER if array.itemsize == 1 else blosc2.Filter.SHUFFLE]
    for piece in pieces:
        # clevel 1: higher levels do not compress the noise of scans better.
        chunk = blosc2.compress2(
            piece,
            typesize=array.itemsize,
            codec=blosc2.Codec.LZ4 if codec == "lz4" else blosc2.Codec.ZSTD,
            clevel=1,
            filters=filters,
        )
        parts += [struct.pack("<QQ", len(piece), len(chunk)), chunk]
    return PackedArray(parts)


def _stored_chunk_header(nbytes: int, itemsize: int) -> bytes:
    """Return the header of an uncompressed blosc2 chunk (README_CHUNK_FORMAT.rst)."""
    flags = _EXTENDED_HEADER | _STORED
    block = min(nbytes, _STORED_BLOCK_BYTES)
    sizes = (nbytes, block, nbytes + _CHUNK_HEADER_BYTES)
    # The other 16 bytes are 0 (no filters, no dictionary), except the codec's version.
    return struct.pack("<4B3i7xB8x", _CHUNK_VERSION, 1, flags, itemsize, *sizes, 1)


def read_header(body: bytes | bytearray | memoryview) -> ArrayHeader:
    """Read the header of an envelope.

    Raises:
        ArrayError: If it is not an envelope, or its type or shape is not allowed.
    """
    try:
        magic, version, codec, ndim, name_length = struct.unpack_from("<4sBBBB", body, 0)
        if magic != _MAGIC or version != _VERSION or codec not in _CODECS.values():
            raise ArrayError("The body is not an array of this protocol (NNIA, version 1).")
        name = bytes(body[8 : 8 + name_length]).decode("ascii", errors="replace")
        if name not in _DTYPES:
            raise ArrayError("The array's type is not allowed; send plain integers or floats.")
        if not 1 <= ndim <= _MAX_AXES:
            raise ArrayError(f"An array has 1 to {_MAX_AXES} axes, got {ndim}.")
        shape = struct.unpack_from(f"<{ndim}q", body, 8 + name_length)
    except struct.error:
        raise ArrayError("The array ends within its header; send it again.") from None
    if min(shape) < 1:
        raise ArrayError(f"Every axis of an array must be at least 1, got {shape}.")
    return ArrayHeader(np.dtype(name).newbyteorder("<"), shape, 8 + name_length + 8 * ndim)


def unpack_array(
    body: bytes | bytearray | memoryview, *, max_bytes: int, axes: Collection[int]
) -> Array:
    """Decode an array from an untrusted source.

    Raises:
        ArrayError: If the envelope is damaged, or its size or number of axes is not accepted.
    """
    header = read_header(body)
    if len(header.shape) not in axes:
        raise ArrayError(f"Expected {sorted(axes)} axes, got shape {header.shape}.")
    if header.nbytes > max_bytes:
        raise too_large(header.nbytes, max_bytes)
    view = memoryview(body)
    spans = _check_chunks(view, header)
    # Zeros, not empty: a chunk that decodes to less than announced must not expose old memory.
    out = np.zeros(header.nbytes, dtype=np.uint8)
    target = out.data
    for source, start, stop in spans:
        chunk = view[source]
        if chunk[2] & _STORED and not _special(chunk):
            target[start:stop] = chunk[_CHUNK_HEADER_BYTES:]
            continue
        import blosc2

        blosc2.set_releasegil(True)  # lets requests of other sessions continue
        try:
            blosc2.decompress2(chunk, dst=target[start:stop])
        except (RuntimeError, ValueError, TypeError):
            raise ArrayError("The array cannot be decompressed; send it again.") from None
    if header.dtype.kind == "b":  # NumPy relies on true being 1; the sender may use other values
        np.not_equal(out, 0, out=out.view(np.bool_))
    return out.view(header.dtype).reshape(header.shape)


def too_large(nbytes: int, limit: int) -> TooLarge:
    """Return the error for an array beyond the limit; both in bytes."""
    return TooLarge(
        f"The array would need {nbytes} bytes, the limit is {limit}; crop it or raise the limit."
    )


def _check_chunks(view: memoryview, header: ArrayHeader) -> list[tuple[slice, int, int]]:
    """Validate all chunks, and return each one's source slice and target range."""
    spans: list[tuple[slice, int, int]] = []
    position, written = header.payload_offset + 4, 0
    try:
        (count,) = struct.unpack_from("<I", view, header.payload_offset)
        if count > _FEW_CHUNKS + header.nbytes // _USUAL_CHUNK_BYTES:
            raise ArrayError("The array has too many chunks; send larger ones.")
        for _ in range(count):
            plain, packed = struct.unpack_from("<QQ", view, position)
            position += 16
            if not 0 < plain <= min(_MAX_CHUNK_BYTES, header.nbytes - written):
                raise ArrayError("The array's chunks do not add up to its shape.")
            if position + packed > len(view):
                raise ArrayError("The array is cut short; send it again.")
            source = slice(position, position + packed)
            _check_chunk(view[source], plain, header.dtype.itemsize)
            spans.append((source, written, written + plain))
            position, written = position + packed, written + plain
    except struct.error:
        raise ArrayError("The array is cut short; send it again.") from None
    if written != header.nbytes or position != len(view):
        raise ArrayError("The array's chunks do not add up to its shape.")
    return spans


def _check_chunk(chunk: memoryview, plain: int, itemsize: int) -> None:
    """Refuse a chunk whose header contradicts the envelope or uses unaccepted features."""
    damaged = ArrayError("The array's blosc2 data is damaged; send it again.")
    if len(chunk) < _CHUNK_HEADER_BYTES:
        raise damaged
    version, _, flags, typesize, nbytes, blocksize, cbytes = struct.unpack_from("<4B3i", chunk, 0)
    filters, blosc2_flags, special = chunk[16:22], chunk[31], _special(chunk)
    if (
        version not in _CHUNK_VERSIONS
        or flags & _EXTENDED_HEADER != _EXTENDED_HEADER
        or nbytes != plain
        or cbytes != len(chunk)
        or not 0 < blocksize <= plain
        or typesize not in (itemsize, 1)
        or plain % typesize
        or (flags & _STORED and len(chunk) != plain + _CHUNK_HEADER_BYTES)
    ):
        raise damaged
    if (
        not (flags & _STORED or flags >> 5 in _KNOWN_CODECS)
        or any(code not in _KNOWN_FILTERS for code in filters)
        or blosc2_flags & _UNSAFE_FLAGS
        or special >= _UNINITIALISED
    ):
        raise ArrayError("The array uses a blosc2 feature that is not accepted; use LZ4 or Zstd.")


def _special(chunk: memoryview) -> int:
    """Return a chunk's special value: 0 none, 1 zeros, 2 NaN, 3 constant, 4 uninitialised."""
    return (chunk[31] >> 4) & 0x07


def pack_bundle(
    meta: Mapping[str, Any], arrays: Mapping[str, Array], *, codec: Codec = "lz4"
) -> bytes:
    """Encode arrays with metadata; see `pack_array_in_parts`."""
    text = json.dumps({**meta, "arrays": list(arrays)}, separators=(",", ":")).encode()
    parts = [struct.pack("<I", len(text)), text]
    for array in arrays.values():
        envelope = pack_array(array, codec=codec)
        parts += [struct.pack("<Q", len(envelope)), envelope]
    return b"".join(parts)


def unpack_bundle(
    body: bytes | bytearray, *, max_bytes: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Decode a bundle to its metadata and its arrays by name.

    Raises:
        ArrayError: If it is damaged, or an array is larger than accepted.
    """
    view, arrays = memoryview(body), {}
    try:
        (length,) = struct.unpack_from("<I", view, 0)
        position = 4 + length
        meta = json.loads(bytes(view[4:position]))
        names = [str(name) for name in meta.pop("arrays")]
        for name in names:
            (length,) = struct.unpack_from("<Q", view, position)
            position += 8
            envelope = view[position : position + length]
            arrays[name] = unpack_array(envelope, max_bytes=max_bytes, axes=(1, 2, 3))
            position += length
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ArrayError):
            raise
        raise ArrayError("The answer is damaged; ask again.") from None
    return meta, arrays
