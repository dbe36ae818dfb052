"""Serialization of several arrays with JSON metadata in one body.

Layout, little-endian: length of the JSON (u32), the JSON, and for each array its length (u64) and
its `NNIA` envelope. The JSON's key `arrays` lists their names in order.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from pumit.wire.arrays import Array, Codec, pack_array, unpack_array
from pumit.wire.protocol import ArrayError


def pack_bundle(
    meta: Mapping[str, Any],
    arrays: Mapping[str, Array],
    *,
    codec: Codec = "lz4",
) -> bytes:
    """Encode arrays with metadata.

    Raises:
        ArrayError: If an array has a type or shape that an envelope cannot hold.
    """
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

    Args:
        max_bytes: Largest decoded size of one array.

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
