"""Decoding of images sent by ITK-SNAP: a multipart form with gzipped voxels and metadata."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError

_MOST_PARTS = 8
_ITEM_BYTES = 4  # voxels are 32-bit floats
_DAMAGED = "The upload is not a form with `file` and `metadata` as ITK-SNAP sends it."


@dataclass(frozen=True, eq=False)
class SentImage:
    """An image of a form, still compressed.

    Attributes:
        packed: Voxels, gzip of 32-bit floats; the first axis is the fastest.
        shape: (D, H, W).
        components: Components per voxel.
        spacing_mm: (D, H, W); None if not stated, as the protocol does not require it.
    """

    packed: memoryview
    shape: tuple[int, int, int]
    components: int
    spacing_mm: tuple[float, ...] | None

    @property
    def nbytes(self) -> int:
        """Uncompressed size of the voxels, bytes."""
        d, h, w = self.shape
        return d * h * w * self.components * _ITEM_BYTES

    def array(self) -> npt.NDArray[np.float32]:
        """Decompress the voxels to (C, D, H, W), at most the announced size.

        Raises:
            VolumeError: If they are not gzip, or of another size.
        """
        unpack = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            voxels = unpack.decompress(self.packed, self.nbytes + 1)
        except zlib.error:
            raise VolumeError("The voxels are not packed as ITK-SNAP packs them (gzip).") from None
        if len(voxels) != self.nbytes:
            raise VolumeError(
                f"The voxels are not {self.nbytes} bytes, as the image's dimensions say."
            )
        array = np.frombuffer(voxels, "<f4").reshape(*self.shape, self.components)
        return np.ascontiguousarray(np.moveaxis(array, -1, 0), dtype=np.float32)


def sent_image(body: bytearray, content_type: str) -> SentImage:
    """Parse a form and return its image.

    Raises:
        VolumeError: If it is another form, or its dimensions are invalid.
    """
    parts = _parts(body, content_type)
    if not {"file", "metadata"} <= parts.keys():
        raise VolumeError(_DAMAGED)
    try:
        facts = json.loads(bytes(parts["metadata"][: 1 << 16]))
        sizes = [int(n) for n in facts["dimensions"]]
        components = int(facts.get("components_per_pixel", 1))
        spacing = facts.get("spacing")
        steps = None if spacing is None else tuple(float(s) for s in spacing)[::-1]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise VolumeError(_DAMAGED) from None
    sizes += [1] * (3 - len(sizes))
    if len(sizes) != 3 or min(sizes) < 1 or max(sizes) > 1 << 20 or not 1 <= components <= 64:
        raise VolumeError("An image needs two or three dimensions of one voxel or more.")
    w, h, d = sizes
    return SentImage(parts["file"], (d, h, w), components, steps)


def _parts(body: bytearray, content_type: str) -> dict[str, memoryview]:
    """Split a form into its parts by name, without copying (RFC 7578)."""
    found = re.search(r'boundary="?([^";,\s]{1,200})"?', content_type)
    if found is None:
        raise VolumeError(_DAMAGED)
    line, view = b"--" + found[1].encode("utf-8"), memoryview(body)
    parts: dict[str, memoryview] = {}
    start = body.find(line)
    for _ in range(_MOST_PARTS):
        begin = body.find(b"\r\n\r\n", start)
        end = body.find(b"\r\n" + line, begin + 2)
        if start < 0 or begin < 0 or end < 0 or begin - start > 1 << 14:
            raise VolumeError(_DAMAGED)
        name = re.search(rb'[;\s]name="([^"]{0,100})"', body[start:begin])
        if name is not None:
            parts[name[1].decode("latin-1")] = view[min(begin + 4, end) : end]
        start = end + 2
        after = start + len(line)
        if body[after : after + 2] == b"--":
            return parts
    raise VolumeError(_DAMAGED)
